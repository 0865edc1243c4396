"""One configuration of a training job: every parameter checked, and the evaluator that it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from warnings import warn

from shardmath.compiler.evaluators import Evaluator
from shardmath.configuration.choosing import chunks_of, evaluator_for, following, with_schedule
from shardmath.configuration.defaults import default_implementation, default_seq_length
from shardmath.configuration.fields import LAYOUT
from shardmath.configuration.run import Run
from shardmath.configuration.settings import as_gpu, as_model, recompute_mode, recompute_switches, settings
from shardmath.configuration.stages import ANY, listed, parsed
from shardmath.configuration.zero import staged
from shardmath.errors import InputError, InputWarning
from shardmath.generated.definitions import ABSENT_RANKS, ASKED, DEFAULTS, HOSTS, model_ranks, sequences_at_once
from shardmath.input.parameters import checked, other_values, refuse_illegal
from shardmath.machines import Cluster
from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model

#: Parameters that change nothing unless the model has one of these options of its architecture.
_OF_EXPERTS, _OF_LATENT = ("layers", "experts"), ("heads", "latent")
_ONLY_WITH: Mapping[str, tuple[tuple[str, str], ...]] = {
    **dict.fromkeys(("expert_parallel", "expert_tensor_parallel", "expert_load_percent", "expert_capacity_percent",
                     "recompute_moe", "recompute_moe_act", "recompute_shared_experts"), (_OF_EXPERTS,)),
    "recompute_mla_up_proj": (_OF_LATENT,),
    "recompute_layernorm": (_OF_EXPERTS, _OF_LATENT),
}
#: Words for these options.
_PARTS: Mapping[tuple[str, str], str] = {_OF_EXPERTS: "experts", _OF_LATENT: "latent attention"}


@dataclass(frozen=True)
class Job:
    """A question with its defaults: ``values`` has every parameter by name.

    ``by_rank`` has, with an explicit list of layers, what differs on each pipeline rank.
    """

    model: Model
    gpu: Gpu
    evaluator: Evaluator
    recompute: str
    values: Mapping[str, int]
    by_rank: tuple[Mapping[str, int], ...]

    def on_rank(self, rank: int) -> dict[str, int]:
        """Return all values as pipeline rank ``rank`` has them."""
        own = self.by_rank[rank] if self.by_rank else {}
        return {**self.values, "pipeline_rank": rank, **own}


def job(run: Run) -> Job:
    """Check a run. Raises InputError for every value that is not legal."""
    model, gpu = as_model(run.model), as_gpu(run.gpu)
    implementation = default_implementation(model) if run.implementation is None else run.implementation
    seq_length = default_seq_length(model) if run.seq_length is None else run.seq_length
    kernels, distributed_optimizer, others = staged(
        run.zero_stage, implementation, run.kernels, run.distributed_optimizer, run.others)
    kernels = with_schedule(implementation, kernels, run.schedule)
    asked = other_values(others)
    if run.pipeline_parallel != 1:
        asked["virtual_pipeline"] = chunks_of(implementation, kernels, asked.get("virtual_pipeline"))
    recompute = recompute_mode(run.recompute, asked)
    layout = parsed(run.pipeline_layout) if isinstance(run.pipeline_layout, str) else run.pipeline_layout
    _refuse_other_stages((kernels or {}).get("stages"), layout is not None)
    evaluator = evaluator_for(
        implementation, kernels, model, asked, layout, (recompute,),
        staged=run.pipeline_parallel != 1 or run.schedule is not None,
    )
    values = settings(
        evaluator, model, run.gpu if isinstance(run.gpu, Cluster) else gpu, seq_length=seq_length,
        node_size=run.node_size, gradients=run.gradients, distributed_optimizer=distributed_optimizer,
        vocab_multiple=run.vocab_multiple, others=asked,
    )
    values |= {**{name: checked(name, run.asked(name)) for name in LAYOUT}, **recompute_switches(recompute)}
    values |= {name: values[leader] for name, leader in following(evaluator, asked).items()}
    refuse_what_changes_nothing(evaluator, model, values)
    warn_of_empty_hosts(evaluator, values)
    values |= _gpus(values, run.data_parallel, run.num_gpus)
    values["global_batch_size"] = _batch(values, run.global_batch_size, evaluator.choices["schedule"])
    sequence_parallel = run.sequence_parallel
    if sequence_parallel is None:
        sequence_parallel = bool(evaluator.defaults["sequence_parallel"]) and values["tensor_parallel"] > 1
    values["sequence_parallel"] = checked("sequence_parallel", sequence_parallel)
    first = {**values, "pipeline_rank": 0}
    by_rank: Sequence[Mapping[str, int]] = ()
    if layout is not None:
        refuse_illegal(evaluator.terms, {**ANY, **first})
        by_rank = listed(evaluator, values, layout)
        first |= by_rank[0]
    refuse_illegal(evaluator.terms, first)
    return Job(model, gpu, evaluator, recompute, values, tuple(by_rank))


def _refuse_other_stages(stages: str | None, is_listed: bool) -> None:
    """Refuse a kind of stages by name that a list of layers, or the lack of one, contradicts."""
    if stages == "listed" and not is_listed:
        raise InputError("stages", stages, "must not be given without a pipeline_layout")
    if stages not in (None, "listed") and is_listed:
        raise InputError("stages", stages, "must be listed with a pipeline_layout", "listed")


def refuse_what_changes_nothing(evaluator: Evaluator, model: Model, values: Mapping[str, int]) -> None:
    """Refuse expert parallelism of a dense model and the like, and what asks for a system that is not chosen."""
    for name, least in without_effect(evaluator).items():
        if values[name] != least:
            parts = " nor ".join(_PARTS[part] for part in _ONLY_WITH[name])
            rule = f"must be {least}: {model.name} has {'neither ' if ' nor ' in parts else 'no '}{parts}"
            raise InputError(name, values[name], rule, str(least))
    for name, (axis, option) in ASKED.items():
        usual, chosen = DEFAULTS[name], evaluator.choices[axis]
        if values.get(name, usual) != usual and chosen != option and not _has(evaluator, name):
            raise InputError(name, values[name], f"must be {usual}: {axis} = {chosen} does not have it", str(usual))


def warn_of_empty_hosts(evaluator: Evaluator, values: Mapping[str, int]) -> None:
    """Warn of a kernel that works with the host where its amount on the host is 0: all stays on the GPU."""
    for axis, options in HOSTS.items():
        name, _ = options.get(evaluator.choices[axis], ("", ""))
        if name and values.get(name, 0) == 0:
            warn(f"{axis} = {evaluator.choices[axis]} keeps nothing on the host: {name} is 0;"
                 f" say how much, as in --{name.replace('_', '-')} {DEFAULTS[name] + 1}", InputWarning, stacklevel=2)


def _has(evaluator: Evaluator, name: str) -> bool:
    """Tell whether some formula has a parameter."""
    return name in evaluator.terms.INPUTS or (evaluator.is_timed and name in evaluator.times.INPUTS)


def without_effect(evaluator: Evaluator) -> dict[str, int]:
    """Return parameters that change nothing with the evaluator's architecture, each with its only legal value."""
    return {
        name: DEFAULTS[name] for name, parts in _ONLY_WITH.items()
        if all(evaluator.choices[axis] != option for axis, option in parts)
    }


def _gpus(values: Mapping[str, int], data_parallel: int | None, num_gpus: int | None) -> dict[str, int]:
    ranks = model_ranks(**values)
    if num_gpus is None:
        data = checked("data_parallel", 1 if data_parallel is None else data_parallel)
        return {"data_parallel": data, "num_gpus": checked("num_gpus", ranks * data)}
    gpus = checked("num_gpus", num_gpus)
    if data_parallel is not None:
        return {"data_parallel": checked("data_parallel", data_parallel), "num_gpus": gpus}
    if gpus % ranks:
        below = gpus // ranks * ranks
        near = " or ".join(str(value) for value in (below, below + ranks) if value)
        of = ("tensor_parallel", *(name for name in ABSENT_RANKS if values[name] > 1), "context_parallel",
              "pipeline_parallel")
        rule = f"must be a multiple of {' * '.join(of)} = {ranks}"
        raise InputError("num_gpus", gpus, rule, near)
    return {"data_parallel": gpus // ranks, "num_gpus": gpus}


def _batch(values: Mapping[str, int], global_batch_size: int | None, schedule: str) -> int:
    if global_batch_size is None:
        global_batch_size = filling_batch(values, schedule)
    return checked("global_batch_size", global_batch_size)


def filling_batch(values: Mapping[str, Any], schedule: str) -> Any:
    """Return sequences of a step with just enough micro-batches to fill every pipeline, from numbers or columns.

    The schedules in a V need two micro-batches per rank, DualPipeV one more.
    """
    p = values["pipeline_parallel"]
    filled = 1 + (p > 1) * (2 * p + (schedule == "dualpipev") - 1)
    return sequences_at_once(**values) * filled
