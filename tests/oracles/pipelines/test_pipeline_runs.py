"""PyTorch's pipeline schedules in real processes: saved bytes alive on every rank, against chunks in flight.

The bytes of one chunk are counted by the same process on the side; the ledger says how many are in flight.
"""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from random import Random

import pytest
from oracles.extent import FULL
from oracles.instruments.processes import on_ranks
from oracles.pipelines.pipeline_run import run_all
from sympy import Integer

from shardmath.symbolic.exact import number
from shardmath.symbolic.parallel.schedules import SCHEDULES
from shardmath.symbolic.parameters import symbol


def in_flight(schedule: str, p: int, r: int, m: int, V: int) -> int | None:
    """Chunks in flight on rank r, or None if the schedule cannot run like that in PyTorch."""
    found = SCHEDULES[schedule]
    known = {symbol(letter): Integer(value) for letter, value in {"p": p, "r": r, "m": m, "V": V}.items()}
    if not all(rule.condition.xreplace(known) for rule in found.rules_in("torchtitan")):
        return None
    if found.grouped:
        known[symbol("Gr")] = number(found.groups["torchtitan"], known)
    return int(number(found.in_flight, known))


def random_case(draw: Random, ranks: int, schedule: str) -> tuple[str, int, int, int]:
    """Schedule, micro-batches, chunks and layers per chunk."""
    chunks = SCHEDULES[schedule].chunks or (1 if schedule == "gpipe" else draw.choice((2, 3)))
    legal = [m for m in range(1, 4 * ranks + 1) if in_flight(schedule, ranks, 0, m, chunks) is not None]
    return schedule, draw.choice(legal), chunks, draw.randint(1, 3)


@pytest.mark.cases(6, 36)
@pytest.mark.parametrize("ranks", [2, 3, 4] if FULL else [2])
def test_saved_bytes_of_every_rank(draws: list[Random], ranks: int, tmp_path: Path) -> None:
    """As many cases of every schedule."""
    cases = [random_case(draw, ranks, schedule) for draw, schedule in zip(draws, cycle(SCHEDULES), strict=False)]
    assert {schedule for schedule, *_ in cases} == set(SCHEDULES)
    for rank, found in enumerate(on_ranks(run_all, ranks, tmp_path, cases)):
        for (schedule, m, chunks, layers), (chunk, peak) in zip(cases, found, strict=True):
            expected = in_flight(schedule, ranks, rank, m, chunks)
            assert expected is not None
            assert peak == chunk * expected, (schedule, ranks, rank, m, chunks, layers)
