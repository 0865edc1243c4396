"""Parts of layers that are counted with a plain training step alone, and what some of them are counted with."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ...choices import TRANSFORMERS_ROUTERS, UNGATED

#: Axes of which some options are counted with a plain training step alone: none of FP8, adapters, autocast, moments.
_PLAIN_ONLY: Mapping[str, tuple[str, ...]] = {
    "normalisation": ("layer_unbiased", "layer_plain"), "norms": ("post", "both"), "qk_norms": ("heads", "width"),
    "residual": ("parallel_one",), "capping": ("tanh", "logits"), "mlp": ("geglu", "relu", "relu2", "xielu"),
    "norm": ("eager_fp32", "eager_scale", "eager_power"), "projections": ("qkv", "gate_up"), "heads": ("two_widths",),
    "rope": ("shared_half", "shared_twice", "shared_fp32", "shared_fp32_twice", "repeated", "repeated_fp32",
             "joined_repeated"),
    "sinks": ("trained",), "positions": ("alibi",), "embedding_norm": ("norm",), "value": ("picked",),
}

#: Those that are counted with experts.
WITH_EXPERTS: Mapping[str, tuple[str, ...]] = {
    "qk_norms": ("width",), "norm": ("eager_fp32",), "norms": ("post",),
    "rope": ("shared_half", "shared_twice", "shared_fp32", "repeated_fp32"),
    "projections": ("gate_up",), "sinks": ("trained",), "mlp": UNGATED,
}

#: Those that are counted with adapters in models with experts.
WITH_ADAPTERS: Mapping[str, tuple[str, ...]] = {
    "qk_norms": ("width",), "norm": ("eager_fp32",), "rope": ("shared_half", "repeated_fp32"),
    "sinks": ("trained",),
}

#: Those that are counted beside adapters of PEFT in dense models, on one GPU and with DistributedDataParallel.
DENSE_WITH_ADAPTERS: Mapping[str, tuple[str, ...]] = {
    "normalisation": ("layer_plain",), "norms": ("post", "both"), "qk_norms": ("width",),
    "capping": ("tanh", "logits"),
    "mlp": ("geglu",), "norm": ("eager_fp32", "eager_scale", "eager_power"), "heads": ("two_widths",),
    "rope": ("shared_twice", "shared_fp32", "shared_fp32_twice", "repeated", "repeated_fp32"),
}

#: Those that are counted beside adapters in dense models of Megatron-Core.
BEHIND_WITH_ADAPTERS: Mapping[str, tuple[str, ...]] = {"norms": ("post", "both")}


def of_dense_adapters(choices: Mapping[str, str]) -> bool:
    """Tell whether adapters lie beside dense layers as they were counted in many families of Transformers."""
    plain = {"layers": ("dense",), "precision": ("bf16",), "data_parallel": ("ddp",), "adapter_kind": ("lora",),
             "base_weights": ("full", "nf4"), "router": TRANSFORMERS_ROUTERS}
    return all(choices[axis] in options for axis, options in plain.items())


#: Those that Megatron-Core has with all that it has at all.
_AS_USUAL = (*UNGATED, "relu", "geglu", "width")


def special_part(choices: Mapping[str, str], counted: Mapping[str, tuple[str, ...]] = MappingProxyType({})) -> str:
    """Name the first choice beside ``counted`` that needs a plain training step; "" if there is none.

    Megatron-Core's fused square of ReLU keeps its input as its GELU does, with all that GELU is counted with, and its
    ReLU its output; its GeGLU keeps what its SwiGLU keeps, and norms over all heads what those of each keep.
    """
    special = (axis for axis, options in _PLAIN_ONLY.items()
               if choices[axis] in options and choices[axis] not in counted.get(axis, ())
               and not (choices[axis] in _AS_USUAL and choices["router"] not in TRANSFORMERS_ROUTERS))
    return next((f"{axis} = {choices[axis]}" for axis in special), "")
