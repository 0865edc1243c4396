"""Calibrate a cluster to runs on it: what was fitted, how well it predicts runs it has not seen, the new cluster."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import PlainSerializer

from shardmath.answers import Answer
from shardmath.commands.calibrate.files import read_runs
from shardmath.commands.calibrate.fitting import FITTED, cross_validated, fit, solver, usual
from shardmath.commands.calibrate.runs import StepTimes
from shardmath.input.arguments import typed
from shardmath.machines import Cluster
from shardmath.machines.cluster import OTHERS
from shardmath.machines.files import plain


@dataclass(frozen=True)
class Judged(Answer):
    """Median errors of some runs as shares of the measured time, with constants fitted to all other groups."""

    group: str
    """Name of the group."""
    runs: int
    """Runs of the group."""
    before: float
    """Median error with the usual constants."""
    before_signed: float
    """The same with its sign: predicted minus measured."""
    after: float
    """Median error with fitted constants."""
    after_signed: float
    """The same with its sign."""


@dataclass(frozen=True)
class Calibration(Answer):
    """Efficiencies of a cluster, fitted to runs on it."""

    cluster: Annotated[Cluster, PlainSerializer(plain, return_type=dict[str, Any])]
    """The cluster with the fitted constants, as a cluster file has it."""
    usual: Mapping[str, int]
    """Constants before."""
    fitted: Mapping[str, int]
    """Constants after."""
    groups: tuple[Judged, ...]
    """Median errors of runs by group."""
    all: Judged
    """Median errors of all runs."""
    one_by_one: bool
    """True if the runs are one group, so that each was left out by itself."""


@typed
def calibrate(
    path: str | os.PathLike[str], cluster: Cluster, *, implementation: str | None = None,
    kernels: Mapping[str, str] | None = None, stage_stall: bool = False,
) -> Calibration:
    """Fit the efficiencies and latencies of ``cluster`` to the runs in a CSV file.

    ``stage_stall`` fits ``stage_stall_ns`` too, which waits for an explanation. See ``read_runs`` for the file. Needs
    SciPy. Raises InputError for everything that is wrong in the file, and where a figure of the cluster is not known.
    """
    solver()  # before anything that takes long
    runs = read_runs(path, cluster, implementation, kernels)
    measured = np.array([run.seconds for run in runs])
    start = usual(runs, cluster, stage_stall)
    predicted = StepTimes(runs, cluster, FITTED)
    groups = [run.group for run in runs]
    one_by_one = len(set(groups)) == 1
    left_out = [str(place) for place in range(len(runs))] if one_by_one else groups
    before = predicted({}) / measured - 1
    after = cross_validated(predicted, measured, left_out, start)[0] / measured - 1
    labels = np.array(groups)

    def judged(name: str, chosen: Any) -> Judged:
        sizes = [float(np.median(kind(errors[chosen]))) for errors in (before, after) for kind in (np.abs, np.positive)]
        return Judged(name, int(chosen.sum()), *sizes)

    fitted = fit(predicted, measured, start).parameters
    return Calibration(
        calibrated(cluster, fitted), start, fitted,
        tuple(judged(group, labels == group) for group in dict.fromkeys(groups)),
        judged("all", np.ones(len(runs), dtype=bool)), one_by_one,
    )


def calibrated(cluster: Cluster, fitted: Mapping[str, int]) -> Cluster:
    """Return the cluster with fitted parameters; latency belongs to its network, which then is one of its own."""
    own = {name: value for name, value in fitted.items() if name in OTHERS}
    network = cluster.network
    if network is not None and "network_latency_ns" in fitted:
        changed = {"name": f"{network.name}, calibrated", "latency_ns": fitted["network_latency_ns"]}
        network = network.model_copy(update=changed)
    return cluster.model_copy(update={
        "name": f"{cluster.name}, calibrated", "network": network, "parameters": {**cluster.parameters, **own},
    })
