"""Predicted step times of every table, uncalibrated and calibrated on other groups, beside the baselines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from shardmath.commands.calibrate.fitting import FITTED, Fit, cross_validated, fit, usual
from shardmath.commands.calibrate.runs import StepTimes
from validation.timed.baselines import TEXTBOOK, at_random, by_rule, by_ties
from validation.timed.cases import Table
from validation.timed.metrics import Numbers, Ranking

#: Ways to choose a layout, in the order of the page.
USUAL, CALIBRATED, RANDOM, CONSTANTS, RULE, TIES = (
    "uncalibrated", "calibrated on other groups", "random", "textbook constants", "rule", "ties by the rule",
)
#: Those that say a time, and not an order alone.
TIMES = (USUAL, CALIBRATED, CONSTANTS)


@dataclass(frozen=True, eq=False)
class Result:
    """Results of one table. ``fits`` are those of each group from all others, ``fit`` is that of all runs."""

    table: Table
    rankings: Mapping[str, Ranking]
    fit: Fit
    fits: Mapping[str, Fit]


@cache
def result(table: Table, without: str = "") -> Result:
    """Predict and judge a table; seconds of the five ways are those of one sequence.

    The constant ``without`` is left at its default, where the others are fitted.
    """
    groups = tuple(run.group for run in table.runs)
    measured = np.array([run.seconds for run in table.runs])
    predicted = StepTimes(table.runs, table.cluster, {*FITTED, *TEXTBOOK})
    start = {name: value for name, value in usual(table.runs, table.cluster, table.stalls).items() if name != without}
    calibrated, fits = cross_validated(predicted, measured, groups, start)
    seconds = {
        USUAL: predicted({}), CALIBRATED: calibrated, RANDOM: at_random(table), CONSTANTS: predicted(TEXTBOOK),
        RULE: by_rule(table),
    }
    rankings = {name: ranked(table, numbers, name in TIMES) for name, numbers in seconds.items()}
    rankings[TIES] = tied(table, rankings[USUAL])
    return Result(table, rankings, fit(predicted, measured, start), fits)


def tied(table: Table, ranking: Ranking) -> Ranking:
    """Return a ranking in which of equally fast runs the rule chooses."""
    return Ranking(by_ties(table, ranking.predicted), ranking.measured, ranking.groups)


def ranked(table: Table, numbers: Numbers, times: bool = True) -> Ranking:
    """Predicted seconds of every step beside the measured ones, both for one sequence.

    ``numbers`` are places in an order where they are no ``times``.
    """
    batches = np.array([run.job.values["global_batch_size"] for run in table.runs])
    measured = np.array([run.seconds for run in table.runs])
    predicted = numbers / batches if times else numbers
    return Ranking(predicted, measured / batches, tuple(run.group for run in table.runs))
