"""Actions of a pipeline rank, and the layers that it holds after each: exact for any layers per chunk.

A chunk is one of the V parts of a rank's layers. The closed forms of ``schedules`` count chunks of
equal size; here every chunk may weigh something else, as with listed layouts. Nothing here uses the
closed forms, and nothing needs SymPy.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import zip_longest
from operator import ge, mul
from typing import NamedTuple

FORWARD, BACKWARD, INPUT, WEIGHT = "F", "B", "I", "W"

#: Schedules whose stages run down the ranks and up again: rank r holds the stages r and 2 p - 1 - r.
FOLDED = frozenset({"zbv", "dualpipev"})


class Action(NamedTuple):
    """One action of a rank: ``F``, ``B``, or a ``B`` in its halves ``I`` (inputs) and ``W`` (weights)."""

    kind: str
    chunk: int
    microbatch: int


class Moment(NamedTuple):
    """Micro-batches of each chunk after an action.

    ``in_flight`` are those whose forward pass ran and whose backward pass is not complete;
    ``awaiting`` are those of them that wait for their weight-backward pass, with gradients kept for it.
    """

    in_flight: tuple[int, ...]
    awaiting: tuple[int, ...]


class Held(NamedTuple):
    """Layers of every kind held at one moment, in layers times micro-batches."""

    in_flight: dict[str, int]
    awaiting: dict[str, int]


#: Actions without their micro-batches: those of a chunk are worked on in order.
Steps = list[tuple[str, int]]


def _step(*names: str) -> Steps:
    """Return steps by short names, ``F0`` for the forward pass of chunk 0."""
    return [(name[0], int(name[1:])) for name in names]


def _grouped(m: int, V: int, group: int) -> list[int]:
    """Return the chunks in the order of their forward passes: each group of micro-batches goes through all chunks."""
    return [chunk for start in range(0, m, group) for chunk in range(V) for _ in range(min(group, m - start))]


def _alternate(m: int, V: int, group: int, ahead: int, delay: int | None) -> Steps:
    """Forward passes run ``ahead``, then one of each; weights follow inputs ``delay`` steps later, or at once."""
    forward = _grouped(m, V, group)
    steps = [(FORWARD, chunk) for chunk in forward[:ahead]]
    waiting: deque[int] = deque()
    for following, passed in zip_longest(forward[ahead:], forward):
        if following is not None:
            steps.append((FORWARD, following))
        chunk = V - 1 - passed
        steps.append((BACKWARD if delay is None else INPUT, chunk))
        if delay is not None:
            waiting.append(chunk)
            if len(waiting) > delay:
                steps.append((WEIGHT, waiting.popleft()))
    return steps + [(WEIGHT, chunk) for chunk in waiting]


def _one_forward_one_backward(p: int, m: int, V: int, group: int, rank: int) -> Steps:
    hops = p - 1 - rank
    return _alternate(m, V, group, (V - 1) * group + 2 * hops if V > 1 else hops, None)


def _zero_bubble(p: int, m: int, V: int, group: int, rank: int) -> Steps:
    return _alternate(m, V, group, (V - 1) * group + p - 1 - rank, rank)


def _gpipe(p: int, m: int, V: int, group: int, rank: int) -> Steps:
    """Return all forward passes, chunk after chunk, then all backward passes."""
    chunks = [chunk for chunk in range(V) for _ in range(m)]
    return [(FORWARD, chunk) for chunk in chunks] + [(BACKWARD, chunk) for chunk in reversed(chunks)]


def _zbv(p: int, m: int, V: int, group: int, rank: int) -> Steps:
    """Laid out for at least 2 p - 1 micro-batches; with fewer, what is missing leaves gaps."""
    up = p - rank
    full = max(m, 2 * p - 1)
    return (
        (2 * up - 1) * _step("F0")
        + rank * _step("F1", "F0")
        + up * _step("F1", "I1", "W1")
        + (full - 2 * p + rank + 1) * _step("F0", "I0", "W0", "F1", "I1", "W1")
        + (up - 1) * _step("I0", "W0", "F1", "I1", "W1")
        + rank * _step("I0", "I1")
        + up * _step("I0", "W0")
        + rank * _step("W1")
        + rank * _step("W0")
    )


def _dualpipev(p: int, m: int, V: int, group: int, rank: int) -> Steps:
    """Walk DualPipeV: its last p backward passes are in halves, weights p - rank - 1 behind inputs at the end."""
    hops = p - 1 - rank
    last = (rank + 1) * [1, 0]
    halved = last[rank + 1:] + hops * [0]
    inputs = [(INPUT, chunk) for chunk in halved]
    weights = [(WEIGHT, chunk) for chunk in halved]
    return (
        2 * hops * _step("F0")
        + (rank + 1) * _step("F0", "F1")
        + hops * _step("I1", "W1", "F1")
        + (m - 2 * p + rank + 1) * _step("F0", "B1", "F1", "B0")
        + hops * _step("B1", "F1", "B0")
        + [(BACKWARD, chunk) for chunk in last[:rank + 1]]
        + inputs[:rank + 1]
        + [step for pair in zip(weights[:hops], inputs[rank + 1:], strict=True) for step in pair]
        + weights[hops:]
    )


_STEPS: Mapping[str, Callable[[int, int, int, int, int], Steps]] = {
    "1f1b": _one_forward_one_backward,
    "interleaved": _one_forward_one_backward,
    "gpipe": _gpipe,
    "zero_bubble": _zero_bubble,
    "zbv": _zbv,
    "dualpipev": _dualpipev,
}


def _refuse(schedule: str, p: int, m: int, V: int, group: int, rank: int) -> None:
    if schedule not in _STEPS:
        raise ValueError(f"unknown schedule {schedule!r}; there are {', '.join(_STEPS)}")
    if min(p, m, V, group) < 1 or not 0 <= rank < p:
        raise ValueError(f"no rank {rank} of {p}, or nothing to do: {m=}, {V=}, {group=}")
    chunks = 2 if schedule in FOLDED else 1 if schedule == "1f1b" else V
    if chunks != V:
        raise ValueError(f"{schedule} has {chunks} chunks per rank, not {V}")
    if schedule == "dualpipev" and m < 2 * p:
        raise ValueError(f"dualpipev needs a micro-batch for each of its {2 * p} stages, not {m}")


def stage(schedule: str, p: int, rank: int, chunk: int) -> int:
    """Return the stage, from 0 for the first layers to p V - 1 for the last, that is a rank's chunk."""
    return 2 * p - 1 - rank if schedule in FOLDED and chunk else chunk * p + rank


def actions(schedule: str, p: int, m: int, V: int, group: int, rank: int) -> list[Action]:
    """Return the actions of rank ``rank`` in one step, in order.

    ``p`` ranks, ``m`` micro-batches, ``V`` chunks per rank, ``group`` micro-batches that go through a
    chunk before the next one (1F1B and zero bubble with V >= 2 only). Sources: Megatron-Core 0.16.1 for
    1F1B, PyTorch 2.13 for all others. Raises ValueError for what no rank can run.
    """
    _refuse(schedule, p, m, V, group, rank)
    done: Counter[tuple[str, int]] = Counter()
    steps = []
    for kind, chunk in _STEPS[schedule](p, m, V, group, rank):
        halves = (INPUT, WEIGHT) if kind == BACKWARD else (kind,)
        microbatch = done[halves[0], chunk]
        done.update((half, chunk) for half in halves)
        if microbatch < m:
            steps.append(Action(kind, chunk, microbatch))
    if schedule == "gpipe" and V > 1:  # breadth first: the last micro-batch comes back first
        steps = [a if a.kind == FORWARD else a._replace(microbatch=m - 1 - a.microbatch) for a in steps]
    return steps


def moments(ordered: Sequence[Action], V: int) -> Iterator[Moment]:
    """Return the chunks held after each action of a rank with ``V`` chunks."""
    in_flight, awaiting = [0] * V, [0] * V
    for kind, chunk, _ in ordered:
        if kind in {INPUT, WEIGHT}:
            awaiting[chunk] += 1 if kind == INPUT else -1
        if kind != INPUT:
            in_flight[chunk] += 1 if kind == FORWARD else -1
        yield Moment(tuple(in_flight), tuple(awaiting))


@lru_cache(maxsize=4096)
def heaviest(schedule: str, p: int, m: int, V: int, group: int, rank: int) -> tuple[Moment, ...]:
    """Return the moments, in order, of which one is the peak whatever a chunk weighs.

    Every other moment has in no chunk more in flight or more awaiting than one of these.
    Raises ValueError as ``actions`` does.
    """
    distinct = dict.fromkeys(moments(actions(schedule, p, m, V, group, rank), V))
    kept: dict[Moment, tuple[int, ...]] = {}
    # A moment with more of everything has the larger sum, so it was kept before those that it outweighs.
    for moment in sorted(distinct, key=lambda each: -sum(each.in_flight) - sum(each.awaiting)):
        counts = moment.in_flight + moment.awaiting
        if not any(all(map(ge, more, counts)) for more in kept.values()):
            kept[moment] = counts
    return tuple(moment for moment in distinct if moment in kept)


def _weighed(counts: Sequence[int], weights: Sequence[int]) -> int:
    return sum(map(mul, counts, weights))


def held(schedule: str, p: int, m: int, V: int, group: int, rank: int, weights: Sequence[int]) -> int:
    """Return the largest sum over time of micro-batches in flight times the weight of their chunk.

    ``weights`` has one number for each of the ``V`` chunks of the rank, not negative: layers, or bytes
    of a micro-batch. Raises ValueError as ``actions`` does, and for wrong weights.
    """
    return held_at_peak(schedule, p, m, V, group, rank, {"": weights}, {"": 1}).in_flight[""]


def held_at_peak(
    schedule: str, p: int, m: int, V: int, group: int, rank: int,
    kinds: Mapping[str, Sequence[int]],
    cost: Mapping[str, int],
    awaiting_cost: Mapping[str, int] | None = None,
) -> Held:
    """Return the layers of every kind held at the most expensive moment, the first of equal ones.

    ``kinds`` says how many layers of a kind each chunk of the rank has, ``cost`` what one of them holds
    for a micro-batch in flight (bytes), ``awaiting_cost`` what is kept besides while it waits for its
    weight-backward pass (bytes; nothing if not given). Raises ValueError as ``actions`` does, and for
    numbers that are negative or not one per chunk.
    """
    waiting = awaiting_cost or {}
    heaviest_moments = heaviest(schedule, p, m, V, group, rank)
    if any(len(layers) != V or min(layers) < 0 for layers in kinds.values()):
        raise ValueError(f"every kind of layer has one number, not negative, for each of {V} chunks: {kinds}")
    if not set(cost) == set(kinds) >= set(waiting) or min([0, *cost.values(), *waiting.values()]) < 0:
        raise ValueError(f"costs must be of the kinds {sorted(kinds)} and not negative: {cost}, {waiting}")

    def total(moment: Moment) -> int:
        return sum(cost[kind] * _weighed(moment.in_flight, layers)
                   + waiting.get(kind, 0) * _weighed(moment.awaiting, layers) for kind, layers in kinds.items())

    peak = max(heaviest_moments, key=total)
    return Held(
        {kind: _weighed(peak.in_flight, layers) for kind, layers in kinds.items()},
        {kind: _weighed(peak.awaiting, layers) for kind, layers in kinds.items()},
    )
