"""Constants of each generation of GPUs, fitted to the shown half of what was measured on it; the other half judges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from shardmath.commands.calibrate.fitting import Fit, cross_validated, fit
from shardmath.commands.calibrate.runs import StepTimes, TimedRun
from shardmath.generated.definitions import DEFAULTS, EFFICIENCIES
from shardmath.machines import Cluster
from validation.timed.cases import fujii2024, hagemann2023
from validation.timed.metrics import Numbers
from validation.timed.public import Public, is_shown, public_runs, runs_beside
from validation.timed.simumax import simumax_runs

#: The constants of a generation that are fitted; lengths of attention and networks are facts of the catalogue.
FITTED = ("matmul_per_mille", "attention_per_mille", "hbm_per_mille", "node_per_mille", "network_per_mille",
          "kernel_ns")


@dataclass(frozen=True)
class Run:
    """A measured run with its cluster; ``shown``: constants may be fitted to it."""

    name: str
    group: str
    shown: bool
    cluster: Cluster
    run: TimedRun


@dataclass(frozen=True, eq=False)
class Runs:
    """All runs on GPUs of a generation; ``parts`` predict those of one cluster each, by their places."""

    generation: str
    items: tuple[Run, ...]
    parts: tuple[tuple[NDArray[np.int64], StepTimes], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the runs."""
        return tuple(item.name for item in self.items)

    @property
    def groups(self) -> tuple[str, ...]:
        """The group that each run is left out with."""
        return tuple(item.group for item in self.items)

    @property
    def shown(self) -> NDArray[np.bool_]:
        """True for runs that constants may be fitted to."""
        return np.array([item.shown for item in self.items])

    @property
    def measured(self) -> Numbers:
        """Measured seconds of a step."""
        return np.array([item.run.seconds for item in self.items])

    def __call__(self, changed: Mapping[str, float]) -> Numbers:
        """Return the seconds of every run, in their order."""
        seconds = np.empty(len(self.items))
        for places, predicted in self.parts:
            seconds[places] = predicted(changed)
        return seconds

    def usual(self) -> dict[str, int]:
        """Where a fit starts and is pulled to: the same for all generations."""
        return {name: DEFAULTS[name] for name in FITTED}


@cache
def generations() -> tuple[Runs, ...]:
    """Return the runs of each generation."""
    by_generation: dict[str, list[Run]] = {}
    for item in _all():
        by_generation.setdefault(item.cluster.gpu.generation, []).append(item)
    return tuple(_gathered(name, by_generation[name]) for name in EFFICIENCIES if name in by_generation)


@cache
def fitted(runs: Runs) -> Fit:
    """Constants fitted to the shown runs of a generation."""
    return fit(runs, runs.measured, runs.usual(), runs.shown)


@cache
def left_out(runs: Runs) -> Numbers:
    """Predicted over measured time less 1 of every run, with constants fitted to all groups but its own."""
    seconds, _ = cross_validated(runs, runs.measured, runs.groups, runs.usual())
    return np.asarray(seconds / runs.measured - 1)


def band(runs: Runs) -> int:
    """Per mille of the measured time that nine of ten predictions are within, each run's group left out of the fit."""
    return nine_of_ten(left_out(runs))


def nine_of_ten(shares: Numbers) -> int:
    """Per mille that nine of ten errors are within, which are shares of the measured time."""
    return int(np.ceil(1000 * np.percentile(np.abs(shares), 90)))


def _all() -> list[Run]:
    tables = [
        Run(f"{table.name}/{place}", f"{table.name}, {run.group}", is_shown(f"{table.name}/{place}"), table.cluster,
             run)
        for table in (fujii2024(), hagemann2023(balanced=False)) for place, run in enumerate(table.runs)
    ]
    return tables + [_named(item) for item in (*public_runs(), *simumax_runs()) if item.run and not item.has_experts]


@cache
def with_experts() -> tuple[Runs, ...]:
    """Return the public runs of models with experts, by generation; constants are fitted to none of them."""
    return _by_generation([item for item in public_runs() if item.has_experts])


@cache
def beside() -> tuple[Runs, ...]:
    """Return further runs of models with experts, by generation."""
    return _by_generation(runs_beside())


def _by_generation(items: Sequence[Public]) -> tuple[Runs, ...]:
    by_generation: dict[str, list[Run]] = {}
    for item in map(_named, items):
        by_generation.setdefault(item.cluster.gpu.generation, []).append(item)
    return tuple(_gathered(name, by_generation[name]) for name in EFFICIENCIES if name in by_generation)


def _named(item: Public) -> Run:
    assert item.run is not None
    assert item.cluster is not None
    group = f"{item.id.partition('/')[0]}, {item.run.job.model.name}, {item.gpu}"
    return Run(item.id, group, item.shown, item.cluster, item.run)


def _gathered(generation: str, items: Sequence[Run]) -> Runs:
    clusters: dict[str, list[int]] = {}
    for place, item in enumerate(items):
        clusters.setdefault(item.cluster.name, []).append(place)
    parts = tuple(
        (np.array(places), StepTimes([items[place].run for place in places], items[places[0]].cluster, FITTED))
        for places in clusters.values()
    )
    return Runs(generation, tuple(items), parts)
