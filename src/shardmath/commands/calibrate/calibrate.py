"""Calibrate a cluster to runs on it: what was fitted, how well it predicts runs it has not seen, the new cluster."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from shardmath.commands.calibrate.files import read_runs
from shardmath.commands.calibrate.fitting import FITTED, cross_validated, fit, solver, usual
from shardmath.commands.calibrate.runs import StepTimes
from shardmath.input.arguments import typed
from shardmath.machines import Cluster
from shardmath.machines.cluster import OTHERS
from shardmath.machines.files import plain


@dataclass(frozen=True)
class Judged:
    """Median error of some runs, as a share of the measured time: with usual constants, and with fitted ones.

    The fitted ones are those of the runs of all other groups. Signed errors are predicted minus measured.
    """

    group: str
    runs: int
    before: float
    before_signed: float
    after: float
    after_signed: float


@dataclass(frozen=True)
class Calibration:
    """Fitted parameters of a cluster beside the usual ones, and how well they predict by group and in all.

    ``one_by_one``: the runs were one group, so that each was left out by itself.
    """

    cluster: Cluster
    usual: Mapping[str, int]
    fitted: Mapping[str, int]
    groups: tuple[Judged, ...]
    all: Judged
    one_by_one: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "cluster": plain(self.cluster), "usual": dict(self.usual), "fitted": dict(self.fitted),
            "groups": [asdict(group) for group in self.groups], "all": asdict(self.all), "one_by_one": self.one_by_one,
        }


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
    """The cluster with fitted parameters; latency belongs to its network, which then is one of its own."""
    own = {name: value for name, value in fitted.items() if name in OTHERS}
    network = cluster.network
    if network is not None and "network_latency_ns" in fitted:
        changed = {"name": f"{network.name}, calibrated", "latency_ns": fitted["network_latency_ns"]}
        network = network.model_copy(update=changed)
    return cluster.model_copy(update={
        "name": f"{cluster.name}, calibrated", "network": network, "parameters": {**cluster.parameters, **own},
    })
