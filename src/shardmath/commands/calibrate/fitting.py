"""Fit efficiencies of a machine to measured steps: few parameters, each within what is physical.

The fit minimises the logarithm of predicted over measured time. Errors beyond a twentieth count by their size and
no longer by its square, so that a run that stalled does not bend the rest. A weak pull holds every parameter at what is
usual for the machine, so that one that the runs say nothing about stays there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardmath.commands.calibrate.runs import TimedRun
from shardmath.errors import InputError
from shardmath.machines import Cluster

#: Seconds of some runs as a function of parameters of the machine, such as ``StepTimes``.
Predicted = Callable[[Mapping[str, float]], NDArray[np.float64]]

#: Fitted parameters with their ranges: shares of peaks in per mille, and nanoseconds. No share is above its peak.
RANGES: Mapping[str, tuple[int, int]] = {
    "matmul_per_mille": (300, 1000),
    "attention_per_mille": (100, 1000),
    "hbm_per_mille": (200, 1000),
    "node_per_mille": (50, 1000),
    "network_per_mille": (20, 1000),
    "launch_ns": (1_000, 100_000),
    "kernel_ns": (100, 100_000),
    "network_latency_ns": (1_000, 1_000_000),
}
#: Fitted only where it is asked for: nobody has explained it.
STALL, STALL_START = "stage_stall_ns", 14_000
#: Fitted only to runs on several sizes of a cluster: with one or two, the share of the network says all of it.
CONTENTION, CONTENTION_START, SIZES = "network_contention_per_mille", 500, 3
FURTHER: Mapping[str, tuple[int, int]] = {STALL: (1_000, 10_000_000), CONTENTION: (1, 10_000)}
#: Errors up to this size count by their square, beyond it by their size.
ROBUST = 0.05
#: How far a parameter may go, as a logarithm, for the price of an error of ROBUST in all runs.
PULL = 1.5


@dataclass(frozen=True)
class Fit:
    """Fitted parameters by name, and the values that they started from and were pulled to."""

    parameters: Mapping[str, int]
    usual: Mapping[str, int]


#: All parameters that can be fitted.
FITTED = (*RANGES, *FURTHER)


def usual(runs: Sequence[TimedRun], cluster: Cluster, stall: bool = False) -> dict[str, int]:
    """Where a fit starts: what the cluster says of each fitted parameter; of its network, if it has one.

    Contention is among them where the runs have three numbers of nodes or more, above one.
    """
    values = runs[0].values(cluster)
    start = {name: values[name] for name in RANGES if cluster.network or not name.startswith("network")}
    sizes = {nodes for run in runs if (nodes := -(-run.job.values["num_gpus"] // cluster.node_size)) > 1}
    if cluster.network and len(sizes) >= SIZES:
        start[CONTENTION] = values[CONTENTION] or CONTENTION_START
    return {**start, STALL: values[STALL] or STALL_START} if stall else start


def solver() -> Any:
    """Return the optimiser. Raises InputError where SciPy is not installed."""
    try:
        from scipy.optimize import least_squares
    except ImportError:
        raise InputError("calibrate", "runs", "needs SciPy: pip install 'shardmath[calibrate]'") from None
    return least_squares


def fit(predicted: Predicted, measured: NDArray[np.float64], start: Mapping[str, int],
        chosen: NDArray[np.bool_] | None = None) -> Fit:
    """Fit the parameters that ``start`` has to the runs that are ``chosen``, or to all.

    ``measured`` are seconds of every run of ``predicted``. Raises InputError where SciPy is not installed.
    """
    least_squares = solver()
    rows = np.ones(len(measured), dtype=bool) if chosen is None else chosen
    names = list(start)
    center = np.log([start[name] for name in names])
    lowest, highest = np.log([_range(name) for name in names]).T

    def residuals(place: NDArray[np.float64]) -> NDArray[np.float64]:
        seconds = predicted(dict(zip(names, np.exp(place), strict=True)))
        errors = np.log(seconds[rows] / measured[rows]) / ROBUST
        robust = np.sign(errors) * np.sqrt(2 * (np.sqrt(1 + errors**2) - 1))
        return np.concatenate([robust / np.sqrt(rows.sum()), (place - center) / PULL])

    solution = least_squares(residuals, np.clip(center, lowest, highest), bounds=(lowest, highest))
    parameters = {name: round(float(value)) for name, value in zip(names, np.exp(solution.x), strict=True)}
    return Fit(parameters, dict(start))


def cross_validated(
    predicted: Predicted, measured: NDArray[np.float64], groups: Sequence[str], start: Mapping[str, int]
) -> tuple[NDArray[np.float64], dict[str, Fit]]:
    """Return the seconds of every run, predicted with parameters fitted to all other groups; and the fits.

    With one group there is nothing to fit to: it is predicted with ``start``.
    """
    seconds, fits = np.empty(len(measured)), {}
    labels = np.array(groups)
    for group in dict.fromkeys(groups):
        own = labels == group
        fits[group] = Fit(dict(start), dict(start)) if own.all() else fit(predicted, measured, start, ~own)
        seconds[own] = predicted(fits[group].parameters)[own]
    return seconds, fits


def _range(name: str) -> tuple[int, int]:
    return FURTHER[name] if name in FURTHER else RANGES[name]
