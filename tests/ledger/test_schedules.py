"""The closed forms of pipeline schedules: against counted rows, against the walk, and when a program refuses them."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from functools import cache
from operator import floordiv
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.extent import FULL
from sympy import Expr, Gt, Integer, lambdify, simplify, true

from shardmath.generated.definitions import model_ranks, num_microbatches
from shardmath.symbolic.choices import BY_NAME
from shardmath.symbolic.functions import Iverson, Min
from shardmath.symbolic.parallel.schedules import GROUPS, SCHEDULES, Schedule
from shardmath.symbolic.parallel.walk import Moment, actions, moments
from shardmath.symbolic.parameters import symbol, symbols
from shardmath.symbolic.sources import BY_KEY

LETTERS = p, r, m, V, G, Gr = symbols("p r m V G Gr")

#: PyTorch's schedule classes, as the table names them.
CLASSES = {
    "1F1B": "1f1b", "Interleaved1F1B": "interleaved", "GPipe": "gpipe", "LoopedBFS": "gpipe",
    "InterleavedZeroBubble": "zero_bubble", "ZBVZeroBubble": "zbv", "DualPipeV": "dualpipev",
}
with (Path(__file__).parents[1] / "data" / "pipeline_in_flight.csv").open(newline="") as table:
    COUNTED = [{key: value if key == "schedule" else int(value) for key, value in row.items()}
               for row in csv.DictReader(table)]


@cache
def _compiled(expression: Expr) -> Callable[..., int]:
    functions = {"Iverson": int, "FloorDiv": floordiv, "Min": min, "Max": max}
    return lambdify(LETTERS, expression, modules=[functions])


def value(expression: Expr, values: Mapping[str, int]) -> int:
    """The value of a closed form; a letter without one is missed, not taken for 0."""
    found = _compiled(expression)(*(values.get(str(letter)) for letter in LETTERS))
    assert isinstance(found, int), found
    return found


def rounds(p: int, m: int) -> int:
    """PyTorch's micro-batches in a row."""
    return m // max(1, m // p)


@pytest.mark.parametrize("name", CLASSES)
def test_counted_rows(name: str) -> None:
    schedule = SCHEDULES[CLASSES[name]]
    in_flight = schedule.in_flight
    if name == "Interleaved1F1B":  # PyTorch's class interleaves one chunk too, which Megatron does not
        in_flight = in_flight.xreplace({Iverson(Gt(V, 1)): Integer(1)})
    rows = [row for row in COUNTED if row["schedule"] == name]
    assert len(rows) > 80
    wrong = []
    for row in rows:
        values = {"p": row["pp"], "m": row["m"], "V": row["v"], "r": row["rank"], "Gr": rounds(row["pp"], row["m"])}
        found = value(in_flight, values), value(schedule.awaiting_weight, values)
        if found != (row["peak_F_minus_BorW"], row["peak_I_minus_W"]):
            wrong.append((row, found))
    assert not wrong


def test_every_counted_row_is_tested() -> None:
    assert {row["schedule"] for row in COUNTED} == set(CLASSES)
    assert len(COUNTED) == 3390


@st.composite
def layouts(draw: st.DrawFn, schedule: Schedule) -> dict[str, int]:
    """Legal p, m, V, Gr and r: groups as PyTorch's or Megatron's, whose last may be smaller."""
    ranks = draw(st.integers(1 if schedule.name in {"1f1b", "gpipe"} else 2, 10))
    chunks = schedule.chunks or draw(st.integers(1, 6))
    least = 2 * ranks if schedule.name == "dualpipev" else 1
    batches = draw(st.integers(least, least + 40))
    group = rounds(ranks, batches)
    if schedule.name == "interleaved" and batches >= ranks and draw(st.booleans()):
        group = draw(st.sampled_from([g for g in range(ranks, batches + 1) if not 0 < batches % g < ranks]))
    elif schedule.grouped:
        batches = group * max(1, batches // ranks)
    return {"p": ranks, "m": batches, "V": chunks, "Gr": group, "r": draw(st.integers(0, ranks - 1))}


def walked(schedule: Schedule, at: Mapping[str, int]) -> list[Moment]:
    return list(moments(actions(schedule.name, at["p"], at["m"], at["V"], at["Gr"], at["r"]), at["V"]))


def largest(pairs: set[tuple[int, int]]) -> set[tuple[int, int]]:
    return {pair for pair in pairs if not any(
        other != pair and other[0] >= pair[0] and other[1] >= pair[1] for other in pairs
    )}


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=lambda schedule: schedule.name)
class TestAgainstTheWalk:
    @pytest.mark.slow
    @settings(max_examples=300 if FULL else 80)
    @given(st.data())
    def test_peaks(self, schedule: Schedule, data: st.DataObject) -> None:
        at = data.draw(layouts(schedule))
        pairs = {(sum(moment.in_flight), sum(moment.awaiting)) for moment in walked(schedule, at)}
        assert value(schedule.in_flight, at) == max(held for held, _ in pairs)
        assert value(schedule.awaiting_weight, at) == max(waiting for _, waiting in pairs)
        assert largest({(value(a, at), value(b, at)) for a, b in schedule.peaks}) == largest(pairs)

    @pytest.mark.slow
    @settings(max_examples=300 if FULL else 80)
    @given(st.data())
    def test_first_and_last_chunk_are_counted_at_the_peak(self, schedule: Schedule, data: st.DataObject) -> None:
        at = data.draw(layouts(schedule))
        found = walked(schedule, at)
        peaks = [each for each in found if sum(each.in_flight) == value(schedule.in_flight, at)]
        first = value(schedule.in_flight_first, at)
        most = max(each.in_flight[0] for each in found)
        assert most == first or (schedule.name == "zbv" and most == first + 1)  # without the head's chunk
        if at["r"] == value(schedule.last_rank, at):
            last, loss = value(schedule.in_flight_last, at), value(schedule.in_flight_loss, at)
            assert last == max(each.in_flight[-1] for each in found)
            assert loss == max(each.in_flight[-1] - each.awaiting[-1] for each in found)
            peaks = [each for each in peaks if each.in_flight[-1] == last == loss + each.awaiting[-1]]
        if at["r"] == value(schedule.first_rank, at):
            peaks = [each for each in peaks if each.in_flight[0] == first]
        assert peaks


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=lambda schedule: schedule.name)
def test_forms(schedule: Schedule) -> None:
    expressions = [schedule.in_flight, schedule.in_flight_first, schedule.in_flight_last, schedule.in_flight_loss,
                   schedule.awaiting_weight, *(part for pair in schedule.peaks for part in pair)]
    used = {letter for expression in expressions for letter in expression.free_symbols}
    assert used <= {p, r, m} | ({V} if schedule.chunks is None else set()) | ({Gr} if schedule.grouped else set())
    assert set(schedule.sources) <= BY_KEY.keys()
    assert schedule.first_rank == 0


def test_every_schedule_of_the_axis_has_a_closed_form() -> None:
    assert set(SCHEDULES) == set(BY_NAME["schedule"].options)
    assert all(name == schedule.name for name, schedule in SCHEDULES.items())


def test_without_a_pipeline_one_micro_batch_is_in_flight() -> None:
    one = {p: Integer(1), r: Integer(0)}
    assert SCHEDULES["1f1b"].in_flight.xreplace(one) == Min(1, m) == 1
    assert SCHEDULES["interleaved"].in_flight.xreplace({**one, V: Integer(1)}) == 1


def test_one_interleaved_chunk_is_plain_1f1b() -> None:
    plain, interleaved = SCHEDULES["1f1b"], SCHEDULES["interleaved"]
    assert interleaved.in_flight.xreplace({V: Integer(1)}) == plain.in_flight
    for ranks in range(1, 9):  # whatever the group, even where it is smaller than the pipeline
        for rank in range(ranks):
            at = {"p": ranks, "r": rank, "m": 30, "V": 1, "Gr": 1}
            assert value(interleaved.in_flight_first, at) == value(plain.in_flight_first, at) == ranks - rank


def test_published_factor_of_interleaving() -> None:
    """Korthikanti et al. 2022, section 4.2.3: the first rank stores 1 + (p - 1)/(p V) times its layers' share."""
    chunks = SCHEDULES["interleaved"].in_flight.args
    lead = next(part for part in chunks if part.has(r)).xreplace(
        {r: Integer(0), Gr: p, Iverson(Gt(V, 1)): Integer(1)}
    )
    assert simplify(lead / (V * p) - (1 + (p - 1) / (p * V))) == 0


#: Program, schedule, values, and the rules that do not hold.
REFUSALS = [
    ("megatron", "1f1b", {"p": 4, "m": 2}, []),
    ("megatron", "interleaved", {"p": 4, "m": 8, "V": 2, "Gr": 4}, []),
    ("megatron", "interleaved", {"p": 2, "m": 5, "V": 2, "Gr": 3}, []),
    ("megatron", "interleaved", {"p": 2, "m": 4, "V": 2, "Gr": 3}, ["last_group"]),
    ("megatron", "interleaved", {"p": 4, "m": 10, "V": 2, "Gr": 4}, ["last_group"]),
    ("megatron", "interleaved", {"p": 4, "m": 8, "V": 2, "Gr": 2}, ["group"]),
    ("megatron", "interleaved", {"p": 4, "m": 4, "V": 2, "Gr": 8}, ["group"]),
    ("megatron", "interleaved", {"p": 4, "m": 10, "V": 1, "Gr": 4}, []),
    ("megatron", "interleaved", {"p": 1, "m": 4, "V": 2, "Gr": 1}, ["schedule"]),
    ("nanotron", "1f1b", {"p": 4, "m": 3}, []),
    ("nanotron", "1f1b", {"p": 4, "m": 2}, ["microbatches"]),
    ("nanotron", "gpipe", {"p": 1, "m": 2, "V": 1}, []),
    ("nanotron", "gpipe", {"p": 4, "m": 2, "V": 2}, ["chunks"]),
    ("torchtitan", "1f1b", {"p": 4, "m": 3}, ["microbatches"]),
    ("torchtitan", "1f1b", {"p": 1, "m": 3}, []),
    ("torchtitan", "gpipe", {"p": 1, "m": 3, "V": 1}, ["schedule"]),
    ("torchtitan", "interleaved", {"p": 4, "m": 10, "V": 2}, []),
    ("torchtitan", "interleaved", {"p": 4, "m": 3, "V": 2}, []),
    ("torchtitan", "interleaved", {"p": 4, "m": 11, "V": 1}, ["chunks", "rounds"]),
    ("torchtitan", "zero_bubble", {"p": 1, "m": 4, "V": 2}, ["schedule"]),
    ("torchtitan", "zbv", {"p": 4, "m": 1}, []),
    ("torchtitan", "dualpipev", {"p": 4, "m": 8}, []),
    ("torchtitan", "dualpipev", {"p": 4, "m": 7}, ["microbatches"]),
]


@pytest.mark.parametrize(("program", "name", "values", "broken"), REFUSALS)
def test_rules(program: str, name: str, values: dict[str, int], broken: list[str]) -> None:
    numbers = {symbol(letter): Integer(number) for letter, number in values.items()}
    rules = SCHEDULES[name].rules_in(program)
    assert [rule.name for rule in rules if rule.condition.xreplace(numbers) != true] == broken


@pytest.mark.parametrize(
    ("program", "values", "group"),
    [("megatron", {"p": 4, "G": 0}, 4), ("megatron", {"p": 4, "G": 6}, 6), ("torchtitan", {"p": 4, "m": 8}, 4),
     ("torchtitan", {"p": 4, "m": 10}, 5), ("torchtitan", {"p": 4, "m": 3}, 3)],
)
def test_groups(program: str, values: dict[str, int], group: int) -> None:
    numbers = {symbol(letter): Integer(number) for letter, number in values.items()}
    assert GROUPS[program].xreplace(numbers) == group


def test_counts_of_a_layout_are_those_of_the_ledger() -> None:
    values = {"tensor_parallel": 4, "context_parallel": 2, "pipeline_parallel": 8, "data_parallel": 3,
              "micro_batch_size": 5, "global_batch_size": 60, "num_layers": 1}
    assert model_ranks(**values) == 64
    assert num_microbatches(**values) == 4
