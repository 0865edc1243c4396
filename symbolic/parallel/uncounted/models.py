"""Models, routers and kernels of their layers that are not counted with others."""

from __future__ import annotations

from collections.abc import Mapping

from ...choices import (
    ACTORS,
    FALCON,
    FUSED_HEADS,
    GATED,
    MEGATRON_PEAKS,
    MEGATRON_ROPE,
    PREFERENCES,
    SCORES,
    TORCHTUNE,
    TRANSFORMERS_ROUTERS,
    UNGATED,
)
from ...expert_layers import FLEX
from ..walked_layers import has_experts_of_torchtitan, not_walked
from .special import (
    BEHIND_WITH_ADAPTERS,
    DENSE_WITH_ADAPTERS,
    WITH_ADAPTERS,
    WITH_EXPERTS,
    of_dense_adapters,
    special_part,
)


def _of_unknown_moments(choices: Mapping[str, str], special: str) -> str:
    """Name what a layer has whose backward pass is neither walked nor that of a Llama; "" if there is nothing."""
    if choices["peak"] != "torch" or not (unwalked := not_walked(choices)):
        return ""
    kinds = {axis: choices[axis] for axis in ("layers", "heads", "mlp")}
    others = [f"{axis} = {kind}" for axis, kind in kinds.items() if kind not in ("dense", "grouped", "swiglu")]
    if has_experts_of_torchtitan(choices):
        return unwalked
    if choices["router"] in TRANSFORMERS_ROUTERS:
        return unwalked if others or special or choices["attention"] == "eager" else ""
    return (*others, special)[0]


def of_models(choices: Mapping[str, str]) -> tuple[tuple[str, bool], ...]:
    """Refuse layers, kernels and losses of a model that are not counted together."""
    grouped, joined = choices["heads"] == "grouped", choices["rope"].startswith("joined")
    parts = tuple(choices[axis] for axis in ("normalisation", "mlp", "layers"))
    special, of_dense = special_part(choices), special_part(choices, WITH_EXPERTS)
    unknown, learned = _of_unknown_moments(choices, special), choices["positions"] == "learned"
    behind = BEHIND_WITH_ADAPTERS if choices["router"] not in TRANSFORMERS_ROUTERS else {}
    dense_adapters = DENSE_WITH_ADAPTERS if of_dense_adapters(choices) else behind
    of_adapters = special_part(choices, WITH_ADAPTERS if choices["layers"] == "experts" else dense_adapters)
    packed, picked = choices["documents"] == "packed", choices["value"] == "picked"
    plain_alone = choices["loss"] in (*FUSED_HEADS, *SCORES, *ACTORS)
    split = joined and choices["projections"] in ("separate", "gate_up") and choices["value"] == "copy"
    return (
        ("two norms of one tensor in other models than GPT-NeoX and Falcon: with LayerNorm, GELU and rotary positions",
         choices["residual"] == "parallel" and not (
             (joined or picked) and grouped and parts == ("layer", "gelu", "dense"))),
        ("this kernel of attention in Falcon: choose attention = eager, sdpa_masked or sdpa_steps",
         picked and choices["attention"] not in ("eager", *FALCON)),
        (f"attention = {choices['attention']} in other models than Falcon",
         not picked and choices["attention"] in FALCON),
        ("rotary embedding of a part of each head with this kernel of it: choose rope = joined",
         choices["positions"] == "partial" and not (grouped and (joined or choices["rope"] in MEGATRON_ROPE))),
        (f"dispatch = {choices['dispatch']} with router_precision = bf16: choose fp32, which it sends all the same",
         choices["dispatch"] in FLEX and choices["router_precision"] != "fp32"),
        (f"experts with mlp = {choices['mlp']}",
         choices["layers"] == "experts"
         and (choices["mlp"] not in (*GATED, *UNGATED) or choices["mlp"] == "geglu")),
        ("biases of latent attention in Transformers",
         choices["router"] in TRANSFORMERS_ROUTERS and choices["heads"] == "latent" and choices["biases"] == "linear"),
        ("experts without a gate in Transformers",
         choices["router"] in TRANSFORMERS_ROUTERS and choices["layers"] == "experts" and choices["mlp"] in UNGATED),
        ("experts or latent attention with norms in single operations in torchtitan: choose norm = fused",
         choices["router"] == "torchtitan" and choices["norm"] != "fused" and (
             choices["layers"], choices["heads"]) != ("dense", "grouped")),
        ("balance = loss with latent attention, sigmoid scores or this router in Transformers: choose balance = none",
         choices["balance"] != "none" and choices["router"] in TRANSFORMERS_ROUTERS
         and (choices["heads"] == "latent" or choices["scores"] == "sigmoid"
              or choices["router"] in ("huggingface_mixer", "huggingface_top", "huggingface_bounded"))),
        ("balance = loss where Transformers sends tokens to other ranks' experts: choose balance = none",
         choices["balance"] != "none" and choices["dispatch"] == "huggingface_sent"),
        (f"{special} under autocast: choose precision = bf16", bool(special) and choices["precision"] == "autocast"),
        (f"{unknown} with the moments of PyTorch's own step: choose peak = saved", bool(unknown)),
        ("learned positions with the moments of PyTorch's own step, and FSDP2 or an optimizer that goes from parameter"
         " to parameter: choose peak = saved", learned and choices["peak"] == "torch" and (
             choices["data_parallel"] == "fsdp" or choices["optimizer_kernel"] == "loop")),
        ("scores that are bounded by tanh in PyTorch's scaled dot product attention, which has no such kernel: choose"
         " attention = eager or flash", choices["capping"] == "tanh" and choices["attention"] == "sdpa"),
        ("scores or logits that are bounded by tanh in Megatron-Core without FlexAttention: choose attention = flex, as"
         " Megatron-Bridge has it for Gemma 2", choices["capping"] != "none" and choices["attention"] != "flex"
         and choices["router"] not in TRANSFORMERS_ROUTERS),
        ("FlexAttention in models whose scores and logits have no bounds: choose attention = flash",
         choices["attention"] == "flex" and choices["capping"] == "none"),
        ("FlexAttention with dropout, which Megatron-Bridge then takes single operations for: choose dropout = none",
         choices["attention"] == "flex" and choices["dropout"] != "none"),
        (f"{of_adapters} with adapters", bool(of_adapters) and choices["adapters"] != "none"),
        (f"{of_dense} with experts", bool(of_dense) and choices["layers"] == "experts"),
        ("norms behind attention and MLP with dropout in Megatron-Core",
         choices["norms"] != "pre" and choices["dropout"] != "none" and choices["peak"] in MEGATRON_PEAKS),
        ("norms behind attention and experts in Megatron-Core",
         choices["norms"] == "post" and choices["layers"] == "experts"
         and choices["router"] not in TRANSFORMERS_ROUTERS),
        ("mlp = swiglu_clamped in dense layers, without fusion in Megatron-Core, and with it in Transformers: Liger has"
         " no such kernel", choices["mlp"] == "swiglu_clamped" and (
             choices["layers"] == "dense"
             or (choices["swiglu"] == "fused") == (choices["router"] in TRANSFORMERS_ROUTERS))),
        ("latent attention in single operations of PyTorch in other programs than Transformers: choose"
         " attention = flash", choices["router"] not in TRANSFORMERS_ROUTERS
         and (choices["heads"], choices["attention"]) == ("latent", "eager")),
        ("latent attention in FlashAttention in Transformers, which pads values to the width of keys: choose"
         " attention = sdpa", choices["router"] in TRANSFORMERS_ROUTERS
         and (choices["heads"], choices["attention"]) == ("latent", "flash")),
        ("predictions = dense without experts, or with their bounded gate: choose predictions = experts",
         choices["predictions"] == "dense" and (choices["layers"], choices["mlp"] == "swiglu_clamped") != (
             "experts", False)),
        ("mlp = swiglu_clamped with the moments of Megatron-Core's step: choose peak = saved",
         choices["mlp"] == "swiglu_clamped" and choices["peak"] in MEGATRON_PEAKS),
        ("latent attention with keys and values gathered: choose context = ring or all_to_all",
         choices["heads"] == "latent" and choices["context"] == "all_gather"),
        ("windows in kernels of Megatron-Core that keep 16-bit scores: choose attention = flash or unfused",
         choices["window"] == "sliding" and choices["attention"] in ("fused_softmax", "te_unfused")),
        ("packed documents without FlashAttention: choose attention = flash",
         packed and choices["attention"] != "flash"),
        ("packed documents with sinks, latent attention or FP8", packed and tuple(
            choices[axis] for axis in ("sinks", "heads", "fp8")) != ("none", "grouped", "none")),
        ("packed documents with learned positions", packed and learned),
        (f"packed documents with loss = {choices['loss']}: its answers are sequences of their own",
         packed and choices["loss"] in ("reward", "scores", *PREFERENCES)),
        ("sinks of attention with this kernel of it: choose attention = eager in Transformers, flash or unfused in"
         " Megatron-Core", choices["sinks"] == "trained" and choices["attention"] not in (
             ("eager",) if choices["router"] in TRANSFORMERS_ROUTERS else ("flash", "unfused"))),
        ("positions as a slope of the scores (ALiBi) with this kernel of attention: choose attention = eager",
         choices["positions"] == "alibi" and choices["attention"] != "eager"),
        (f"loss = {choices['loss']} with a load-balancing loss: choose balance = none",
         plain_alone and choices["balance"] != "none"),
        (f"loss = {choices['loss']} under autocast or with the moments of PyTorch's own step: choose precision = bf16"
         " or mixed, and peak = saved",
         plain_alone and (choices["precision"] == "autocast", choices["peak"]) != (False, "saved")),
        (f"loss = {choices['loss']} under autocast: choose precision = bf16 or mixed",
         choices["loss"] in TORCHTUNE and choices["precision"] == "autocast"),
        (f"loss = {choices['loss']} with LayerNorm",
         plain_alone and choices["normalisation"] != "rms" and choices["loss"] not in ACTORS),
        ("rope = joined with value = view without projections = fused, or the other way round",
         joined and not split and (choices["value"], choices["projections"]) != ("view", "fused")),
    )


#: With which choices Transformers leaves routers' weights in fp32.
_LEFT_WIDE: Mapping[str, tuple[str, ...]] = {
    "precision": ("bf16",), "data_parallel": ("ddp",), "adapters": ("none",), "layers": ("experts",),
    "router": ("huggingface", "huggingface_bounded"),
}


#: With which choices heads of two widths are counted: those of Gemma 4's layers in Transformers.
_TWO_WIDTHS: Mapping[str, tuple[str, ...]] = {
    "norm": ("eager_power",), "normalisation": ("rms",), "qk_norms": ("head",), "projections": ("separate",),
    "rope": ("shared_twice",), "positions": ("rotary",), "window": ("sliding",), "sinks": ("none",),
    "attention": ("sdpa", "flash", "eager"), "layers": ("dense",), "residual": ("sequential",),
    "precision": ("bf16", "mixed"), "documents": ("one",),
    "data_parallel": ("ddp", "deepspeed"), "peak": ("saved",),
}


def of_two_widths(choices: Mapping[str, str]) -> tuple[tuple[str, bool], ...]:
    """Refuse heads of two widths beside anything that no class of Transformers has with them, or not counted yet."""
    wide = choices["heads"] == "two_widths"
    return tuple((f"heads of two widths with {axis} = {choices[axis]}: choose {' or '.join(options)}",
                  wide and choices[axis] not in options) for axis, options in _TWO_WIDTHS.items())


def of_routers(choices: Mapping[str, str]) -> tuple[tuple[str, bool], ...]:
    """Refuse routers' weights in fp32 beside anything that Transformers has them in 16 bits with."""
    wide = choices["router_weights"] == "fp32"
    return tuple((f"router_weights = fp32 with {axis} = {choices[axis]}: choose router_weights = as_others",
                  wide and choices[axis] not in options) for axis, options in _LEFT_WIDE.items())
