"""The standard space: every layout of one model on one cluster, and what ``sweep`` asks of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike

from shardmath.account.time import as_cluster, on_nodes
from shardmath.configuration.defaults import default_implementation, default_seq_length
from shardmath.configuration.settings import as_model, recompute_mode, recompute_switches
from shardmath.errors import InputError
from shardmath.generated.definitions import RECOMPUTE_MODES, RECOMPUTE_REGIONS
from shardmath.input.arguments import typed
from shardmath.input.parameters import MACHINE, checked, other_values
from shardmath.machines import Cluster
from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model
from shardmath.search.spaces.candidates import Candidates, DivisorsOf
from shardmath.search.spaces.declared import Space
from shardmath.search.spaces.questions import MOST, Best
from shardmath.symbolic.nests.standard import BY_MEMORY


@typed
def layouts(
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
    **others: int,
) -> Space:
    """Every layout of ``num_gpus`` GPUs as a space; the arguments are those of ``sweep``.

    TP, CP and PP run over the divisors of the number of GPUs, micro-batch sizes over those of the batch, expert
    parallelism over those of the experts; other sizes are what ``explain`` takes them to be. Asked are the ``top`` best
    layouts that fit, the best one for every recompute mode, and the legal ones of least and of most memory. What is
    best is decided without time; ``ranked`` changes that. Raises InputError for values that are not legal.
    """
    chosen = as_model(model)
    implementation = default_implementation(chosen) if implementation is None else implementation
    seq_length = default_seq_length(chosen) if seq_length is None else seq_length
    machine = {name: checked(name, others.pop(name)) for name in MACHINE if name in others}
    cluster = on_nodes(as_cluster(gpu, network), node_size)
    asked = other_values({**cluster.memory_parameters, **others})
    if isinstance(top, bool) or not isinstance(top, int) or not 1 <= top <= MOST:
        raise InputError("top", top, f"must be an integer from 1 to {MOST}", "1")
    degrees = DivisorsOf("num_gpus")
    rare = {
        "virtual_pipeline": _given("virtual_pipeline", virtual_pipeline),
        "expert_parallel": _given("expert_parallel", expert_parallel),
        "expert_tensor_parallel": _given("expert_tensor_parallel", expert_tensor_parallel),
    }
    # A single size of these is no axis: where it is the usual one, formulas need not have it.
    single = {name: sizes[0] for name, sizes in rare.items() if sizes is not None and len(sizes) == 1}
    several: dict[str, Candidates | None] = {name: None if name in single else sizes for name, sizes in rare.items()}
    if chosen.num_experts and expert_parallel is None:
        several["expert_parallel"] = DivisorsOf("num_experts")
    axes: dict[str, Candidates | None] = {
        "tensor_parallel": _given("tensor_parallel", tensor_parallel) or degrees,
        "context_parallel": _given("context_parallel", context_parallel) or degrees,
        "pipeline_parallel": _given("pipeline_parallel", pipeline_parallel) or degrees,
        **several,
        "micro_batch_size": _given("micro_batch_size", micro_batch_size) or DivisorsOf("global_batch_size"),
        "sequence_parallel": _given("sequence_parallel", sequence_parallel) or (0, 1),
        "recompute": _modes(recompute, asked),
    }
    fixed = {
        "num_gpus": num_gpus, "global_batch_size": global_batch_size, "seq_length": seq_length,
        "distributed_optimizer": distributed_optimizer, "vocab_multiple": vocab_multiple,
        "node_size": cluster.node_size if node_size is None else node_size, **single, **machine,
        **{name: value for name, value in asked.items() if name not in RECOMPUTE_REGIONS.values()},
    }
    return Space(
        axes={name: candidates for name, candidates in axes.items() if candidates is not None},
        model=chosen, cluster=cluster, implementation=implementation,
        fixed={name: checked(name, value) for name, value in fixed.items() if value is not None},
        questions=(
            Best("best", BY_MEMORY, top),
            Best("best_by_recompute", BY_MEMORY, 1, per=("recompute",)),
            Best("smallest", ("peak",), 1, among="legal"),
            Best("largest", ("-peak",), 1, among="legal"),
        ),
        kernels=kernels or {}, schedule=schedule, zero_stage=zero_stage, gradients=gradients,
    )


def ranked(space: Space, ranking: tuple[str, ...]) -> Space:
    """The same space with what is best decided by ``ranking``."""
    questions = tuple(
        replace(question, by=ranking) if isinstance(question, Best) and question.name.startswith("best") else question
        for question in space.questions
    )
    return replace(space, questions=questions)


def _given(name: str, candidates: int | Sequence[int] | None) -> tuple[int, ...] | None:
    if candidates is None:
        return None
    if not isinstance(candidates, Sequence):
        candidates = (candidates,)
    if not candidates:
        raise InputError(name, (), "must have at least one value")
    return tuple(sorted({checked(name, value) for value in candidates}))


def _modes(recompute: Sequence[str] | None, asked: Mapping[str, int]) -> tuple[str, ...]:
    """The modes to try; regions asked for one by one go with each but full recompute, unless that is named too."""
    modes = tuple(dict.fromkeys(
        mode if recompute is None and mode == "full" else recompute_mode(mode, asked)
        for mode in (RECOMPUTE_MODES if recompute is None else recompute)
    ))
    if not modes:
        raise InputError("recompute", (), "must name at least one mode")
    for mode in modes:
        recompute_switches(mode)
    return modes
