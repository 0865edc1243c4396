"""Goals of predicted step times, and what was reached."""

from __future__ import annotations

from collections.abc import Sequence

from validation.measured.metrics import Target
from validation.timed.metrics import spread
from validation.timed.results import CALIBRATED, RULE, TIES, USUAL, Result

#: Tables of layouts that were run with care, and the one of duplicates that differ by a factor of 1.7.
FIRM, LOOSE = ("fujii2024", "hagemann2023"), ("nanotron",)


def targets(results: Sequence[Result]) -> tuple[Target, ...]:
    """Return all targets of step time."""
    firm = [item for item in results if item.table.name in FIRM]
    loose = [item for item in results if item.table.name in LOOSE]
    return (
        *(target for item in firm for target in _firm(item)),
        *(target for item in loose for target in _loose(item)),
    )


def _firm(outcome: Result) -> tuple[Target, ...]:
    name, calibrated = outcome.table.title, outcome.rankings[CALIBRATED]
    mean, high, _ = spread(list(calibrated.regret.values()))
    rule = spread(list(outcome.rankings[RULE].regret.values()))[0]
    first = spread(list(outcome.rankings[USUAL].regret.values()))[0]
    return (
        _most(f"{name}: mean regret, calibrated on other groups", 0.02, mean),
        _most(f"{name}: 90th percentile of it", 0.05, high),
        Target(f"{name}: mean regret below the rule's", f"below {rule:.2%}", f"{mean:.2%}", mean < rule),
        _most(f"{name}: mean regret, uncalibrated", 0.02, first),
        _most(f"{name}: the same, ties by the rule", 0.005, spread(list(outcome.rankings[TIES].regret.values()))[0]),
        _least(f"{name}: pairs ordered rightly", 0.94, calibrated.ordered),
        _most(f"{name}: median error of a step's time", 0.04, calibrated.error),
        _most(f"{name}: 90th percentile of that error", 0.11, calibrated.high),
    )


def _loose(outcome: Result) -> tuple[Target, ...]:
    name, calibrated = outcome.table.title, outcome.rankings[CALIBRATED]
    return (
        _most(f"{name}: median regret", 0.06, spread(list(calibrated.regret.values()))[2]),
        _most(f"{name}: median regret of the best of three", 0.01, spread(list(calibrated.best_of_few.values()))[2]),
        _least(f"{name}: pairs ordered rightly", 0.84, calibrated.ordered),
        _most(f"{name}: median error of a step's time", 0.15, calibrated.error),
    )


def _most(words: str, asked: float, reached: float) -> Target:
    return Target(words, f"at most {100 * asked:g}%", f"{reached:.2%}", reached <= asked)


def _least(words: str, asked: float, reached: float) -> Target:
    return Target(words, f"at least {asked:.0%}", f"{reached:.1%}", reached >= asked)
