"""The least memory with which steps replay: by hand, and as the file of the validation page has it."""

from __future__ import annotations

import pytest

from shardmath.allocator.settings import MIB, Settings
from shardmath.allocator.trace import Action, Event, replay
from validation.measured import least
from validation.measured.outcomes import FUJII


def trace(*steps: tuple[int, int]) -> list[Event]:
    """Allocate keys with sizes in MiB, and free those of size 0."""
    return [Event(Action.ALLOCATE, key, size * MIB) if size else Event(Action.FREE, key) for key, size in steps]


@pytest.mark.parametrize(("events", "allocated", "reserved", "needed"), [
    # A free segment goes back to the driver, so that only the larger block is needed.
    (trace((1, 300), (1, 0), (2, 400)), 400, 700, 400),
    # A segment of which a part is in use cannot go back: its free rest of 400 MiB does not serve 700.
    (trace((1, 1000), (1, 0), (2, 600), (3, 700)), 1300, 1700, 1700),
    (trace((1, 300), (2, 400)), 700, 700, 700),
])
def test_free_segments_do_not_count_and_free_parts_do(
    events: list[Event], allocated: int, reserved: int, needed: int,
) -> None:
    assert replay(events, Settings()).reserved_peak == reserved * MIB
    close = least._least(events, allocated * MIB, reserved * MIB)
    assert needed * MIB <= close <= needed * MIB + max(least.STEP, least.NEAR * close)
    assert replay(events, Settings(capacity_bytes=close)).failed_at is None


def test_sizes_of_the_file_are_in_order() -> None:
    known = least.stored()
    assert len({(run.table, run.run) for run in known}) == len(known)
    assert {table: sum(run.table == table for run in known) for table in (FUJII, least.HAGEMANN, least.RECIPES)} == {
        FUJII: 84, least.HAGEMANN: 225, least.RECIPES: 16}
    for run in known:
        assert 0 < run.allocated <= run.memory
        assert run.allocated < run.formula
        if run.least:
            assert run.allocated <= run.least <= run.reserved


def test_the_page_has_the_section() -> None:
    page = (least.FILE.parents[1] / "validation.md").read_text(encoding="utf-8")
    assert least.section() in page


@pytest.mark.slow
def test_the_file_is_fresh() -> None:
    """Every fortieth run, with the verdict on it that the outcomes of the page have."""
    stored = {(run.table, run.run): run for run in least.stored()}
    runs = {run[:2]: run for run in least._runs()}
    assert {*stored} <= {*runs}
    for place in [*stored][::40]:
        assert least.least_of(*runs[place]) == stored[place]
    left_out = [run for place, run in runs.items() if place not in stored]
    assert least.least_of(*left_out[0]) is None
