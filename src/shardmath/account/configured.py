"""One configuration as ``explain`` takes it: the job, the cluster that it runs on, and what is said of the machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec
from warnings import catch_warnings, simplefilter

from shardmath.account.alike import alike_job, switches
from shardmath.account.anchor import Anchor
from shardmath.account.hardware import Hardware, hardware_of
from shardmath.account.placement import Placement
from shardmath.account.stages import StageOnGpu
from shardmath.account.time import StepTime
from shardmath.configuration.job import Job
from shardmath.configuration.nearest import as_it_was_asked, nearest_legal
from shardmath.configuration.run import Run, run_of
from shardmath.configuration.settings import as_model
from shardmath.errors import InputError
from shardmath.input.asking import Asking, asked_with
from shardmath.machines import Cluster
from shardmath.machines.files import any_cluster

Arguments = ParamSpec("Arguments")


@dataclass(frozen=True)
class Configuration:
    """A checked job on its machines."""

    hardware: Hardware

    @property
    def job(self) -> Job:
        """The job."""
        return self.hardware.job

    @property
    def cluster(self) -> Cluster:
        """The cluster that it runs on."""
        return self.hardware.cluster

    @property
    def anchor(self) -> Anchor | None:
        """The measured run that fixed the constants that no formula knows, if any did."""
        return self.hardware.anchor

    @property
    def placement(self) -> Placement | None:
        """Where nodes with measured links go; None without such links. Raises InputError as ``machine_values``."""
        return self.hardware.placement

    def machine_values(self) -> dict[str, int]:
        """Return all parameters of the machine by name. Raises InputError where a figure is not known."""
        return self.hardware.values

    def switches(self) -> dict[str, int]:
        """Return the switches of the machine by name, which are known where its speeds are not."""
        return switches(self.job, self.cluster, self.hardware.named)

    def stages(self, step: StepTime | None) -> tuple[StageOnGpu, ...]:
        """Return stages with the GPUs and the time of a ``step`` that each has; none where all GPUs are alike."""
        return self.hardware.stages(step)

    def time(self) -> tuple[StepTime | None, str]:
        """Return the time of a step, or None and why it is not known.

        Raises InputError for a job that the measured links of the cluster cannot hold.
        """
        if self.cluster.links is not None and self.job.evaluator.is_timed:
            self.machine_values()
        try:
            return self.hardware.time(), ""
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
        named = {**dict(zip(signature(function).parameters, arguments, strict=False)), **options}
        asked = as_it_was_asked(blamed, named)
        raise asked.advised(lambda: _nearest(asked, function, named))

    return call


def _nearest(error: InputError, function: Callable[..., object], named: Mapping[str, Any]) -> str | None:
    """Return the values that ``advised`` names."""
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


def configuration_of(run: Run) -> Configuration:
    """Return the checked configuration of a run. Raises InputError for every value that is not legal."""
    return Configuration(hardware_of(run))


def _configuration(run: Run) -> Configuration:
    return Configuration(alike_job(run))


configured_on_any = advised(asked_with("configured", run_of, configuration_of))
configured = advised(asked_with("configured", run_of, _configuration))
