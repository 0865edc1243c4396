"""One configuration as ``explain`` takes it: the job, the cluster that it runs on, and what is said of the machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from inspect import signature
from typing import Any, ParamSpec
from warnings import catch_warnings, simplefilter

from shardmath.account.anchor import Anchor, anchored
from shardmath.account.mixed import Mixed, Pipeline, StageOnGpu, mixed_job
from shardmath.account.placement import Placement, placed
from shardmath.account.time import StepTime, any_cluster, as_cluster, machine_values, on_nodes, step_time
from shardmath.configuration.defaults import impossible_overlaps
from shardmath.configuration.job import Job, job
from shardmath.configuration.nearest import nearest_legal
from shardmath.configuration.run import Run, run_of
from shardmath.configuration.settings import as_model
from shardmath.errors import InputError
from shardmath.generated.definitions import DEFAULTS, PARAMETERS
from shardmath.input.asking import Asking, asked_with
from shardmath.input.parameters import MACHINE, checked
from shardmath.machines import Cluster

Arguments = ParamSpec("Arguments")


@dataclass(frozen=True)
class Configuration:
    """A checked job on its cluster.

    ``machine`` has the parameters of the machine that were given by name and win over those of the cluster;
    ``anchor`` is the measured run that fixed the constants that no formula knows, if any did. ``mixed`` has the stages
    of a cluster with several kinds of GPUs.
    """

    job: Job
    cluster: Cluster
    machine: Mapping[str, int]
    anchor: Anchor | None = None
    mixed: Mixed | None = None

    def machine_values(self) -> dict[str, int]:
        """Return all parameters of the machine by name. Raises InputError where a figure is not known."""
        return self._placed[1]

    @property
    def placement(self) -> Placement | None:
        """Where nodes with measured links go; None without such links. Raises InputError as ``machine_values``."""
        return self._placed[0]

    @cached_property
    def _placed(self) -> tuple[Placement | None, dict[str, int]]:
        """Where nodes go, and all parameters of the machine by name; of several kinds of GPUs those of the first."""
        evaluator = self.job.evaluator
        if self.mixed is not None:
            pipeline, placement = self._pipeline
            return placement, dict(pipeline.stages[0])
        known = machine_values(evaluator, self.cluster, self.job.values["num_gpus"])
        values = {**known, **self.machine, **self.switches()}
        if evaluator.choices["links"] != "measured":
            return None, values
        placement, links = placed(evaluator, self.cluster, {**self.job.on_rank(0), **values})
        return placement, {**values, **links}

    @cached_property
    def _pipeline(self) -> tuple[Pipeline, Placement | None]:
        """All values of each stage on several kinds of GPUs, and where their nodes go."""
        assert self.mixed is not None
        return self.mixed.pipeline(self.job).placed()

    def switches(self) -> dict[str, int]:
        """Return the switches of the machine by name, which are known where its speeds are not."""
        chosen = {**self.cluster.parameters, **self.machine}
        usual = {**DEFAULTS, **self.job.evaluator.defaults, **chosen}
        usual |= impossible_overlaps(self.job.evaluator, usual, chosen, self.job.values)
        return {name: usual[name] for name in MACHINE if PARAMETERS[name][3] == 1}

    def stages(self, step: StepTime | None) -> tuple[StageOnGpu, ...]:
        """Return stages on several kinds of GPUs, with the time of a ``step``; none where all GPUs are alike."""
        if self.mixed is None:
            return ()
        return self.mixed.stages(self.job, step, None if step is None else self._pipeline[0])

    @property
    def error(self) -> float | None:
        """Share that nine of ten predicted steps of such jobs were within."""
        return self.cluster.error(bool(self.job.values["num_experts"]))

    def time(self) -> tuple[StepTime | None, str]:
        """Return the time of a step, or None and why it is not known.

        Raises InputError for a job that the measured links of the cluster cannot hold.
        """
        if self.cluster.links is not None and self.job.evaluator.is_timed:
            self.machine_values()
        try:
            if self.mixed is not None:
                return self._pipeline[0].time(), ""
            values = {**self.job.values, **self.machine_values()}
            return step_time(self.job.evaluator, values, self.job.by_rank, self.error), ""
        except InputError as error:
            return None, str(error)


def advised(function: Asking[Arguments, Configuration]) -> Asking[Arguments, Configuration]:
    """Let each InputError of a configuration name the nearest values with which it keeps every rule."""

    @wraps(function)
    def call(*arguments: Any, **options: Any) -> Configuration:
        try:
            return function(*arguments, **options)
        except InputError as error:
            blamed = error
        raise blamed.advised(lambda: _nearest(blamed, function, arguments, options))

    return call


def _nearest(
    error: InputError, function: Callable[..., object], arguments: Sequence[object], options: Mapping[str, Any],
) -> str | None:
    """Return the values that ``advised`` names."""
    named = {**dict(zip(signature(function).parameters, arguments, strict=False)), **options}
    if not {"model", "gpu"} <= named.keys():
        return error.nearest
    with catch_warnings():
        simplefilter("ignore")
        try:
            # Both are read once, and not for each attempt.
            known = {"model": as_model(named["model"]), "gpu": any_cluster(named["gpu"], named.get("network"))}
        except InputError:
            return error.nearest

    def refused(changes: Mapping[str, Any]) -> InputError | None:
        try:
            function(**{**named, **known, "network": None, **changes})
        except InputError as refusal:
            return refusal
        return None

    return nearest_legal(error, named, refused)


def _configuration(run: Run) -> Configuration:
    """Return the checked configuration of a run, with defaults put in."""
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
    return Configuration(job(asked), cluster, machine, anchor)


def configuration_of(run: Run) -> Configuration:
    """Return the checked configuration of a run, on one kind of GPU or on several.

    Raises InputError for every value that is not legal.
    """
    cluster = any_cluster(run.gpu, run.network)
    if not cluster.kinds:
        return _configuration(run)
    made, mixed = mixed_job(run, cluster)
    return Configuration(made, cluster, mixed.machine, None, mixed)


configured_on_any = advised(asked_with("configured", run_of, configuration_of))
configured = advised(asked_with("configured", run_of, _configuration))
