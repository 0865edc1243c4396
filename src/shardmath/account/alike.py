"""The machines of a job whose GPUs are all alike: parameters by name, nodes with measured links, the time of a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from shardmath.account.anchor import Anchor, anchored
from shardmath.account.placement import Placement, placed
from shardmath.account.stages import StageOnGpu
from shardmath.account.time import StepTime, as_cluster, machine_values, on_nodes, step_time
from shardmath.configuration.defaults import impossible_overlaps
from shardmath.configuration.job import Job, job
from shardmath.configuration.run import Run
from shardmath.errors import InputError
from shardmath.generated.definitions import DEFAULTS, PARAMETERS
from shardmath.input.parameters import MACHINE, checked
from shardmath.machines import Cluster


@dataclass(frozen=True)
class Alike:
    """A job on GPUs of one kind, and the parameters of the machine that it names itself, which win.

    ``anchor`` is the measured run that fixed the constants that no formula knows, if any did.
    """

    job: Job
    cluster: Cluster
    named: Mapping[str, int]
    anchor: Anchor | None = None

    @property
    def values(self) -> dict[str, int]:
        """All parameters of the machine by name. Raises InputError where a figure is not known."""
        return self._placed[1]

    @property
    def placement(self) -> Placement | None:
        """Where nodes with measured links go; None without such links. Raises InputError as ``values``."""
        return self._placed[0]

    @cached_property
    def _placed(self) -> tuple[Placement | None, dict[str, int]]:
        evaluator = self.job.evaluator
        known = machine_values(evaluator, self.cluster, self.job.values["num_gpus"])
        values = {**known, **self.named, **switches(self.job, self.cluster, self.named)}
        if evaluator.choices["links"] != "measured":
            return None, values
        placement, links = placed(evaluator, self.cluster, {**self.job.on_rank(0), **values})
        return placement, {**values, **links}

    def stages(self, step: StepTime | None) -> tuple[StageOnGpu, ...]:
        """Return no stages: their GPUs are all alike."""
        return ()

    def time(self) -> StepTime:
        """Return the time of a step. Raises InputError where a figure is not known."""
        error = self.cluster.error(bool(self.job.values["num_experts"]))
        return step_time(self.job.evaluator, {**self.job.values, **self.values}, self.job.by_rank, error)


def switches(asked: Job, cluster: Cluster, named: Mapping[str, int]) -> dict[str, int]:
    """Return the switches of a machine by name, which are known where its speeds are not."""
    chosen = {**cluster.parameters, **named}
    usual = {**DEFAULTS, **asked.evaluator.defaults, **chosen}
    usual |= impossible_overlaps(asked.evaluator, usual, chosen, asked.values)
    return {name: usual[name] for name in MACHINE if PARAMETERS[name][3] == 1}


def alike_job(run: Run) -> Alike:
    """Check a run on GPUs of one kind. Raises InputError for every value that is not legal."""
    machine = {name: checked(name, run.others[name]) for name in MACHINE if name in run.others}
    if (run.kernels or {}).get("links") == "measured" and as_cluster(run.gpu, run.network).links is None:
        raise InputError("links", "measured", "must not be given without measured links in a cluster file", "uniform")
    cluster = on_nodes(as_cluster(run.gpu, run.network), run.node_size)
    cluster.kernels(run.implementation or "", run.kernels, {})
    anchor = None if run.anchor is None else anchored(run.anchor)
    others = {**({} if anchor is None else anchor.constants), **cluster.memory_parameters,
              **{name: value for name, value in run.others.items() if name not in machine}}
    node_size = cluster.node_size if run.node_size is None else run.node_size
    kernels = run.kernels if cluster.links is None else {"links": "measured", **(run.kernels or {})}
    asked = replace(run, gpu=cluster, node_size=node_size, others=others, kernels=kernels)
    return Alike(job(asked), cluster, machine, anchor)
