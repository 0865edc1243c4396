"""Adapters of PEFT, and frozen weights in 4 or 8 bits, that settings of Hugging Face's trainers ask for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from shardmath.formats.options import Options
from shardmath.formats.trainers.sharding import is_fsdp1

_ATTENTION, _MLP = ("q_proj", "k_proj", "v_proj", "o_proj"), ("gate_proj", "up_proj", "down_proj")
#: Projections that have an adapter each, and the choices ``adapters`` that they are.
TARGETS = {
    frozenset(("q_proj", "v_proj")): "q_v", frozenset(_ATTENTION[:3]): "qkv", frozenset(_ATTENTION): "attention",
    frozenset((*_ATTENTION, *_MLP)): "all_linear",
}
#: Modules that may be trained beside adapters.
ENDS = frozenset(("embed_tokens", "lm_head"))
_ALL = ("all-linear", "all_linear", "all", "linear")
#: A pattern for projections of all layers, as files of Axolotl have it for models of images: blocks, and their parts.
_PATTERN = re.compile(r"[a-z_.]*layers\.\[\\d\]\+\.(?:\(_checkpoint_wrapped_module\.\)\?)?"
                      r"\(([a-z_|]+)\)\.\(([a-z|]+)\)_proj")
_BLOCKS = {"self_attn": _ATTENTION, "mlp": _MLP}
#: Rank of PEFT's ``LoraConfig`` where nothing says another.
_RANK = 8


def adapters_of(options: Options) -> dict[str, Any]:
    """Return arguments of ``explain`` for adapters; none where all weights are trained. Raises InputError."""
    if not options.is_on("use_peft"):
        for name in ("load_in_4bit", "load_in_8bit"):
            if options.is_on(name):
                raise options.error(name, "must not be given without adapters: quantised weights cannot be trained")
        return {}
    if options.all("lora_target_parameters") not in ((), ("false",)):
        rule = "must not be given: adapters of single parameters: not counted yet"
        raise options.error("lora_target_parameters", rule)
    kernels = {"adapters": _targets(options), "adapter_parts": "apart", **_copies(options)}
    if options.is_on("use_dora"):
        kernels["adapter_kind"] = "dora"
    if options.is_on("load_in_4bit"):
        options.word("bnb_4bit_quant_type", "nf4", ("nf4",), ": others are not counted yet")
        if "use_bnb_nested_quant" in options and not options.is_on("use_bnb_nested_quant"):
            options.warnings.append("scales of 4-bit weights are counted as quantised themselves: 0.4 bits a weight"
                                    f" less than {options.shown('use_bnb_nested_quant')} = false")
        kernels["base_weights"] = "nf4"
    elif options.is_on("load_in_8bit"):
        options.warnings.append(f"{options.shown('load_in_8bit')}: columns of inputs with values of 6 or more stay in"
                                " 16 bits beside 8-bit products: how many is not known, and none is counted")
        kernels["base_weights"] = "int8"
    if options.real("lora_dropout", 0.0):
        again = options.is_on("gradient_checkpointing")
        options.warnings.append(f"{options.shown('lora_dropout')} is not counted yet: dropout before adapters keeps its"
                                f" mask and output{', here of the one layer that is computed again' * again}")
    if _are_fused(options):
        options.warnings.append("adapters have fused kernels unless lora_mlp_kernel and its like are false: these keep"
                                " less, which is not counted yet")
    return {"lora_rank": options.size("lora_r", _RANK), "kernels": kernels}


def _copies(options: Options) -> dict[str, str]:
    """Return the choice for modules that are trained beside adapters, whole, in copies of their own."""
    modules = _names(options.all("lora_modules_to_save"))
    if modules <= {"false"}:
        return {}
    if modules != ENDS:
        rule = f"must be {' '.join(sorted(ENDS))}: others are not counted yet"
        raise options.error("lora_modules_to_save", rule, " ".join(sorted(ENDS)))
    return {"adapter_ends": "copies"}


def _names(words: Iterable[str]) -> frozenset[str]:
    """Return the names in a list, however it is written."""
    return frozenset(part for word in words for part in word.strip("[]'\" ").replace(",", " ").split())


def _named_by(pattern: re.Match[str]) -> frozenset[str]:
    """Return the projections that a pattern names."""
    parts = {f"{part}_proj" for part in pattern[2].split("|")}
    return frozenset(name for block in pattern[1].split("|") for name in _BLOCKS.get(block, ()) if name in parts)


def _are_fused(options: Options) -> bool:
    """Tell whether a program chooses fused kernels of adapters by itself: Axolotl's do without FSDP1 and 8 bits."""
    if options.is_on("load_in_8bit") or (options.is_on("fsdp") and is_fsdp1(options)):
        return False
    return options.is_on("fused_adapters")


def precision_of(options: Options, kernels: Mapping[str, str], half: bool) -> dict[str, str]:
    """Return the choices for adapters, which PEFT makes fp32; warn where these are not counted.

    ``half`` is a trainer's autocast to 16 bits. DeepSpeed makes bf16 of all, and TRL of those beside quantised weights.
    """
    if options.word("lora_dtype", "float32", ("float32", "bfloat16", "float16", "none")) != "float32":
        return {}
    if options.is_on("bf16_beside_quantised") and "base_weights" in kernels and "adapter_kind" not in kernels:
        return {}
    whole = kernels.get("data_parallel") == "deepspeed" or kernels.get("precision") == "fp32"
    if "adapters" not in kernels or whole:
        return {}
    plain = (kernels.get("precision"), kernels.get("data_parallel", "ddp"), kernels.get("adapter_kind", "lora"))
    if half and plain == ("bf16", "ddp", "lora"):
        return {"adapter_precision": "fp32_uncopied" if "base_weights" in kernels else "fp32"}
    options.warnings.append("adapters are counted in 16 bits; PEFT keeps them in fp32: 8 bytes more for each of"
                            " their parameters, with gradients and AdamW's states")
    return {}


def _targets(options: Options) -> str:
    """Get the choice ``adapters`` for the projections that have one; PEFT's own for a Llama are q_proj and v_proj."""
    words = options.all("lora_target_modules", ("q_proj", "v_proj"))
    pattern = _PATTERN.fullmatch(" ".join(words))
    named = _names(words) if pattern is None else _named_by(pattern)
    asked = named | ({_ALL[0]} if options.is_on("lora_all_linear") else set())
    if asked & set(_ALL):
        if others := asked - {*_ALL, *_ATTENTION, *_MLP}:
            rule = f"must not have {', '.join(sorted(others))} beside all linear layers: not counted yet"
            raise options.error("lora_target_modules", rule, _ALL[0])
        return "all_linear"
    if asked not in TARGETS:
        rule = "must be all-linear, or {}: others are not counted yet".format(
            ", or ".join(" ".join(sorted(names)) for names in TARGETS))
        raise options.error("lora_target_modules", rule, "all-linear")
    return TARGETS[asked]
