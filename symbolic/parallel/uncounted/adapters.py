"""Combinations with adapters and frozen weights that are not counted."""

from __future__ import annotations

from collections.abc import Mapping

from ...choices import ADDED, OF_WORDS, TRANSFORMERS_ROUTERS, trains_copies
from ..walked_layers import not_walked
from .special import of_dense_adapters

#: Precisions and kinds of data parallelism that adapters were counted with.
_ADAPTED = (("bf16", "ddp"), ("mixed", "ddp"), ("bf16", "fsdp"), ("mixed", "fsdp"), ("mixed", "deepspeed"),
            ("fp32", "ddp"), ("fp32", "deepspeed"))


def of_adapters(choices: Mapping[str, str]) -> tuple[tuple[str, bool], ...]:
    """Refuse what is not counted with adapters and frozen weights."""
    frozen, nf4 = choices["adapters"] != "none", choices["base_weights"] == "nf4"
    precision, wide = choices["precision"], choices["adapter_precision"]
    return (
        ("4-bit weights without adapters", nf4 and not frozen),
        *_of_8_bits(choices),
        (f"adapter_precision = {wide} without adapters", wide != "low" and not frozen),
        (f"adapter_precision = {wide} with another precision than bf16, shared-out weights or DoRA",
         wide != "low" and (precision, choices["data_parallel"], choices["adapter_kind"]) != ("bf16", "ddp", "lora")),
        ("adapter_precision = fp32 beside quantised weights, where PEFT copies no inputs under a GPU's autocast: choose"
         " adapter_precision = fp32_uncopied", wide == "fp32" and choices["base_weights"] != "full"),
        ("adapter_precision = fp32_uncopied beside weights that are not quantised: choose adapter_precision = fp32",
         wide == "fp32_uncopied" and choices["base_weights"] == "full"),
        ("adapter_kind = dora without adapters", choices["adapter_kind"] == "dora" and not frozen),
        (f"adapter_kind = dora with data_parallel = {choices['data_parallel']}",
         choices["adapter_kind"] == "dora" and choices["data_parallel"] not in ("ddp", "fsdp")),
        ("4-bit weights beside fp32 shards of FSDP2: choose precision = bf16",
         nf4 and (precision, choices["data_parallel"]) == ("mixed", "fsdp")),
        (f"adapters with precision {precision} and data_parallel = {choices['data_parallel']}",
         frozen and (precision, choices["data_parallel"]) not in _ADAPTED),
        *_of_adapted_moments(choices),
        ("adapters with FP8 and delayed scaling: choose fp8 = current, block, mx or nvfp4",
         frozen and choices["fp8"] == "delayed"),
        ("an adapter for every expert with FP8, in which Megatron-Bridge quantises it too: choose expert_adapters ="
         " shared or none", choices["adapters"] == "all_linear" and choices["fp8"] != "none"
         and (choices["layers"], choices["expert_adapters"]) == ("experts", "each")),
        *_of_copies(choices),
        ("adapters for latent attention or an MLP without a gate",
         frozen and (choices["heads"], choices["mlp"]) not in (("grouped", "swiglu"), ("grouped", "swiglu_clamped"))
         and not (choices["mlp"] == "geglu" and choices["heads"] in ("grouped", "two_widths")
                  and (of_dense_adapters(choices) or choices["router"] not in TRANSFORMERS_ROUTERS))),
        (f"expert_adapters = {choices['expert_adapters']} without experts: choose expert_adapters = none",
         choices["expert_adapters"] in ADDED and choices["layers"] != "experts"),
        *_of_adapted_experts(choices),
        ("FSDP1 with layers of experts: choose loading = trainer",
         choices["loading"] in ("fsdp1", "fsdp1_whole") and choices["layers"] != "dense"),
        ("adapters with norms that keep their output", frozen and choices["norm"] == "keeps_output"),
    )


def _of_copies(choices: Mapping[str, str]) -> tuple[tuple[str, bool], ...]:
    """Refuse copies of embedding and head, which are trained beside adapters, where they are not counted."""
    return (
        ("adapter_ends = copies without adapters",
         choices["adapter_ends"] == "copies" and choices["adapters"] == "none"),
        ("copies of embedding or head beside adapters in models with experts: choose adapter_ends = frozen",
         trains_copies(choices) and choices["layers"] != "dense"),
        ("copies of embedding or head beside adapters with FSDP2",
         trains_copies(choices) and choices["data_parallel"] == "fsdp"),
        ("adapters beside a value head", choices["adapters"] != "none" and choices["loss"] == "value"),
    )


def _of_8_bits(choices: Mapping[str, str]) -> tuple[tuple[str, bool], ...]:
    """Refuse what 8-bit weights are not counted with: their products keep inputs that only adapters keep elsewhere."""
    counted = {"adapters": "all_linear", "precision": "bf16", "data_parallel": "ddp", "adapter_kind": "lora"}
    return tuple((f"8-bit weights with {axis} = {choices[axis]}: choose {axis} = {option}",
                  choices["base_weights"] == "int8" and choices[axis] != option) for axis, option in counted.items())


#: Options by axis with which the moments of PyTorch's own step are counted beside adapters.
_ADAPTED_MOMENTS: Mapping[str, tuple[str, ...]] = {
    "peak": ("torch",), "router": TRANSFORMERS_ROUTERS, "layers": ("dense",), "projections": ("separate",),
    "positions": ("rotary",), "normalisation": ("rms",), "precision": ("bf16",),
    "data_parallel": ("ddp", "fsdp"), "adapter_kind": ("lora",), "adapter_precision": ("low",),
    "base_weights": ("full", "nf4"), "optimizer_kernel": ("fused", "foreach"), "adapter_ends": ("frozen",),
    "loss": OF_WORDS,
}


def _of_adapted_moments(choices: Mapping[str, str]) -> tuple[tuple[str, bool], ...]:
    """Refuse moments of a step beside adapters where they are not counted."""
    frozen = choices["adapters"] != "none" and choices["peak"] != "saved"
    others = [f"{axis} = {choices[axis]}" for axis, options in _ADAPTED_MOMENTS.items()
              if choices[axis] not in options]
    unknown = (*others, *filter(None, (not_walked(choices),))) if frozen else ()
    return tuple((f"the moments of a step with adapters and {name}: choose peak = saved", True) for name in unknown)


#: Routers of classes in Transformers of which PEFT takes no experts.
_LEFT_AS_THEY_ARE = ("huggingface_chosen", "huggingface_top", "huggingface_mixer")


def _of_adapted_experts(choices: Mapping[str, str]) -> tuple[tuple[str, bool], ...]:
    if choices["adapters"] == "none" or choices["layers"] != "experts":
        return ()
    everywhere, transformers = choices["adapters"] == "all_linear", choices["router"] in TRANSFORMERS_ROUTERS
    kind = (choices["precision"], choices["adapter_kind"])
    return (
        ("adapters for models with experts in Transformers with this precision, sharing and kind: choose precision ="
         " bf16, data_parallel = ddp or fsdp and adapter_kind = lora",
         transformers and (kind != ("bf16", "lora") or choices["data_parallel"] not in ("ddp", "fsdp"))),
        ("adapters beside quantised layers of experts, which bitsandbytes leaves in 16 bits",
         choices["base_weights"] != "full"),
        (f"adapters of experts and router = {choices['router']}: choose expert_adapters = none",
         everywhere and choices["expert_adapters"] in ADDED and choices["router"] in _LEFT_AS_THEY_ARE),
        ("adapter_precision = fp32 with sigmoid scores of fp32 logits: choose adapter_precision = low",
         (choices["adapter_precision"], choices["router"], choices["scores"]) == ("fp32", "huggingface", "sigmoid")),
        ("adapters of all linear layers with router = huggingface_mixer, a linear layer that PEFT cannot take: choose"
         " adapters = attention", everywhere and choices["router"] == "huggingface_mixer"),
        ("adapters where Transformers sends tokens to other ranks' experts: choose dispatch = huggingface",
         choices["dispatch"] == "huggingface_sent"),
        ("adapters with a load-balancing loss in Transformers: choose balance = none",
         transformers and choices["balance"] != "none"),
        ("adapters of separate projections for experts: choose adapter_parts = joined",
         everywhere and not transformers and choices["adapter_parts"] == "apart"),
        ("one adapter for experts that are computed one after another: choose expert_adapters = each",
         everywhere and (choices["expert_adapters"], choices["expert_products"]) == ("shared", "sequential")),
    )
