"""Choices that follow from what was asked: the model's architecture, the schedule, the kind of stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shardmath.compiler.evaluators import Evaluator, changed_choices, find, with_moments, with_needs
from shardmath.configuration.defaults import has_architecture
from shardmath.configuration.model_classes import class_of, missing
from shardmath.configuration.settings import SELECTIVE
from shardmath.errors import InputError
from shardmath.generated.definitions import (
    ABSENT_RANKS,
    ARCHITECTURE,
    ASKED,
    CHOICES,
    DEFAULTS,
    IMPLEMENTATIONS,
    NEEDED,
)
from shardmath.input.parameters import UNEVEN
from shardmath.models.class_kernels import CLASS_KERNELS, NARROW_ROUTERS
from shardmath.models.model import Model

#: Differences of GPT-2's classes in Transformers from Llama's: one projection for queries, keys and
#: values, of which they stay views, and a 16-bit softmax of scores; in GPT-NeoX v does, and queries and keys are joined
#: from a part that is turned and one that is not.
_GPT: Mapping[str, str] = {"projections": "fused", "value": "view"}
_LEARNED_GPT: Mapping[str, str] = {"softmax": "low"}
_ROTARY_GPT: Mapping[str, str] = {"rope": "joined"}
#: Qwen's router casts the weights of experts' results to 16 bits; those of Mixtral and DeepSeek leave them in fp32.
_QWEN_EXPERTS: Mapping[str, str] = {"router_precision": "bf16"}
#: Transformers leaves the weights of routers with sigmoids, and of DeepSeek-V2's, in fp32.
_WIDE_ROUTERS: Mapping[str, str] = {"router_weights": "fp32"}
#: PyTorch's kernel makes masks for windows that are shorter than sequences; this one skips what they hide.
_WINDOWS: Mapping[str, str] = {"attention": "flash"}
#: How Megatron-LM balances experts: a bias of each expert needs sigmoids. Unbalanced routers send all tokens to a few
#: experts.
_BALANCE: Mapping[str, str] = {"softmax": "loss", "softmax_all": "loss", "sigmoid": "bias"}
#: Where Transformers sends tokens to the experts of other ranks.
_SENT = "huggingface_sent"
#: Full recompute layer by layer; other methods take layers in groups.
EACH_LAYER = "each"
#: Parameters that only the precision-aware optimizer has.
_MOMENTS = ("exp_avg_bytes", "exp_avg_sq_bytes", "main_param_bytes")


def evaluator_for(
    implementation: str,
    kernels: Mapping[str, str] | None,
    model: Model | None,
    asked: Mapping[str, int],
    layout: Sequence[int] | None = None,
    recompute: Sequence[str] = (),
    staged: bool = False,
) -> Evaluator:
    """Return the evaluator of ``implementation`` for ``model`` and the values that were asked for, by name.

    Without a model the architecture is that of the implementation: dense, with grouped heads. ``recompute`` are the
    modes that will be asked of it, ``staged`` says that there is a pipeline. Choices in ``kernels`` stay. Raises
    InputError for an unknown implementation, axis or option, and for one that the implementation does not have.
    """
    values = {**DEFAULTS, **asked}
    chosen = {} if model is None else choices_of(implementation, model)
    if values["virtual_pipeline"] > 1:
        chosen["schedule"] = "interleaved"
    if staged and has_own_pipeline(implementation):
        chosen["pipeline"] = "torch"
    if values["expert_parallel"] > 1 and _SENT in options_of(implementation, "dispatch"):
        chosen["dispatch"] = _SENT
    if layout is not None:
        chosen["stages"] = "listed"
    elif any(values[name] for name in UNEVEN):
        chosen["stages"] = "uneven"
    if values["hidden_dropout"] or values["attention_dropout"]:
        chosen["dropout"] = "masks"
    if values["recompute_num_layers"] > 1:
        chosen["recompute_method"] = next((name for name in options_of(implementation, "recompute_method")
                                           if name != EACH_LAYER), "uniform")
    chosen |= {axis: option for name, (axis, option) in ASKED.items() if values[name] != DEFAULTS[name]}
    if any(name in asked for name in _MOMENTS):
        chosen["optimizer"] = "precision_aware"
    if SELECTIVE in recompute:
        if "full" in recompute:
            raise InputError("recompute", ",".join(recompute), f"must not have both full and {SELECTIVE}: they differ"
                             " in what a recomputed layer keeps", SELECTIVE)
        if "ops" not in options_of(implementation, "recompute_saves"):
            meant = ": Megatron-LM's selective recompute is core_attention" if implementation == "megatron" else ""
            raise InputError("recompute", SELECTIVE, f"must be a mode of {implementation}{meant}", "core_attention")
        chosen["recompute_saves"] = "ops"
    own = kernels or {}
    if model is not None:
        chosen |= _narrowed(implementation, {**chosen, **own}, model)
    try:
        wanted = with_moments(implementation, {**chosen, **own})
    except InputError as refused:
        if model is None or refused.field in own or refused.field not in (*ARCHITECTURE, "biases"):
            raise
        why = refused.rule.partition(": ")[2] or "not counted yet there"
        raise _refused(implementation, model, f", with {refused.field} = {refused.value}: {why}") from refused
    if model is not None and (reason := missing(implementation, model)):
        raise _refused(implementation, model, f": {reason}")
    return find(implementation, wanted)


def _narrowed(implementation: str, chosen: Mapping[str, str], model: Model) -> Mapping[str, str]:
    """Return what changes where routers' weights are as wide as all others with these choices, nothing where not.

    So FSDP2 and DeepSpeed have them, which refuse or cast others; beside adapters they are counted so.
    """
    (axis, wide), = _WIDE_ROUTERS.items()
    if chosen.get(axis) != wide or implementation not in IMPLEMENTATIONS:
        return {}
    usual = IMPLEMENTATIONS[implementation]["choices"]
    narrow = {axis: usual[axis], **NARROW_ROUTERS.get(model.model_type, {})}
    made = {**usual, **with_needs({**chosen, **narrow})}
    return {} if all(made[name] == option for name, option in NEEDED[axis][wide].items()) else narrow


def _refused(implementation: str, model: Model, reason: str) -> InputError:
    has = (name for name in IMPLEMENTATIONS if has_architecture(name, model))
    rule = f"must be one that has {model.name}{reason}"
    return InputError("implementation", implementation, rule, " or ".join(has))


def answered_choices(implementation: str, model: Model) -> dict[str, str]:
    """Return the same as ``choices_of``. Raises InputError where no model class of the framework has the model."""
    if reason := missing(implementation, model):
        raise InputError("implementation", implementation, f"must be one that has {model.name}: {reason}")
    return choices_of(implementation, model)


def choices_of(implementation: str, model: Model) -> dict[str, str]:
    """Return the choices that follow from the model: its architecture, and kernels of its classes in the framework."""
    chosen = {axis: model.architecture[axis] for axis in ARCHITECTURE} | {"biases": model.biases}
    if implementation == "huggingface":
        chosen |= _of_transformers(model)
    if implementation == "torchtitan":
        chosen |= _of_torchtitan(chosen) | ({"rope": "cast"} if class_of(implementation, model) == "qwen3" else {})
    if implementation == "megatron":
        chosen |= model.bridge_kernels
        chosen |= {"balance": _BALANCE[model.expert_scores]} if model.num_experts else {}
        chosen |= {"peak": "saved"} if model.mlp == "swiglu_clamped" else {}  # their moments are not counted yet
    return chosen


def _of_torchtitan(architecture: Mapping[str, str]) -> dict[str, str]:
    """Return what follows from the architecture: moments that are not counted yet, and where tokens are weighted.

    Of torchtitan's models with experts, Llama 4 has sigmoid scores and heads that share keys.
    """
    if (architecture["layers"], architecture["heads"]) == ("dense", "grouped"):
        return {}
    llama = (architecture["scores"], architecture["heads"]) == ("sigmoid", "grouped")
    return {"peak": "saved", "weighting": "input" if llama else "results"}


def _has_qwen_experts(model: Model) -> bool:
    """Return True for Qwen2-MoE, whose shared experts have a gate, and Qwen3-MoE, which normalises queries and keys."""
    of_qwen = model.shared_expert_gate or model.qk_norm
    return model.num_experts > 0 and of_qwen and model.expert_scores != "sigmoid"


def _has_wide_router(model: Model) -> bool:
    """Return True for DeepSeek-V2, DeepSeek-V3, Kimi K2 and dots.llm1, which need no other kernels than Llama's."""
    return model.num_experts > 0 and (model.expert_scores == "sigmoid" or model.kv_lora_rank > 0)


def _of_transformers(model: Model) -> dict[str, str]:
    """Return the kernels of the model's classes in Transformers; GPT-2 and GPT-NeoX have LayerNorm and GELU."""
    if model.own_router:
        raise InputError("implementation", "huggingface", f"must be megatron for {model.name}: what the router of its"
                         " classes in Transformers keeps is not counted yet", "megatron")
    windowed = _WINDOWS if model.attention_window else {}
    # PEFT takes the linear layers of Qwen2-MoE as they are, and its experts are none.
    taken = model.num_experts > 0 and not model.shared_expert_gate
    windowed = {**windowed, **({"expert_adapters": "weights"} if taken else {})}
    if model.num_experts and model.moe_layer_step > 1:
        windowed["peak"] = "saved"  # moments of such layers are not counted yet
    if model.model_type:
        return {"gelu": model.gelu, **windowed, **CLASS_KERNELS[model.model_type]}
    architecture = model.architecture
    if (architecture["normalisation"], architecture["mlp"]) != ("layer", "gelu"):
        router = _WIDE_ROUTERS if _has_wide_router(model) else _QWEN_EXPERTS if _has_qwen_experts(model) else {}
        return {"gelu": model.gelu, **windowed, **router}
    return {"gelu": model.gelu, **_GPT, **(_LEARNED_GPT if architecture["positions"] == "learned" else _ROTARY_GPT)}


def following(evaluator: Evaluator, asked: Mapping[str, int]) -> dict[str, str]:
    """Return parameters that were not asked for and have the value of another one, with that one's name.

    Megatron-LM's ``--expert-tensor-parallel-size`` is by default its ``--tensor-model-parallel-size``.
    """
    name, fixed = "expert_tensor_parallel", IMPLEMENTATIONS[evaluator.implementation]["fixed"]
    follows = name not in (*asked, *fixed) and evaluator.choices["layers"] == "experts"
    return {name: "tensor_parallel"} if follows else {}


def with_schedule(
    implementation: str, kernels: Mapping[str, str] | None, schedule: str | None,
) -> Mapping[str, str] | None:
    """Kernel choices with the ``schedule`` that was asked for by name.

    Raises InputError for an unknown schedule, one that the implementation does not have, and two of them.
    """
    if schedule is None:
        return kernels
    if kernels is not None and kernels.get("schedule", schedule) != schedule:
        raise InputError("schedule", schedule, f"must not contradict schedule={kernels['schedule']}")
    chosen = {**(kernels or {}), "schedule": schedule}
    changed_choices(implementation, chosen)
    return chosen


def chunks_of(implementation: str, kernels: Mapping[str, str] | None, asked: int | None) -> int:
    """Return the chunks of layers per rank: ``asked``, else those of the schedule, or the program's default."""
    schedule = (kernels or {}).get("schedule")
    if asked is not None:
        return asked
    return 2 if has_own_pipeline(implementation) and schedule not in (None, "1f1b", "gpipe") else 1


def has_own_pipeline(implementation: str) -> bool:
    """Tell whether a pipeline is another program than a run without one: ``torch.distributed.pipelining``."""
    return "torch" in options_of(implementation, "pipeline")


def degrees_of(kernels: Mapping[str, str] | None) -> tuple[str, ...]:
    """Return degrees of parallelism that only the chosen options of systems have."""
    return tuple(name for name in ABSENT_RANKS if (kernels or {}).get(ASKED[name][0]) == ASKED[name][1])


def options_of(implementation: str, axis: str) -> tuple[str, ...]:
    """Return the options of an implementation on an axis; none of an unknown one, which is refused later."""
    known = IMPLEMENTATIONS.get(implementation)
    return () if known is None else tuple(known["allowed"].get(axis, CHOICES[axis][1]))
