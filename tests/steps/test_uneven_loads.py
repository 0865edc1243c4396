"""Replayed steps whose experts get other tokens in each layer, and the draws that docs/validation.md tells of."""

from __future__ import annotations

from typing import Any

import pytest

from shardmath.account.configured import configured
from shardmath.allocator.trace import Action, Event
from shardmath.compiler.evaluators import terms_at
from shardmath.steps.rows import Rows
from shardmath.steps.step import Steps, Turn
from validation.measured import uneven
from validation.measured.sets import swift_examples

pytestmark = pytest.mark.slow
LAYOUTS: tuple[dict[str, Any], ...] = (
    {"recompute": "none"}, {"recompute": "full"}, {"recompute": "full", "pipeline_parallel": 2},
    {"recompute": "none", "tensor_parallel": 2, "sequence_parallel": True},
)


class Loads:
    """Steps of the first rank with experts of other loads, in percent."""

    def __init__(self, layout: dict[str, Any]) -> None:
        self._job = configured("qwen3-30b-a3b", "h200", seq_length=1024, data_parallel=4, expert_parallel=4,
                               global_batch_size=8, **layout).job

    def rows(self, load: int) -> Rows:
        """Return the rows at a load."""
        values = {**self._job.on_rank(0), "expert_load_percent": load}
        return Rows.of(self._job.evaluator, values, terms_at(self._job.evaluator.terms, values))

    def steps(self, rows: Rows, **more: Any) -> Steps:
        """Return the steps of these rows."""
        values = self._job.values
        return Steps(rows, self._job.evaluator.choices["schedule"], values["pipeline_parallel"], **more)


def sizes(events: list[Event]) -> list[tuple[Action, int, int]]:
    """Return what a trace does, without the names of rows."""
    return [(event.action, event.key, event.size) for event in events]


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_layers_of_one_load_are_those_of_its_account(layout: dict[str, Any]) -> None:
    loads = Loads(layout)
    even, fuller = loads.rows(100), loads.rows(170)
    own = loads.steps(fuller)
    assert sizes(loads.steps(even, of_layer=lambda turn: fuller).run()) == sizes(own.run())
    assert sizes(loads.steps(even, of_layer=lambda turn: even).run()) == sizes(loads.steps(even).run())
    assert sizes(loads.steps(even).run()) != sizes(own.run())


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_layers_of_other_loads_free_what_they_make(layout: dict[str, Any]) -> None:
    """What lasts is as much as with even loads, and the peak lies between those of the least and the largest load."""
    loads = Loads(layout)
    each = [loads.rows(load) for load in (50, 100, 150, 300)]
    asked: list[Turn] = []

    def of_layer(turn: Turn) -> Rows:
        asked.append(turn)
        return each[hash(turn) % len(each)]

    mixed = loads.steps(each[1], of_layer=of_layer)
    mixed.run()
    least, even, *_, most = (loads.steps(rows) for rows in each)
    for steps in (least, even, most):
        steps.run()
    assert mixed.trace.now == even.trace.now
    assert least.trace.peak <= mixed.trace.peak <= most.trace.peak
    assert all(asked.count(turn) == 2 for turn in asked)


def test_stored_draws_are_those_of_today() -> None:
    case = next(case for case in swift_examples.read() if case.id == "qwen3-30b-a3b, TP 2, EP 8")
    for collectives in (uneven.CURRENT, uneven.OWN):
        fresh = [item for spread in uneven.SPREADS[:2] for item in uneven.replays_of(case, spread, collectives)]
        stored = [item for item in uneven.stored() if (item.run, item.collectives) == (case.id, collectives)]
        assert fresh == stored[:len(fresh)]
    assert [*dict.fromkeys(item.run for item in uneven.stored())] == [
        case.id for case in swift_examples.read() if uneven.is_replayed(case)]
