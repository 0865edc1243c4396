"""Low-rank adapters that files of NeMo (``model.peft``) and Megatron-Bridge (``peft``) ask for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardmath.errors import InputError

Words = Mapping[str, tuple[str, ...]]

_ATTENTION, _MLP = ("linear_qkv", "linear_proj"), ("linear_fc1", "linear_fc2")
#: Names of NeMo for projections, and those of Megatron-Core.
_NEMO: Mapping[str, tuple[str, ...]] = {
    "attention_qkv": ("linear_qkv",), "attention_dense": ("linear_proj",), "mlp_fc1": ("linear_fc1",),
    "mlp_fc2": ("linear_fc2",), "attention": _ATTENTION, "mlp": _MLP, "all": (*_ATTENTION, *_MLP),
}
#: The choice ``adapters`` for projections that have one adapter each, and for their parts.
_JOINED = {("linear_qkv",): "qkv", _ATTENTION: "attention", (*_ATTENTION, *_MLP): "all_linear"}
_PARTS = {"linear_qkv": ("linear_q", "linear_k", "linear_v"), "linear_fc1": ("linear_fc1_up", "linear_fc1_gate")}
_APART = {tuple(part for name in names for part in _PARTS.get(name, (name,))): option
          for names, option in _JOINED.items()}
#: Rank of adapters unless a file says otherwise, in both programs.
_RANK = "32"


def adapters_of(words: Words) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return arguments of ``explain`` for the adapters of a file, and the keys that were read for them.

    Raises InputError that blames a key, for kinds of adapters that are not counted yet too.
    """
    scheme = _word(words, "model.peft.peft_scheme", "none")
    if scheme not in ("none", "null"):
        return _of_nemo(words, scheme)
    name = _word(words, "peft._target_", _word(words, "peft", "none"))
    kind = {"lora": "LoRA"}.get(name, name.rpartition(".")[2])
    return ({}, ()) if kind in ("none", "null") else _of_bridge(words, name, kind)


def merged(arguments: Mapping[str, Any], adapted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a run with those of its adapters; FP8 with adapters is refused where it is counted.

    Experts that are computed one after another have an adapter each.
    """
    kernels = {**arguments.get("kernels", {}), **adapted.get("kernels", {})}
    if adapted and kernels.get("expert_products") == "sequential":
        kernels["expert_adapters"] = "each"
    return {**arguments, **adapted, **({"kernels": kernels} if kernels else {})}


def _of_bridge(words: Words, name: str, kind: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    if kind not in ("LoRA", "CanonicalLoRA"):
        raise InputError("peft", name, "must be LoRA or CanonicalLoRA: others are not counted yet", "LoRA")
    if words.get("peft.exclude_modules"):
        raise InputError("peft.exclude_modules", " ".join(words["peft.exclude_modules"]),
                         "must be empty: adapters of all other modules are not counted yet")
    known, parts = (_JOINED, "joined") if kind == "LoRA" else (_APART, "apart")
    targets = words.get("peft.target_modules") or max(known, key=len)
    arguments = _arguments(words, ("peft.dim", "peft.dropout", "peft.target_modules"), targets, known, parts)
    return arguments, tuple(key for key in words if key == "peft" or key.startswith("peft."))


def _of_nemo(words: Words, scheme: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    if scheme != "lora":
        raise InputError("model.peft.peft_scheme", scheme, "must be lora or none: others are not counted yet", "lora")
    tuning = "model.peft.lora_tuning."
    if words.get(f"{tuning}layer_selection"):
        raise InputError(f"{tuning}layer_selection", " ".join(words[f"{tuning}layer_selection"]),
                         "must be null: adapters in some of the layers are not counted yet", "null")
    targets = tuple(target for name in words.get(f"{tuning}target_modules", ("attention_qkv",))
                    for target in _NEMO.get(name, (name,)))
    keys = tuple(f"{tuning}{key}" for key in ("adapter_dim", "adapter_dropout", "target_modules"))
    arguments = _arguments(words, keys, targets, _JOINED, "joined")
    return arguments, tuple(key for key in words if key.startswith("model.peft."))


def _arguments(
    words: Words, keys: tuple[str, ...], targets: tuple[str, ...], known: Mapping[tuple[str, ...], str], parts: str,
) -> dict[str, Any]:
    """Return the rank and the choices of adapters at ``targets``; ``keys`` name rank, dropout and targets."""
    rank, dropout, modules = keys
    size = _word(words, rank, _RANK)
    if not (size.isascii() and size.isdecimal() and 0 < len(size) < 8 and int(size)):
        raise InputError(rank, size, "must be a positive integer", _RANK)
    share = _word(words, dropout, "0")
    if share.strip("0.") or not share:
        raise InputError(dropout, share, "must be 0: dropout of adapters is not counted yet", "0")
    option = next((option for names, option in known.items() if sorted(names) == sorted(set(targets))), None)
    if option is None:
        rule = f"must be {', or '.join(' '.join(names) for names in known)}: others are not counted yet"
        raise InputError(modules, " ".join(targets), rule, " ".join(next(iter(known))))
    return {"lora_rank": int(size), "kernels": {"adapters": option, "adapter_parts": parts}}


def _word(words: Words, key: str, default: str) -> str:
    return " ".join(words.get(key, (default,)))
