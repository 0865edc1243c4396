"""Adapters of PEFT on full and 4-bit weights: weights, gradients, states and saved bytes of a small model."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import torch
from oracles.hugging_face.huggingface import causal_lm, token_ids
from oracles.instruments.saved import Saved
from oracles.instruments.storages import storages_in

TABLE = "lora"
#: Projections by the ledger's choice ``adapters``.
_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
TARGETS = {"q_v": ("q_proj", "v_proj"), "qkv": _ATTENTION[:3], "attention": _ATTENTION,
           "all_linear": (*_ATTENTION, "gate_proj", "up_proj", "down_proj")}


def has(row: Mapping[str, str]) -> bool:
    """True for rows in 16 bits."""
    return row["base_weights"] == "full"


def adapted(row: Mapping[str, str], dtype: torch.dtype = torch.bfloat16, **config: Any) -> Any:
    """Make the model of a row with adapters; inputs need a gradient, as with recompute."""
    peft = import_module("peft")
    shape = sizes(row)
    model: Any = causal_lm(row["family"], shape, "sdpa", dtype=dtype)
    model.enable_input_require_grads()
    lora = peft.LoraConfig(r=int(row["rl"]), target_modules=list(TARGETS[row["adapters"]]), lora_dropout=0.0, **config)
    return peft.get_peft_model(model, lora, autocast_adapter_dtype=False).to(dtype)


def sizes(row: Mapping[str, str]) -> dict[str, int]:
    """The sizes of a row by letter."""
    return {letter: int(row[letter]) for letter in ("h", "a", "k", "d", "f", "u", "L", "tied", "s", "b")}


def count(row: Mapping[str, str]) -> dict[str, int]:
    """Train one step with AdamW."""
    return trained(adapted(row), row)


def trained(model: Any, row: Mapping[str, str]) -> dict[str, int]:
    """Train a model with adapters for one step of AdamW."""
    ids = token_ids(sizes(row))
    adapters = [one for one in model.parameters() if one.requires_grad]
    with Saved() as saved:
        output = model(input_ids=ids, labels=ids)
    kept = saved.bytes(model, ids)
    output.loss.backward()
    optimizer = torch.optim.AdamW(adapters)
    optimizer.step()
    states = [state for states in optimizer.state.values() for state in states.values() if state.ndim]
    whole, own = storages_in(list(model.parameters())).bytes(), storages_in(adapters).bytes()
    return {"weights": whole - own, "adapter_weights": own,
            "gradients": storages_in([one.grad for one in adapters]).bytes(), "states": storages_in(states).bytes(),
            "saved": kept}
