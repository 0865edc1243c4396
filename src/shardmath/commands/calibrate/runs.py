"""Measured steps, and what the generated evaluators say of all of them as machine parameters change."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardmath.account.time import machine_values
from shardmath.compiler.evaluators import Evaluator
from shardmath.configuration.job import Job, job
from shardmath.configuration.run import run_of
from shardmath.generated.definitions import PARAMETERS
from shardmath.machines import Cluster
from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model

STEP = ("step.time",)


@dataclass(frozen=True)
class TimedRun:
    """One run whose steps took ``seconds``. Runs of a ``group`` are left out together when a fit is judged.

    ``machine`` has parameters of the machine that this run has otherwise than its cluster, such as the peak of a
    slower kernel.
    """

    job: Job
    seconds: float
    group: str
    machine: Mapping[str, int] = field(default_factory=dict)

    def values(self, cluster: Cluster) -> dict[str, int]:
        """Return every parameter by name. Raises InputError where a figure of the cluster is not known."""
        machine = machine_values(self.job.evaluator, cluster, self.job.values["num_gpus"])
        own = {name: value for name, value in self.job.on_rank(0).items() if PARAMETERS[name][4] != "machine"}
        return {**machine, **own, **self.machine}


class StepTimes:
    """Predicted seconds of the steps of some runs on one cluster, as a function of parameters of the machine.

    ``changing`` are the parameters that the function gets. Runs with the same kernels are evaluated together, by one
    compiled evaluator.
    """

    def __init__(self, runs: Sequence[TimedRun], cluster: Cluster, changing: Collection[str]) -> None:
        self._count = len(runs)
        self._batches = []
        places: dict[str, list[int]] = {}
        for place, run in enumerate(runs):
            places.setdefault(_key(run.job.evaluator), []).append(place)
        for own in places.values():
            rows = [runs[place].values(cluster) for place in own]
            self._batches.append((own, _evaluate(runs[own[0]].job.evaluator, rows, changing)))

    def __call__(self, changed: Mapping[str, float]) -> NDArray[np.float64]:
        """Return the seconds of every run, in their order; parameters that are not in ``changed`` stay as they are."""
        seconds = np.empty(self._count)
        for places, evaluate in self._batches:
            seconds[places] = evaluate(changed)
        return seconds


def asked(model: Model | str | PathLike[str], gpu: Gpu | str, **arguments: Any) -> Job:
    """Get the job of a run as ``shardmath.explain`` takes it. Raises InputError for every value that is not legal."""
    return job(run_of(model, gpu, **arguments))


def _key(evaluator: Evaluator) -> str:
    return repr((evaluator.implementation, sorted(evaluator.choices.items())))


def _evaluate(evaluator: Evaluator, rows: Sequence[Mapping[str, int]], changing: Collection[str]) -> Any:
    """Return a function of changed parameters that gives the seconds of ``rows``."""
    differing = {name for name in rows[0] if len({row[name] for row in rows}) > 1}
    kernel = evaluator.kernel_for(STEP, sorted(differing | set(changing)))
    columns = {name: np.array([row[name] for row in rows], dtype=np.float64) for name in kernel.COLUMNS}
    scalars = [rows[0][name] for name in kernel.SCALARS]
    return partial(_run, kernel, scalars, columns, len(rows))


def _run(
    kernel: Any, scalars: Sequence[int], by_name: Mapping[str, NDArray[np.float64]], count: int,
    changed: Mapping[str, float],
) -> NDArray[np.float64]:
    columns = [np.full(count, float(changed[name])) if name in changed else by_name[name] for name in kernel.COLUMNS]
    rule, verdict = np.zeros(count, dtype=np.uint8), np.zeros(count, dtype=np.int8)
    out = np.zeros((1, count))
    kernel.evaluate(0, count, *scalars, *columns, rule, verdict, out)
    assert not rule.any(), "a job keeps every rule"
    seconds: NDArray[np.float64] = out[0]
    return seconds
