"""Adapters of NeMo's and Megatron-Bridge's files: rank, targets, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from shardmath.errors import InputError
from shardmath.formats.nemo.adapters import adapters_of, merged

BRIDGE = {"peft._target_": ("megatron.bridge.peft.lora.LoRA",)}
CANONICAL = {"peft._target_": ("megatron.bridge.peft.canonical_lora.CanonicalLoRA",)}
NEMO = {"model.peft.peft_scheme": ("lora",)}
TARGETS, TUNING = "peft.target_modules", "model.peft.lora_tuning"


@pytest.mark.parametrize(("words", "rank", "adapters", "parts"), [
    (BRIDGE, 32, "all_linear", "joined"), ({"peft": ("lora",)}, 32, "all_linear", "joined"),
    ({**BRIDGE, "peft.dim": ("16",), TARGETS: ("linear_qkv",), "peft.dropout": ("0.0",)}, 16, "qkv", "joined"),
    ({**BRIDGE, TARGETS: ("linear_proj", "linear_qkv")}, 32, "attention", "joined"),
    (CANONICAL, 32, "all_linear", "apart"),
    ({**CANONICAL, TARGETS: ("linear_q", "linear_k", "linear_v")}, 32, "qkv", "apart"),
    (NEMO, 32, "qkv", "joined"), ({**NEMO, f"{TUNING}.target_modules": ("all",)}, 32, "all_linear", "joined"),
    ({**NEMO, f"{TUNING}.adapter_dim": ("8",), f"{TUNING}.target_modules": ("attention_qkv", "attention_dense")},
     8, "attention", "joined"),
])
def test_adapters_are_read(words: dict[str, tuple[str, ...]], rank: int, adapters: str, parts: str) -> None:
    arguments, used = adapters_of({**words, "model.hidden_size": ("64",)})
    assert arguments == {"lora_rank": rank, "kernels": {"adapters": adapters, "adapter_parts": parts}}
    assert set(used) == set(words)
    whole: dict[str, Any] = merged({"seq_length": 8, "kernels": {"rope": "unfused"}}, arguments)
    assert whole["kernels"] == {"rope": "unfused", "adapters": adapters, "adapter_parts": parts}


@pytest.mark.parametrize("words", [{}, {"model.peft.peft_scheme": ("none",)}, {"peft": ("none",)}])
def test_files_without_adapters(words: dict[str, tuple[str, ...]]) -> None:
    assert adapters_of(words) == ({}, ())
    assert merged({"seq_length": 8}, {}) == {"seq_length": 8}


@pytest.mark.parametrize(("words", "field"), [
    ({"peft._target_": ("megatron.bridge.peft.dora.DoRA",)}, "peft"), ({**BRIDGE, "peft.dim": ("0",)}, "peft.dim"),
    ({**BRIDGE, "peft.dim": ("x",)}, "peft.dim"), ({**BRIDGE, "peft.dropout": ("0.05",)}, "peft.dropout"),
    ({**BRIDGE, TARGETS: ("*.layers.0.*.linear_qkv",)}, TARGETS), ({**BRIDGE, TARGETS: ("linear_q",)}, TARGETS),
    ({**CANONICAL, TARGETS: ("linear_q", "linear_v")}, TARGETS),
    ({**BRIDGE, "peft.exclude_modules": ("linear_fc1",)}, "peft.exclude_modules"),
    ({"model.peft.peft_scheme": ("ptuning",)}, "model.peft.peft_scheme"),
    ({**NEMO, f"{TUNING}.layer_selection": ("1", "2")}, f"{TUNING}.layer_selection"),
    ({**NEMO, f"{TUNING}.adapter_dropout": ("0.1",)}, f"{TUNING}.adapter_dropout"),
])
def test_what_is_not_counted_is_refused(words: dict[str, tuple[str, ...]], field: str) -> None:
    with pytest.raises(InputError) as caught:
        adapters_of(words)
    assert caught.value.field == field
