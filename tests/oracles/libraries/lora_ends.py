"""Adapters of PEFT beside trained copies of embedding and head, or of a head of scores, in bf16 or fp32 under autocast.

PEFT asks for the autocast of GPUs alone: here that of the CPU stands for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from random import Random
from typing import Any

import pytest
import torch
from oracles.hugging_face.huggingface import causal_lm, token_ids
from oracles.instruments.saved import Saved
from oracles.instruments.storages import storages_in
from oracles.libraries.lora import TARGETS, sizes
from oracles.libraries.lora_quantised import as_on_gpu
from oracles.losses.test_reward import compared, reward_model

TABLE = "lora_ends"


def has(row: Mapping[str, str]) -> bool:
    """True for every row."""
    return True


def count(row: Mapping[str, str]) -> dict[str, int]:
    """Train one step with AdamW; the types of weights are those that PEFT leaves."""
    peft, shape, scores = import_module("peft"), sizes(row), row["ends"] == "scores"
    config: dict[str, Any] = {"task_type": "SEQ_CLS"} if scores else {"modules_to_save": ["embed_tokens", "lm_head"]}
    model: Any = (reward_model(Random(0), row["family"], shape) if scores
                  else causal_lm(row["family"], shape, "sdpa", dtype=torch.bfloat16))
    model.enable_input_require_grads()
    lora = peft.LoraConfig(r=int(row["rl"]), target_modules=list(TARGETS[row["adapters"]]), lora_dropout=0.0, **config)
    wide = row["adapter_precision"] == "fp32"
    model = peft.get_peft_model(model, lora, autocast_adapter_dtype=wide)
    trained, ids = [one for one in model.parameters() if one.requires_grad], token_ids(shape)
    with pytest.MonkeyPatch.context() as patched:
        as_on_gpu(patched)
        with Saved() as saved, torch.autocast("cpu", torch.bfloat16, enabled=wide):
            loss = compared(model, ids) if scores else model(input_ids=ids, labels=ids).loss
    kept = saved.bytes(model, ids)
    loss.backward()
    optimizer = torch.optim.AdamW(trained)
    optimizer.step()
    states = [state for states in optimizer.state.values() for state in states.values() if state.ndim]
    whole, own = storages_in(list(model.parameters())).bytes(), storages_in(trained).bytes()
    return {"weights": whole - own, "trained_weights": own,
            "gradients": storages_in([one.grad for one in trained]).bytes(), "states": storages_in(states).bytes(),
            "saved": kept}
