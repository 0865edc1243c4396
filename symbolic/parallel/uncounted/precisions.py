"""Combinations with fp32, FP8 and FP4 that are not counted."""

from __future__ import annotations

from collections.abc import Mapping

from ...components.quantised import PACKED
from ..optimizers import IN_PARTS, WHOLE_TENSORS
from .special import special_part

#: MLPs that are counted in FP8, one with a bounded gate in experts alone, as everywhere.
_IN_FP8: tuple[str, ...] = ("swiglu", "swiglu_clamped", "gelu", "relu", "relu2")


def of_fp32(choices: Mapping[str, str]) -> tuple[tuple[str, bool], ...]:
    """Refuse what is not counted in fp32: other layers than Llama's, frozen 4-bit weights, moments of a step."""
    counted = {
        "normalisation": ("rms",), "mlp": ("swiglu",), "positions": ("rotary",), "heads": ("grouped",),
        "layers": ("dense",), "peak": ("saved",), "base_weights": ("full",), "norm": ("eager", "fused"),
        "rope": ("shared", "shared_first"), "loss": ("huggingface", "huggingface_freed"), "adapter_kind": ("lora",),
        "optimizer": IN_PARTS, "zero_offload": ("none",),
    }
    fp32, special = choices["precision"] == "fp32", bool(special_part(choices))
    return tuple((f"precision = fp32 with {axis} = {choices[axis]}", fp32 and (special or choices[axis] not in options))
                 for axis, options in counted.items())


def of_fp8(choices: Mapping[str, str]) -> tuple[tuple[str, bool], ...]:
    """Refuse what is not counted in FP8 and FP4."""
    recipe, precision = choices["fp8"], choices["precision"]
    fp8 = recipe != "none"
    return (
        (f"FP8 with precision {precision}", fp8 and precision != "mixed"),
        ("NVFP4 weights without 16-bit ones (--fp4-param-gather): choose fp8_weights = copy",
         recipe in PACKED and choices["fp8_weights"] != "copy"),
        ("NVFP4 with further predictions by dense layers: choose predictions = experts",
         recipe in PACKED and choices["predictions"] == "dense"),
        (f"FP8 with mlp = {choices['mlp']}: counted are {', '.join(_IN_FP8)}", fp8 and choices["mlp"] not in _IN_FP8),
        ("FP8 with norms behind attention and MLP", fp8 and choices["norms"] != "pre"),
        ("FP8 with experts one after another", fp8 and choices["expert_products"] != "grouped"),
        ("FP8 with other norms and attention than Transformer Engine's",
         fp8 and (choices["norm"], choices["attention"]) != ("fused", "flash")),
        (f"FP8 with peak = {choices['peak']}: choose peak = megatron_te",
         fp8 and choices["peak"] not in ("saved", "megatron_te")),
        ("FP8 with FSDP2", fp8 and choices["data_parallel"] == "fsdp"),
        ("MXFP8 weights without 16-bit ones, whose buffer only the distributed optimizer fills, with whole-tensor"
         " optimizers: choose fp8_weights = copy",
         recipe == "mx" and choices["fp8_weights"] != "copy" and choices["optimizer"] in WHOLE_TENSORS),
        (f"optimizer precision_aware with FP8 recipe {recipe}: choose optimizer = precision_aware_core",
         recipe not in ("none", "delayed") and choices["optimizer"] == "precision_aware"),
        ("optimizer precision_aware_core with FP8 recipe delayed: choose optimizer = precision_aware",
         recipe == "delayed" and choices["optimizer"] == "precision_aware_core"),
    )
