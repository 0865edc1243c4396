"""One sweep from the question to the answer: all spaces of a job, each swept by its nest, and the best of all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike

from shardmath.account.time import time_unknown
from shardmath.commands.sweep.answer import SweepResult, result_of
from shardmath.configuration.settings import as_model
from shardmath.errors import InputError
from shardmath.input.arguments import typed
from shardmath.machines import Cluster
from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model
from shardmath.search.answered import answered
from shardmath.search.layout import RULES
from shardmath.search.legal import OnLayouts, legal_layouts
from shardmath.search.nests.running import Progress
from shardmath.search.offered import as_arguments, offered


@typed
def sweep(
    model: Model | str | PathLike[str],
    gpu: Gpu | Cluster | str | PathLike[str],
    num_gpus: int,
    *,
    network: str | None = None,
    global_batch_size: int,
    seq_length: int | None = None,
    top: int = 10,
    tensor_parallel: Sequence[int] | None = None,
    context_parallel: Sequence[int] | None = None,
    pipeline_parallel: Sequence[int] | None = None,
    micro_batch_size: Sequence[int] | None = None,
    sequence_parallel: Sequence[int] | None = None,
    virtual_pipeline: Sequence[int] | None = None,
    expert_parallel: Sequence[int] | None = None,
    expert_tensor_parallel: int | Sequence[int] | None = None,
    recompute: Sequence[str] | None = None,
    implementation: str | None = None,
    kernels: Mapping[str, str] | None = None,
    gradients: str | None = None,
    distributed_optimizer: bool | None = None,
    zero_stage: int | None = None,
    vocab_multiple: int | None = None,
    node_size: int | None = None,
    schedule: str | None = None,
    rank_by: str | None = None,
    progress: Progress | None = None,
    on_layouts: OnLayouts | None = None,
    **others: int,
) -> SweepResult:
    """Evaluate every layout of ``num_gpus`` GPUs and keep the ``top`` best that fit.

    The best is the fastest, if all figures of the machine are known that its step time needs; otherwise, or with
    ``rank_by="memory"``, it is the one with the fewest model-parallel ranks; the answer says which figure is missing.
    ``gpu``, ``network`` and what is not given are as in ``explain``.

    The axes are all that can be legal and that the implementation has; a sequence of values for an axis replaces
    them. ``schedule`` is the order of forward and backward passes. ``zero_stage`` is as in ``explain``. ``others``
    are further parameters by name.
    ``progress`` is called with candidates done and in all. ``on_layouts`` is called with all legal layouts, some at a
    time, as columns by name with sizes in bytes; for them the candidates are swept once more.

    Raises InputError for every value that is not legal, and where the model is so large that the
    arithmetic of the compiled evaluator would not be exact.
    """
    if rank_by not in (None, *RULES):
        raise InputError("rank_by", rank_by, "must be time or memory")
    with as_arguments(num_gpus):
        spaces = offered(
            as_model(model), gpu, num_gpus, rank_by=rank_by, network=network, global_batch_size=global_batch_size,
            seq_length=seq_length, top=top,
            tensor_parallel=tensor_parallel, context_parallel=context_parallel, pipeline_parallel=pipeline_parallel,
            micro_batch_size=micro_batch_size, sequence_parallel=sequence_parallel, virtual_pipeline=virtual_pipeline,
            expert_parallel=expert_parallel, expert_tensor_parallel=expert_tensor_parallel, recompute=recompute,
            implementation=implementation, kernels=kernels, gradients=gradients, zero_stage=zero_stage,
            distributed_optimizer=distributed_optimizer, vocab_multiple=vocab_multiple, node_size=node_size,
            schedule=schedule, **others,
        )
        answers = answered(spaces, progress=progress)
    first, machine = answers.parts[0], spaces[0].cluster
    assert isinstance(machine, Cluster)
    found = result_of(spaces[0], answers, "" if rank_by else time_unknown(first.evaluator, machine, num_gpus))
    if on_layouts is not None:
        for part in answers.parts:
            for columns in legal_layouts(part, progress):
                on_layouts(columns)
    return found
