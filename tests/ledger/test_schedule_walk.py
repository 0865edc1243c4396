"""The walk through a schedule: counted rows, orders that can run, and what uneven chunks hold."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.extent import FULL
from sympy import Integer

from shardmath.symbolic.parallel.schedules import SCHEDULES
from shardmath.symbolic.parallel.walk import (
    BACKWARD,
    FORWARD,
    INPUT,
    WEIGHT,
    Action,
    actions,
    heaviest,
    held,
    held_at_peak,
    moments,
    stage,
)
from shardmath.symbolic.parameters import symbol

CLASSES = {
    "1F1B": "1f1b", "Interleaved1F1B": "interleaved", "GPipe": "gpipe", "LoopedBFS": "gpipe",
    "InterleavedZeroBubble": "zero_bubble", "ZBVZeroBubble": "zbv", "DualPipeV": "dualpipev",
}
Pipeline = tuple[str, int, int, int, int]

with (Path(__file__).parents[1] / "data" / "pipeline_in_flight.csv").open(newline="") as table:
    COUNTED = list(csv.DictReader(table))


def rounds(p: int, m: int) -> int:
    return m // max(1, m // p)


def counted(row: dict[str, str]) -> tuple[int, ...]:
    columns = ("n_forward", "warmup_forwards", "peak_F_minus_BorI", "peak_F_minus_BorW", "peak_I_minus_W")
    return tuple(int(row[column]) for column in columns)


def counts(schedule: str, p: int, m: int, V: int, rank: int) -> tuple[int, ...]:
    done = actions(schedule, p, m, V, rounds(p, m), rank)
    kinds = [action.kind for action in done]
    first_backward = min(kinds.index(kind) for kind in (BACKWARD, INPUT) if kind in kinds)
    found = list(moments(done, V))
    return (
        kinds.count(FORWARD),
        first_backward,
        max(sum(each.in_flight) - sum(each.awaiting) for each in found),
        max(sum(each.in_flight) for each in found),
        max(sum(each.awaiting) for each in found),
    )


@pytest.mark.parametrize("name", CLASSES)
def test_counted_rows(name: str) -> None:
    """All columns of all rows but those of PyTorch's interleaving of a single chunk, which no program runs."""
    rows = [row for row in COUNTED if row["schedule"] == name and (name != "Interleaved1F1B" or row["v"] != "1")]
    assert len(rows) > 80
    wrong = []
    for row in rows:
        found = counts(CLASSES[name], *(int(row[column]) for column in ("pp", "m", "v", "rank")))
        if found != counted(row):
            wrong.append((row, found))
    assert not wrong


@st.composite
def pipelines(draw: st.DrawFn, schedules: Sequence[str] = tuple(sorted(SCHEDULES))) -> Pipeline:
    """Schedule, p, m, V and group."""
    schedule = draw(st.sampled_from(schedules))
    p, chunks = draw(st.integers(1, 6)), SCHEDULES[schedule].chunks
    V = draw(st.integers(1, 4)) if chunks is None else chunks
    least = 2 * p if schedule == "dualpipev" else 1
    m = draw(st.integers(least, least + 20))
    group = rounds(p, m)
    if schedule == "interleaved" and m >= p and draw(st.booleans()):
        group = draw(st.sampled_from([g for g in range(p, m + 1) if not 0 < m % g < p]))
    elif SCHEDULES[schedule].grouped:
        m = group * max(1, m // p)
    return schedule, p, m, V, group


@pytest.mark.slow
@settings(max_examples=400 if FULL else 100)
@given(pipelines())
def test_every_pass_of_every_micro_batch_runs_once_and_nothing_is_left(pipeline: Pipeline) -> None:
    schedule, p, m, V, group = pipeline
    for rank in range(p):
        done = actions(schedule, p, m, V, group, rank)
        every = Counter((chunk, microbatch) for chunk in range(V) for microbatch in range(m))
        by_kind = {
            kind: Counter((action.chunk, action.microbatch) for action in done if action.kind == kind)
            for kind in (FORWARD, BACKWARD, INPUT, WEIGHT)
        }
        assert by_kind[FORWARD] == every == by_kind[BACKWARD] + by_kind[INPUT]
        assert by_kind[INPUT] == by_kind[WEIGHT]
        last = list(moments(done, V))[-1]
        assert sum(last.in_flight) == sum(last.awaiting) == 0


def needed(action: Action, place: int, stages: int) -> list[tuple[str, int, int]]:
    """What must have run before an action: halves of a backward pass send on the gradient after ``I``."""
    kind, _, microbatch = action
    if kind == FORWARD:
        return [(FORWARD, place - 1, microbatch)] if place else []
    if kind == WEIGHT:
        return [(INPUT, place, microbatch)]
    before = [(INPUT, place + 1, microbatch)] if place + 1 < stages else []
    return [*before, (FORWARD, place, microbatch)]


@pytest.mark.slow
@settings(max_examples=400 if FULL else 100)
@given(pipelines())
def test_the_ranks_together_come_to_an_end(pipeline: Pipeline) -> None:
    """No rank waits for ever for another one, whatever each action takes."""
    schedule, p, m, V, group = pipeline
    left = [actions(schedule, p, m, V, group, rank)[::-1] for rank in range(p)]
    done: set[tuple[str, int, int]] = set()
    moved = True
    while moved:
        moved = False
        for rank, mine in enumerate(left):
            while mine:
                place = stage(schedule, p, rank, mine[-1].chunk)
                if not done.issuperset(needed(mine[-1], place, p * V)):
                    break
                kind, _, microbatch = mine.pop()
                done.add((INPUT if kind == BACKWARD else kind, place, microbatch))
                moved = True
    assert not any(left)


@pytest.mark.parametrize("schedule", sorted(SCHEDULES))
def test_every_stage_has_one_rank_and_the_ends_are_where_the_closed_forms_say(schedule: str) -> None:
    form = SCHEDULES[schedule]
    V = form.chunks or 3
    for p in range(1, 6):
        ranks = {stage(schedule, p, rank, chunk): (rank, chunk) for rank in range(p) for chunk in range(V)}
        assert sorted(ranks) == list(range(p * V))
        first, last = (end.xreplace({symbol("p"): Integer(p)}) for end in (form.first_rank, form.last_rank))
        assert (ranks[0], ranks[p * V - 1]) == ((first, 0), (last, V - 1))


@pytest.mark.slow
@settings(max_examples=400 if FULL else 100)
@given(pipelines(), st.data())
def test_uneven_chunks_hold_the_most_of_any_moment(pipeline: Pipeline, data: st.DataObject) -> None:
    schedule, p, m, V, group = pipeline
    rank = data.draw(st.integers(0, p - 1))
    layers = st.lists(st.integers(0, 9), min_size=V, max_size=V)
    dense, experts = data.draw(layers), data.draw(layers)
    cost = {"dense": data.draw(st.integers(0, 99)), "experts": data.draw(st.integers(0, 99))}
    waiting = {"experts": data.draw(st.integers(0, 99))}

    def weigh(counts: tuple[int, ...], weights: list[int]) -> int:
        return sum(count * weight for count, weight in zip(counts, weights, strict=True))

    every = list(moments(actions(schedule, p, m, V, group, rank), V))
    assert held(schedule, p, m, V, group, rank, dense) == max(weigh(each.in_flight, dense) for each in every)
    found = held_at_peak(schedule, p, m, V, group, rank, {"dense": dense, "experts": experts}, cost, waiting)
    assert (
        cost["dense"] * found.in_flight["dense"] + cost["experts"] * found.in_flight["experts"]
        + waiting["experts"] * found.awaiting["experts"]
    ) == max(
        cost["dense"] * weigh(each.in_flight, dense) + cost["experts"] * weigh(each.in_flight, experts)
        + waiting["experts"] * weigh(each.awaiting, experts) for each in every
    )
    assert any(
        found.in_flight == {"dense": weigh(each.in_flight, dense), "experts": weigh(each.in_flight, experts)}
        and found.awaiting == {"dense": weigh(each.awaiting, dense), "experts": weigh(each.awaiting, experts)}
        for each in every
    )


def test_a_light_first_chunk_is_not_held_at_an_average_weight() -> None:
    """Rank 0 of 2, 2 chunks, groups of 2: of 5 chunks in flight 4 are the first, or 3 with 2 of the second."""
    assert [each.in_flight for each in heaviest("interleaved", 2, 8, 2, 2, 0)] == [(3, 2), (4, 1)]
    assert held("interleaved", 2, 8, 2, 2, 0, [1, 1]) == 5
    assert held("interleaved", 2, 8, 2, 2, 0, [1, 0]) == 4
    assert held("interleaved", 2, 8, 2, 2, 0, [0, 1]) == 2
    assert held("interleaved", 2, 8, 2, 2, 0, [1, 3]) == 3 * 1 + 2 * 3


def test_kinds_are_counted_at_one_moment() -> None:
    kinds = {"dense": [2, 0], "experts": [0, 2]}
    cheap = held_at_peak("interleaved", 2, 8, 2, 2, 0, kinds, {"dense": 5, "experts": 1})
    dear = held_at_peak("interleaved", 2, 8, 2, 2, 0, kinds, {"dense": 1, "experts": 5})
    assert cheap == ({"dense": 8, "experts": 2}, {"dense": 0, "experts": 0})
    assert dear == ({"dense": 6, "experts": 4}, {"dense": 0, "experts": 0})


def test_waiting_gradients_move_the_peak_of_zbv_into_its_last_phase() -> None:
    layers = {"layer": [1, 1]}
    light = held_at_peak("zbv", 4, 16, 2, 4, 3, layers, {"layer": 10}, {"layer": 1})
    heavy = held_at_peak("zbv", 4, 16, 2, 4, 3, layers, {"layer": 10}, {"layer": 5})
    assert light == ({"layer": 8}, {"layer": 1})
    assert heavy == ({"layer": 7}, {"layer": 7})


@pytest.mark.parametrize(
    "arguments",
    [("chimera", 2, 2, 1, 2, 0), ("1f1b", 2, 2, 2, 2, 0), ("zbv", 2, 2, 1, 2, 0), ("dualpipev", 2, 3, 2, 2, 0),
     ("1f1b", 2, 2, 1, 2, 2), ("1f1b", 2, 0, 1, 2, 0), ("interleaved", 2, 2, 2, 0, 0), ("gpipe", 2, 2, 0, 2, 0)],
)
def test_what_no_rank_can_run(arguments: tuple[str, int, int, int, int, int]) -> None:
    with pytest.raises(ValueError, match=r"schedule|rank|chunk|micro-batch"):
        actions(*arguments)
    with pytest.raises(ValueError, match=r"schedule|rank|chunk|micro-batch"):
        held(*arguments, [1] * arguments[3])


@pytest.mark.parametrize(
    ("kinds", "cost", "waiting"),
    [({"a": [1]}, {"a": 1}, None), ({"a": [1, -1]}, {"a": 1}, None), ({"a": [1, 1]}, {}, None),
     ({"a": [1, 1]}, {"a": 1}, {"b": 1}), ({"a": [1, 1]}, {"a": -1}, None), ({"a": [1, 1]}, {"a": 1}, {"a": -1})],
)
def test_wrong_weights(kinds: dict[str, list[int]], cost: dict[str, int], waiting: dict[str, int] | None) -> None:
    with pytest.raises(ValueError, match="kind"):
        held_at_peak("gpipe", 2, 2, 2, 2, 0, kinds, cost, waiting)


def groups_of_megatron() -> list[tuple[int, int, int, int]]:
    """p, V, micro-batches and group of every small interleaved pipeline that Megatron-Core runs."""
    return [
        (p, V, m, group) for p in range(2, 5) for V in range(1, 4) for group in range(p, p + 5)
        for m in range(group, 3 * group + 1) if not 0 < m % group < p
    ]


@pytest.mark.parametrize(("rank", "chunk", "name"), [("first", 0, "least_first"), ("last", -1, "least_last")])
def test_a_chunk_with_a_layer_less_weighs_as_the_closed_forms_say(rank: str, chunk: int, name: str) -> None:
    """Of the moments with most chunks in flight, that with fewest of the lighter chunk is the peak without a head."""
    form = SCHEDULES["interleaved"]
    for p, V, m, group in groups_of_megatron():
        known = {symbol(letter): Integer(value) for letter, value in zip(("p", "V", "m", "Gr"), (p, V, m, group),
                                                                         strict=True)}
        known[symbol("r")] = Integer(0 if rank == "first" else p - 1)
        every = list(moments(actions("interleaved", p, m, V, group, int(known[symbol("r")])), V))
        total, least = (int(getattr(form, kind).xreplace(known)) for kind in ("in_flight", name))
        for layers in (1, 2, 5):
            held_layers = max(layers * sum(each.in_flight) - each.in_flight[chunk] for each in every)
            assert held_layers == layers * total - least


@settings(max_examples=400 if FULL else 100)
@given(pipelines([name for name, item in SCHEDULES.items() if item.first_backward is not None]))
def test_chunks_in_flight_when_the_first_chunk_goes_backward(pipeline: Pipeline) -> None:
    """On the first rank, before each backward pass of its first chunk: the most of them, by the closed form."""
    schedule, p, m, V, group = pipeline
    ended = SCHEDULES[schedule].first_backward
    assert ended is not None
    known = {symbol(letter): Integer(value) for letter, value in
             {"p": p, "m": m, "V": V, "Gr": group, "r": 0, "G": group}.items()}
    done = actions(schedule, p, m, V, group, 0)
    before = [1, *(sum(each.in_flight) for each in moments(done, V))]
    most = max(count for count, action in zip(before, done, strict=False)
               if action.kind == BACKWARD and not action.chunk)
    assert most == min(ended.xreplace(known), SCHEDULES[schedule].in_flight.xreplace(known))
