"""Adapters of PEFT beside experts under FSDP2, which train one step on real ranks: what the first one keeps of it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import torch
from oracles.hugging_face.huggingface import token_ids
from oracles.instruments.processes import on_first_rank
from oracles.instruments.storages import storages_in
from oracles.libraries.lora import TARGETS
from oracles.libraries.lora_experts import LETTERS, drawn
from torch.distributed.fsdp import fully_shard

TABLE = "sharded_expert_adapters"


def has(row: Mapping[str, str]) -> bool:
    """True for every row."""
    return True


def count(row: Mapping[str, str]) -> dict[str, Any]:
    """Start the ranks of a row, and return what its first rank counted."""
    return on_first_rank(train, row)


def train(rank: int, row: dict[str, str]) -> dict[str, Any]:
    """Train the adapters by one step of AdamW, each layer and the whole model sharded, as accelerate does."""
    peft = import_module("peft")
    model, shape = drawn(row["family"], int(row["seed"]))
    model = model.to(torch.bfloat16).train()
    model.config._experts_implementation = "grouped_mm"
    model.config._attn_implementation = "sdpa"
    model.enable_input_require_grads()
    modules = "all-linear" if row["adapters"] == "all_linear" else list(TARGETS[row["adapters"]])
    model = peft.get_peft_model(model, peft.LoraConfig(r=int(row["rl"]), target_modules=modules, lora_dropout=0.0),
                                autocast_adapter_dtype=False)
    trained = sum(one.numel() for one in model.parameters() if one.requires_grad)
    for layer in model.base_model.model.model.layers:
        fully_shard(layer)
    fully_shard(model)
    adapters = [one for one in model.parameters() if one.requires_grad]
    optimizer = torch.optim.AdamW(adapters)
    ids = token_ids(shape)
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    moments = [state for states in optimizer.state.values() for state in states.values() if state.ndim]
    return {
        "model": type(model.base_model.model).__name__, **{letter: shape.get(letter, 0) for letter in LETTERS},
        "trained": trained,
        "parameters": storages_in([one.to_local() for one in model.parameters()]).bytes(),
        "gradients": storages_in([one.grad.to_local() for one in adapters]).bytes(),
        "moments": storages_in([state.to_local() for state in moments]).bytes(),
    }
