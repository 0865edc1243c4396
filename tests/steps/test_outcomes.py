"""The constants of the probability of running out: fitted to runs drawn with known ones, and how they are judged."""

from __future__ import annotations

from random import Random

import pytest

from shardmath.symbolic.run_out import OFFERED, SCALE, STEEPNESS
from validation.measured.outcomes import Fitted, Outcome, brier, chances, fitted
from validation.measured.reliability import between, by_twins, classes, targets_of, twins

GIB = 2**30


def drawn(constants: Fitted, count: int, table: str = "hagemann") -> list[Outcome]:
    """Runs on 80 GiB whose unpredicted factor is Weibull-distributed."""
    draw, offered = Random(24), float(OFFERED) * 80 * GIB
    runs = []
    for _ in range(count):
        process = draw.randint(20 * GIB, 79 * GIB)
        factor = draw.weibullvariate(100 / constants.scale, constants.steepness)
        runs.append(Outcome(table, process - GIB, process, 80 * GIB, factor * process > offered))
    return runs


def test_known_constants_are_found_again() -> None:
    asked = Fitted(80, 8, 0)
    refit = fitted(drawn(asked, 4000))
    assert abs(refit.scale - asked.scale) <= 2
    assert abs(refit.steepness - asked.steepness) <= 1


def test_other_crashes_are_told_from_lack_of_memory() -> None:
    runs, draw = drawn(Fitted(80, 8, 0), 4000, "nanotron"), Random(7)
    crashed = [Outcome(run.table, run.allocated, run.process, run.memory, run.ran_out or draw.random() < 0.15)
               for run in runs]
    refit = fitted(crashed)
    assert abs(refit.background - 15) <= 3
    assert abs(refit.scale - 80) <= 2


def test_probabilities_are_those_of_the_ledger_with_its_constants() -> None:
    constants = Fitted(int(100 * SCALE), STEEPNESS, 0)
    runs = drawn(constants, 100)
    assert chances(runs, constants) == pytest.approx([run.probability for run in runs], rel=1e-12)


def test_a_brier_score_is_a_mean_of_squares() -> None:
    good, bad = Outcome("a", 1, 1, 80, False), Outcome("a", 1, 1, 80, True)
    assert brier([0.25, 0.5], [good, bad]) == pytest.approx((0.0625 + 0.25) / 2)
    with pytest.raises(ValueError, match="no runs"):
        brier([], [])


def test_classes_hold_every_run_once() -> None:
    runs = [*drawn(Fitted(80, 5, 0), 300), Outcome("hagemann", 81 * GIB, 82 * GIB, 80 * GIB, True)]
    lines = [line.split(" | ") for line in classes(runs).splitlines()[2:]]
    assert sum(int(line[1]) for line in lines) == len(runs)
    assert lines[-1] == ["| 1", "1", "100.0%", "1", "100.0% |"]


def test_a_failed_run_that_is_said_to_fit_misses_the_target() -> None:
    trained = Outcome("hagemann", 30 * GIB, 32 * GIB, 80 * GIB, False)
    failed = Outcome("hagemann", 30 * GIB, 32 * GIB, 80 * GIB, True)
    assert [item.met for item in targets_of([trained])] == [True, True]
    assert [item.met for item in targets_of([trained, failed])] == [False, True]


def test_runs_of_as_many_bytes_that_trained_and_failed_stand_beside_each_other() -> None:
    trained, failed = (Outcome("hagemann", 40 * GIB, 41 * GIB, 80 * GIB, ran_out, name=name)
                       for ran_out, name in ((False, "line 3"), (True, "line 7")))
    others = [Outcome("hagemann", 40 * GIB + 1, 41 * GIB, 80 * GIB, True, name="line 8"),
              Outcome("fujii2024", 40 * GIB, 41 * GIB, 40 * GIB, True, name="of another table"),
              Outcome("nanotron", 40 * GIB, 41 * GIB, 80 * GIB, True, name="of no target")]
    assert twins([trained, failed, *others]) == [(failed, [trained])]
    assert by_twins([trained, failed, *others]).splitlines()[2:] == [
        "| hagemann | line 7 | line 3 | 42,949,672,960 | 51.2% |"]


@pytest.mark.parametrize(("failed_gib", "words"), [(30, "no limit meets both targets"), (70, "meets both targets: 3")])
def test_a_limit_is_refuted_by_a_failed_run_below_trained_ones_alone(failed_gib: int, words: str) -> None:
    runs = [Outcome("hagemann", size * GIB, size * GIB, 80 * GIB, False) for size in (20, 40, 60)]
    assert words in between([*runs, Outcome("hagemann", failed_gib * GIB, failed_gib * GIB, 80 * GIB, True, name="f")])
