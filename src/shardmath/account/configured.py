"""One configuration as ``explain`` takes it: the job, the cluster that it runs on, and what is said of the machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from inspect import getdoc, signature
from os import PathLike
from typing import Any, ParamSpec, TypeVar
from warnings import catch_warnings, simplefilter

from shardmath.account.anchor import Anchor, anchored
from shardmath.account.time import StepTime, as_cluster, machine_values, on_nodes, step_time
from shardmath.configuration.job import Job, job
from shardmath.configuration.nearest import nearest_legal
from shardmath.configuration.settings import as_model
from shardmath.errors import InputError
from shardmath.generated.definitions import DEFAULTS, PARAMETERS
from shardmath.input.arguments import typed
from shardmath.input.parameters import MACHINE, checked
from shardmath.machines import Cluster
from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Configuration:
    """A checked job on its cluster.

    ``machine`` has the parameters of the machine that were given by name and win over those of the cluster;
    ``anchor`` is the measured run that fixed the constants that no formula knows, if any did.
    """

    job: Job
    cluster: Cluster
    machine: Mapping[str, int]
    anchor: Anchor | None = None

    def machine_values(self) -> dict[str, int]:
        """All parameters of the machine by name. Raises InputError where a figure is not known."""
        found = machine_values(self.job.evaluator, self.cluster, self.job.values["num_gpus"])
        return {**found, **self.machine}

    def switches(self) -> dict[str, int]:
        """The switches of the machine by name, which are known where its speeds are not."""
        usual = {**DEFAULTS, **self.job.evaluator.defaults, **self.cluster.parameters, **self.machine}
        return {name: usual[name] for name in MACHINE if PARAMETERS[name][3] == 1}

    def time(self) -> tuple[StepTime | None, str]:
        """The time of a step, or None and why it is not known."""
        try:
            return step_time(self.job.evaluator, {**self.job.values, **self.machine_values()}, self.job.by_rank), ""
        except InputError as error:
            return None, str(error)


def advised(function: Callable[Arguments, Answer]) -> Callable[Arguments, Answer]:
    """Let errors of a configuration name the nearest values with which it keeps every rule."""

    @wraps(function)
    def call(*arguments: Arguments.args, **options: Arguments.kwargs) -> Answer:
        try:
            return function(*arguments, **options)
        except InputError as error:
            blamed = error
        raise blamed.advised(lambda: _nearest(blamed, function, arguments, options))

    return call


def _nearest(
    error: InputError, function: Callable[..., object], arguments: Sequence[object], options: Mapping[str, Any],
) -> str | None:
    """The values that ``advised`` names."""
    named = {**dict(zip(signature(function).parameters, arguments, strict=False)), **options}
    if not {"model", "gpu"} <= named.keys():
        return error.nearest
    with catch_warnings():
        simplefilter("ignore")
        try:
            # Both are read once, and not for each attempt.
            known = {"model": as_model(named["model"]), "gpu": as_cluster(named["gpu"], named.get("network"))}
        except InputError:
            return error.nearest

    def refused(changes: Mapping[str, Any]) -> InputError | None:
        try:
            function(**{**named, **known, "network": None, **changes})
        except InputError as refusal:
            return refusal
        return None

    return nearest_legal(error, named, refused)


@advised
@typed
def configured(
    model: Model | str | PathLike[str],
    gpu: Gpu | Cluster | str | PathLike[str],
    *,
    network: str | None = None,
    seq_length: int | None = None,
    micro_batch_size: int = 1,
    global_batch_size: int | None = None,
    tensor_parallel: int = 1,
    context_parallel: int = 1,
    pipeline_parallel: int = 1,
    data_parallel: int | None = None,
    num_gpus: int | None = None,
    sequence_parallel: bool | None = None,
    recompute: str = "none",
    implementation: str | None = None,
    kernels: Mapping[str, str] | None = None,
    gradients: str | None = None,
    distributed_optimizer: bool | None = None,
    zero_stage: int | None = None,
    vocab_multiple: int | None = None,
    node_size: int | None = None,
    pipeline_layout: Sequence[int] | str | None = None,
    anchor: str | PathLike[str] | None = None,
    schedule: str | None = None,
    **others: int,
) -> Configuration:
    """The configuration that these arguments describe, with defaults put in.

    ``model`` is a name of the catalogue or the path of a Hugging Face ``config.json``, ``gpu`` a name of
    the catalogue, with ``network`` between its servers (by default that of the vendor's), or a cluster or its file.
    ``data_parallel`` follows from ``num_gpus`` (GPUs of the job) or is 1. Without a ``global_batch_size``
    (sequences) there are just enough micro-batches to fill the pipeline. Sequences have 8192 tokens, or as many as a
    shorter table of learned positions has rows. The default ``implementation`` is ``megatron``, or the first that has
    the model's architecture. Sequence parallelism is on by default where the implementation has it and
    ``tensor_parallel`` is above 1.
    ``anchor`` is a file with a measured run, as in ``shardmath.account.anchor``, that fixes what no formula knows.
    ``zero_stage`` sets ``distributed_optimizer``, ``sharded_gradients`` and ``sharded_weights`` by number; with
    Hugging Face it means DeepSpeed. ``pipeline_layout`` gives the layers of every stage in the order of the model,
    ``schedule`` the order of forward and backward passes. ``others`` are further parameters by name, such as
    ``virtual_pipeline`` or ``expert_parallel``;
    ``shardmath.input.parameters`` lists them as OTHERS and, for time, MACHINE.

    Raises InputError for every value that is not legal.
    """
    machine = {name: checked(name, others.pop(name)) for name in MACHINE if name in others}
    cluster = on_nodes(as_cluster(gpu, network), node_size)
    fixed_by = None if anchor is None else anchored(anchor)
    found = job(
        model, cluster.gpu, seq_length=seq_length, micro_batch_size=micro_batch_size,
        global_batch_size=global_batch_size, tensor_parallel=tensor_parallel, context_parallel=context_parallel,
        pipeline_parallel=pipeline_parallel, data_parallel=data_parallel, num_gpus=num_gpus,
        sequence_parallel=sequence_parallel, recompute=recompute, implementation=implementation, kernels=kernels,
        gradients=gradients, distributed_optimizer=distributed_optimizer, vocab_multiple=vocab_multiple,
        node_size=cluster.node_size if node_size is None else node_size, pipeline_layout=pipeline_layout,
        schedule=schedule, zero_stage=zero_stage,
        others={**({} if fixed_by is None else fixed_by.constants), **cluster.memory_parameters, **others},
    )
    return Configuration(found, cluster, machine, fixed_by)


def asked_with(
    name: str, configuration: Callable[Arguments, Configuration], answer: Callable[[Configuration], Answer],
) -> Callable[Arguments, Answer]:
    """``answer`` as a function ``name`` of the arguments of ``configuration``, with their types and documentation."""

    @wraps(answer)
    def asked(*arguments: Arguments.args, **options: Arguments.kwargs) -> Answer:
        return answer(configuration(*arguments, **options))

    asked.__name__ = asked.__qualname__ = name
    asked.__doc__ = f"{getdoc(answer)}\n\n{_arguments(configuration)}"
    result = signature(answer).return_annotation
    asked.__signature__ = signature(configuration).replace(return_annotation=result)  # type: ignore[attr-defined]
    return asked


def _arguments(function: Callable[..., object]) -> str:
    """Return the docstring of a function without its first paragraph: the part on its arguments."""
    return (getdoc(function) or "").partition("\n\n")[2]
