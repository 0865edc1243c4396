"""Layers of Transformers and torchtitan whose backward pass is walked operation by operation."""

from __future__ import annotations

from collections.abc import Mapping

from ..choices import TRANSFORMERS_ROUTERS

#: Options by axis.
WALKED: Mapping[str, tuple[str, ...]] = {
    "router": TRANSFORMERS_ROUTERS, "layers": ("dense", "experts"), "heads": ("grouped", "latent"),
    "precision": ("bf16", "mixed"),
    "norm": ("eager", "eager_fp32", "eager_scale"), "normalisation": ("rms", "layer", "layer_unbiased", "layer_plain"),
    "norms": ("pre", "post", "both"), "qk_norms": ("head", "heads", "width"),
    "residual": ("sequential", "parallel", "parallel_one"),
    "mlp": ("swiglu", "geglu", "gelu", "relu", "relu2", "xielu"), "gelu": ("fused", "new", "fast", "python"),
    "swiglu": ("eager",),
    "attention": ("sdpa", "flash", "eager"), "positions": ("rotary", "partial", "learned"), "value": ("copy", "view"),
    "rope": ("shared", "shared_first", "shared_twice", "shared_fp32", "shared_fp32_twice", "repeated", "repeated_fp32",
             "shared_half", "joined", "joined_held", "joined_repeated"),
    "projections": ("separate", "gate_up", "fused"),
    "sinks": ("none", "trained"), "capping": ("none", "tanh", "logits"), "embedding_norm": ("none",),
    "dropout": ("none",),
}


#: Options by axis, in models with experts.
OF_EXPERTS: Mapping[str, tuple[str, ...]] = {
    **WALKED, "router": tuple(name for name in TRANSFORMERS_ROUTERS if name != "huggingface_mixer"),
    "dispatch": ("huggingface",), "mlp": ("swiglu", "swiglu_clamped"), "norms": ("pre",), "residual": ("sequential",),
    "balance": ("none",),
    "data_parallel": ("ddp", "fsdp"), "pipeline": ("own",), "optimizer_kernel": ("fused", "foreach"),
    "recompute_method": ("each",), "biases": ("qkv", "some", "linear"),
}


#: Options by axis, in models of torchtitan with experts.
OF_TORCHTITAN: Mapping[str, tuple[str, ...]] = {
    "heads": ("grouped", "latent"), "mlp": ("swiglu",), "norm": ("fused",), "rope": ("complex", "cast"),
    "precision": ("mixed",), "sinks": ("none",), "window": ("none",), "pipeline": ("own",),
    "recompute_method": ("each",), "recompute_saves": ("input",), "optimizer_step": ("after",),
    "optimizer_kernel": ("fused", "foreach"), "fp8": ("none",),
}


def has_experts_of_torchtitan(choices: Mapping[str, str]) -> bool:
    """Tell whether layers are torchtitan's with experts."""
    return choices["router"] == "torchtitan" and choices["layers"] == "experts"


def not_walked(choices: Mapping[str, str]) -> str:
    """Name the first choice with which a layer's backward pass is not walked; "" if there is none."""
    options = OF_EXPERTS if choices["layers"] == "experts" else WALKED
    if has_experts_of_torchtitan(choices):
        options = OF_TORCHTITAN
    if choices["heads"] == "latent" and choices["attention"] == "flash":
        return "heads = latent and attention = flash"
    if choices["attention"] == "eager" and choices["value"] != "copy":
        return f"attention = eager and value = {choices['value']}"
    if choices["attention"] == "eager" and choices["softmax"] != "fp32":
        return f"attention = eager and softmax = {choices['softmax']}"
    return next((f"{axis} = {choices[axis]}" for axis, known in options.items() if choices[axis] not in known), "")
