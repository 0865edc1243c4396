"""One sweep from the question to the answer: settings, space, evaluation, counts, best layouts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike

import numpy as np
from numpy.typing import NDArray

from shardmath.choosing import chunks_of, evaluator_for, following, with_schedule
from shardmath.errors import InputError
from shardmath.evaluators import Evaluator
from shardmath.exactness import EXACT, products
from shardmath.generated.definitions import DEFAULTS, RECOMPUTE_MODES, VERDICTS
from shardmath.gpus import Gpu
from shardmath.jobs import refuse_what_changes_nothing
from shardmath.models import Model
from shardmath.parameters import checked, other_values
from shardmath.settings import as_gpu, as_model, recompute_mode, recompute_switches, settings
from shardmath.sweeps.engine import Evaluated, evaluated
from shardmath.sweeps.ranking import Layout, layout, ranked
from shardmath.sweeps.result import BrokenRule, SweepResult
from shardmath.sweeps.space import Space, divisors, layouts
from shardmath.zero import staged

#: More layouts than this take long; a person who asks for them most likely meant fewer.
_MANY = 10**10

Progress = Callable[[int, int], None]
Rows = Callable[[Evaluated, tuple[str, ...]], None]


def sweep(
    model: Model | str | PathLike[str],
    gpu: Gpu | str,
    num_gpus: int,
    *,
    global_batch_size: int,
    seq_length: int = 8192,
    top: int = 10,
    tensor_parallel: Sequence[int] | None = None,
    context_parallel: Sequence[int] | None = None,
    pipeline_parallel: Sequence[int] | None = None,
    micro_batch_size: Sequence[int] | None = None,
    sequence_parallel: Sequence[int] | None = None,
    virtual_pipeline: Sequence[int] | None = None,
    expert_parallel: Sequence[int] | None = None,
    recompute: Sequence[str] | None = None,
    implementation: str = "megatron",
    kernels: Mapping[str, str] | None = None,
    gradients: str | None = None,
    distributed_optimizer: bool | None = None,
    zero_stage: int | None = None,
    vocab_multiple: int | None = None,
    node_size: int | None = None,
    schedule: str | None = None,
    progress: Progress | None = None,
    on_chunk: Rows | None = None,
    **others: int,
) -> SweepResult:
    """Evaluate every layout of ``num_gpus`` GPUs and keep the ``top`` best that fit.

    The axes are all divisors that can be legal; a sequence of values for an axis replaces them. A rank has one
    chunk of layers unless ``virtual_pipeline`` names others. ``schedule`` is the order of forward and backward
    passes; torchtitan's pipelines are tried where it, or pipeline sizes without 1, are given. ``zero_stage`` is as in
    ``explain``. ``others`` are further parameters by name.
    ``progress`` is called with candidates done and in all, ``on_chunk`` with every evaluated chunk.

    Raises InputError for every value that is not legal, and where the model is so large that the
    arithmetic of the compiled evaluator would not be exact.
    """
    chosen, device = as_model(model), as_gpu(gpu)
    kernels, distributed_optimizer, rest = staged(zero_stage, implementation, kernels, distributed_optimizer, others)
    kernels = with_schedule(implementation, kernels, schedule)
    asked = other_values(rest)
    if virtual_pipeline is None and schedule is not None:
        virtual_pipeline = (chunks_of(implementation, kernels, None),)
    chunks = max(virtual_pipeline or (1,))
    evaluator = evaluator_for(
        implementation, kernels, chosen, {**asked, "virtual_pipeline": chunks},
        recompute=tuple(recompute or ()),
        staged=schedule is not None or chunks > 1 or (pipeline_parallel is not None and 1 not in pipeline_parallel),
    )
    values = settings(
        evaluator, chosen, device, seq_length=seq_length, node_size=node_size, gradients=gradients,
        distributed_optimizer=distributed_optimizer, vocab_multiple=vocab_multiple, others=asked,
    )
    refuse_what_changes_nothing(evaluator, chosen, values)
    values["num_gpus"] = checked("num_gpus", num_gpus)
    values["global_batch_size"] = checked("global_batch_size", global_batch_size)
    if isinstance(top, bool) or not isinstance(top, int) or top < 1:
        raise InputError("top", top, "must be an integer of at least 1", "1")
    _refuse_inexact(chosen, values)
    given = _given(
        tensor_parallel=tensor_parallel, context_parallel=context_parallel, pipeline_parallel=pipeline_parallel,
        micro_batch_size=micro_batch_size, sequence_parallel=sequence_parallel, virtual_pipeline=virtual_pipeline,
        expert_parallel=expert_parallel,
    )
    if chosen.num_experts and expert_parallel is None:
        given["expert_parallel"] = divisors(chosen.num_experts)
    # Regions asked for one by one go with every mode but full recompute, unless that is named too.
    modes = tuple(dict.fromkeys(
        mode if recompute is None and mode == "full" else recompute_mode(mode, asked)
        for mode in (RECOMPUTE_MODES if recompute is None else recompute)
    ))
    if not modes:
        raise InputError("recompute", (), "must name at least one mode")
    for mode in modes:
        recompute_switches(mode)
    followers = following(evaluator, asked)
    constant = {
        name: values[name] for name in evaluator.kernel.COLUMNS
        if name in DEFAULTS and name not in given and name not in followers
    }
    space = layouts(values["num_gpus"], values["global_batch_size"], given, modes, constant, followers)
    if space.size > _MANY:
        rule = f"must give at most {_MANY} layouts, not {space.size}: name the sizes to try for some axes"
        raise InputError("num_gpus", num_gpus, rule)
    return _collect(evaluator, chosen, device, values, space, modes, top, progress, on_chunk)


def _refuse_inexact(model: Model, values: Mapping[str, int]) -> None:
    """Raise InputError if a product that the rules or terms start from would not be exact in float64."""
    if max(products(values)) >= EXACT:
        rule = "must have matrices and batches below 2^49 elements, for exact arithmetic"
        raise InputError("model", model.name, rule)


def _given(**axes: Sequence[int] | None) -> dict[str, tuple[int, ...]]:
    given = {}
    for name, candidates in axes.items():
        if candidates is not None:
            if not candidates:
                raise InputError(name, (), "must have at least one value")
            given[name] = tuple(sorted({checked(name, value) for value in candidates}))
    return given


def _collect(
    evaluator: Evaluator, model: Model, gpu: Gpu, values: Mapping[str, int], space: Space,
    modes: tuple[str, ...], top: int, progress: Progress | None, on_chunk: Rows | None,
) -> SweepResult:
    rules = evaluator.terms.RULES
    rule_counts = np.zeros(len(rules) + 1, np.int64)
    verdict_counts = np.zeros(len(VERDICTS), np.int64)
    winners: list[Layout] = []
    by_mode: dict[str, Layout] = {}
    smallest: Layout | None = None
    done = 0

    def taken(chunk: Evaluated, rows: NDArray[np.intp]) -> list[Layout]:
        return [layout(chunk, int(row), modes, values["global_batch_size"], values["gpu_memory"]) for row in rows]

    for chunk in evaluated(evaluator, values, space):
        legal = chunk.rule == 0
        rule_counts += np.bincount(chunk.rule, minlength=len(rule_counts))
        verdict_counts += np.bincount(chunk.verdict[legal], minlength=len(verdict_counts))
        if legal.any():
            peaks = np.where(legal, chunk.peak, np.inf)
            if chunk.peak[legal].max() >= EXACT:
                raise InputError("model", model.name, "must need less than 512 TiB on a GPU, for exact arithmetic")
            candidate = taken(chunk, np.asarray([peaks.argmin()]))[0]
            if smallest is None or candidate.peak_bytes < smallest.peak_bytes:
                smallest = candidate
        rows = ranked(chunk)
        winners = sorted([*winners, *taken(chunk, rows[:top])], key=lambda item: item.order)[:top]
        _, first_of_mode = np.unique(chunk.columns["recompute"][rows], return_index=True)
        for item in taken(chunk, rows[first_of_mode]):
            by_mode[item.recompute] = min(by_mode.get(item.recompute, item), item, key=lambda rival: rival.order)
        if on_chunk is not None:
            on_chunk(chunk, modes)
        done += len(chunk.rule)
        if progress is not None:
            progress(done, space.size)
    return SweepResult(
        model, gpu, evaluator.name, values, space.size, int(rule_counts[0]),
        tuple(
            BrokenRule(name, field, text, int(count))
            for (name, field, text), count in zip(rules, rule_counts[1:], strict=True)
        ),
        {name: int(count) for (name, _), count in zip(VERDICTS, verdict_counts, strict=True)},
        tuple(winners), {mode: by_mode[mode] for mode in modes if mode in by_mode}, smallest,
    )
