"""Micro-batches and chunks in flight on pipeline rank r at its peak, for every schedule, in closed form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sympy import And, Eq, Expr, Ge, Gt, Integer, Le, Or

from ..functions import Divides, FloorDiv, Iverson, Max, Min, pad_to
from ..parameters import symbols
from .rules import Rule

p, r, m, V, G, Gr = symbols("p r m V G Gr")
NONE, ONE = Integer(0), Integer(1)


@dataclass(frozen=True)
class Schedule:
    """One order of forward and backward passes, and what rank r holds under it at its peak.

    ``chunks`` is the number of chunks of layers per rank, None for any (V). ``in_flight`` counts chunks
    from their forward pass to the end of their backward pass. ``in_flight_first`` and ``in_flight_last``
    count micro-batches so for the first chunk of rank r (on ``first_rank`` the embedding keeps their ids)
    and for the last chunk of ``last_rank`` (what the head keeps); ``in_flight_loss`` counts there those
    whose loss is kept, which ends with the backward pass of inputs. On those ranks they are counted at a
    moment of ``in_flight``; of several such moments at the one with most of them. ``least_first`` and ``least_last``
    are the same at the one with fewest, where the layers of other chunks weigh most.

    ``first_backward`` counts chunks that the first rank has in flight when the backward pass of its first chunk begins,
    if that is less than ``in_flight``: all forward passes have run then. None where it never is.

    ``awaiting_weight`` counts chunks between the two halves of a backward pass, for which gradients are kept
    besides; ``peaks`` are the pairs (in flight, awaiting) of which one is the peak, whatever each costs.
    ``groups`` says, by program, how many micro-batches pass a chunk in a row (Gr), where that matters.
    ``weight_passes`` says how many passes of weight gradients fill the idle time of a fill and drain step.
    ``overlapped`` is 1 where what is sent between stages travels while they work, else 0.
    ``rules`` hold in every program, ``own_rules`` in one; a program that does not have the schedule has none.
    """

    name: str
    title: str
    chunks: int | None
    in_flight: Expr
    in_flight_first: Expr
    sources: tuple[str, ...]
    in_flight_last: Expr = ONE
    in_flight_loss: Expr = ONE
    least_first: Expr = ONE
    least_last: Expr = ONE
    first_backward: Expr | None = None
    awaiting_weight: Expr = NONE
    peaks: tuple[tuple[Expr, Expr], ...] = ()
    rules: tuple[Rule, ...] = ()
    own_rules: Mapping[str, tuple[Rule, ...]] = field(default_factory=dict)
    groups: Mapping[str, Expr] = field(default_factory=dict)
    first_rank: Expr = NONE
    last_rank: Expr = p - 1
    weight_passes: int = 0
    overlapped: Expr = NONE

    def __post_init__(self) -> None:
        """Set both peaks to one moment by default."""
        if not self.peaks:
            object.__setattr__(self, "peaks", ((self.in_flight, self.awaiting_weight),))

    @property
    def grouped(self) -> bool:
        """True if micro-batches run in groups of ``Gr``."""
        return bool(self.groups)

    def rules_in(self, program: str) -> tuple[Rule, ...]:
        """Return all rules of the schedule in ``program``: ``megatron``, ``nanotron`` or ``torchtitan``."""
        return self.rules + self.own_rules.get(program, ())


#: Micro-batches that pass a chunk in a row: given (G, 0 stands for p), or all in equal rounds of p or more.
GROUPS: dict[str, Expr] = {
    "megatron": G + p * Iverson(Eq(G, 0)),
    "torchtitan": m / Max(ONE, FloorDiv(m, p)),
}

# Chunks that the forward passes of rank r lead by, at most: through each later chunk a group, and 1F1B's
# p - r; interleaving costs another step per rank behind r, zero bubble ends backward passes r steps later.
_LEAD_1F1B = (V - 1) * Gr + p - r + Iverson(Gt(V, 1)) * (p - 1 - r)
_LEAD_ZERO_BUBBLE = (V - 1) * Gr + p

# Of the first chunk no more than two groups are in flight: the second one's passes end the first one's.
# (With one chunk per rank there are no groups, and p is the limit.)
_FIRST_GROUPS = Max(2 * Gr, p)

# The last group of Megatron may be smaller than the others; the last rank then runs ahead of its losses.
_REST = m - Gr * FloorDiv(m, Gr)
_LAST_INTERLEAVED = Max(ONE, Min(_REST, (V - 1) * (Gr - _REST) + 1))

# With the fewest of the first chunk in flight on the first rank, and of the last on the last one, whose backward
# passes follow its forward passes at once. A smaller last group ends the first chunk's passes earlier.
_LEAST_FIRST = Min(
    m, Iverson(Eq(V, 1)) * p
    + Iverson(Gt(V, 1)) * Min(Max(Gr, 2 * p - 1), Max(_REST, (V - 1) * (Gr - _REST) + 2 * p - 1)),
)
_LEAST_LAST = Max(Iverson(Eq(V, 1)), Iverson(Eq(Gr, m)))

# ZB-V: what is left of both chunks when only input-backward passes run; short of 2 p - 1 micro-batches, less.
_ZBV_SECOND = Max(NONE, Min(r, m - 2 * p + 1 + r))
_ZBV_AWAITING = Max(ONE, Min(r + 1, m - p + 1) + _ZBV_SECOND)
_ZBV_IN_FLIGHT = Min(2 * p, 2 * m, m + r + 1)

_SEVERAL_RANKS = Rule("schedule", "p", Ge(p, 2), "must be 2 or more: one rank has no pipeline to schedule")
_SEVERAL_CHUNKS = Rule("chunks", "V", Ge(V, 2), "must be 2 or more")
_ONE_CHUNK = Rule("chunks", "V", Eq(V, 1), "must be 1")
_EQUAL_ROUNDS = Rule(
    "rounds", "B", Divides(Max(ONE, FloorDiv(m, p)), m),
    "must give equal rounds of pipeline_parallel or more micro-batches",
)


def _enough(microbatches: Expr, words: str) -> Rule:
    return Rule("microbatches", "B", Ge(m, microbatches), f"must give at least {words} micro-batches")


SCHEDULES: dict[str, Schedule] = {
    item.name: item for item in (
        Schedule(
            "1f1b", "1F1B", 1, Min(m, p - r), Min(m, p - r), ("narayanan2021", "megatron_core"),
            own_rules={
                "nanotron": (_enough(p - 1, "pipeline_parallel - 1"),),
                "torchtitan": (_enough(p, "pipeline_parallel"),),
            },
        ),
        Schedule(
            # One chunk per rank is plain 1F1B, as Megatron runs it then.
            "interleaved", "Interleaved 1F1B", None, Min(m * V, _LEAD_1F1B), Min(m, _FIRST_GROUPS, _LEAD_1F1B),
            ("narayanan2021", "megatron_core"), in_flight_last=_LAST_INTERLEAVED, in_flight_loss=_LAST_INTERLEAVED,
            least_first=_LEAST_FIRST, least_last=_LEAST_LAST,
            # Later chunks of the first group are done by then.
            first_backward=m * V - (V - 1) * Gr,
            rules=(
                Rule("schedule", "p", Or(Eq(V, 1), Ge(p, 2)),
                     "must be 2 or more where a rank has several chunks"),
            ),
            own_rules={
                "megatron": (
                    Rule("group", "G", Or(Eq(V, 1), And(Ge(Gr, p), Le(Gr, m))),
                         "must lie between pipeline_parallel and the number of micro-batches"),
                    Rule("last_group", "G", Or(Eq(V, 1), Divides(Gr, m), Le(pad_to(m, Gr) - m, Gr - p)),
                         "must divide the micro-batches or leave at least pipeline_parallel of them"),
                ),
                "torchtitan": (_SEVERAL_CHUNKS, _EQUAL_ROUNDS),
            },
            groups=GROUPS,
            overlapped=Iverson(Gt(V, 1)),
        ),
        Schedule(
            "gpipe", "GPipe; breadth first with several chunks", None, m * V, m,
            ("huang2019", "lamy2023", "pytorch"),
            in_flight_last=m, in_flight_loss=m,
            own_rules={"nanotron": (_ONE_CHUNK,), "torchtitan": (_SEVERAL_RANKS,)},
        ),
        Schedule(
            "zero_bubble", "Interleaved zero bubble (ZB1P)", None,
            Min(m * V, _LEAD_ZERO_BUBBLE), Min(m, _FIRST_GROUPS, _LEAD_ZERO_BUBBLE),
            ("qi2023", "pytorch"),
            in_flight_last=Min(m, p),
            awaiting_weight=Min(m * V, r + 1),
            rules=(_SEVERAL_RANKS,),
            own_rules={"torchtitan": (_SEVERAL_CHUNKS, _EQUAL_ROUNDS)},
            groups={"torchtitan": GROUPS["torchtitan"]},
            weight_passes=2,
            overlapped=ONE,
        ),
        Schedule(
            "zbv", "ZB-V", 2, _ZBV_IN_FLIGHT, Min(m, 2 * p - r - 1), ("qi2023", "pytorch"),
            awaiting_weight=_ZBV_AWAITING,
            peaks=((_ZBV_IN_FLIGHT, ONE),
                   (Max(ONE, Min(p, m - p + 1) + _ZBV_SECOND), _ZBV_AWAITING)),
            rules=(_SEVERAL_RANKS,),
            last_rank=NONE,
            weight_passes=3,
            overlapped=ONE,
        ),
        Schedule(
            "dualpipev", "DualPipeV", 2, 2 * p + 1, 2 * p - r, ("deepseek2024v3", "pytorch"),
            awaiting_weight=r + 1,
            peaks=((2 * p + 1, NONE), (2 * p, 1 - Iverson(Eq(r, p - 1))), (p, r + 1)),
            rules=(_SEVERAL_RANKS, _enough(2 * p, "2 pipeline_parallel")),
            last_rank=NONE,
            weight_passes=3,
            overlapped=ONE,
        ),
    )
}

#: Schedules that split the backward pass into halves, for inputs and for weights.
SPLIT_BACKWARD = tuple(name for name, item in SCHEDULES.items() if item.awaiting_weight != 0)
