"""Adapters of PEFT in later families with experts, each drawn as a config.json: trained elements and saved bytes.

As in ``lora_experts``, routers are multiplied as on a GPU, and adapters in fp32 are run under autocast.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from random import Random
from typing import Any

import torch
from oracles.hugging_face import test_expert_family_bytes as families
from oracles.hugging_face.huggingface import size, token_ids
from oracles.instruments.saved import Saved
from oracles.libraries.lora import TARGETS
from oracles.libraries.lora_experts import on_gpu
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

TABLE = "lora_families"
#: Families whose attention is eager.
EAGER = ("gpt_oss",)


def has(row: Mapping[str, str]) -> bool:
    """True for every row."""
    return True


def count(row: Mapping[str, str]) -> dict[str, Any]:
    """Run one forward pass with loss; inputs need a gradient, as with recompute."""
    family, draw = row["family"], Random(int(row["seed"]))
    config = getattr(families, family)(draw)
    model: Any = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(family, **config, use_cache=False, pad_token_id=None, bos_token_id=None,
                             eos_token_id=None),
        attn_implementation="eager" if family in EAGER else "sdpa", dtype=torch.bfloat16,
    ).to(torch.bfloat16).train()
    model.config._experts_implementation = "grouped_mm"
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.float()
    model.enable_input_require_grads()
    peft = import_module("peft")
    modules = "all-linear" if row["adapters"] == "all_linear" else list(TARGETS[row["adapters"]])
    letters = {"s": size(draw, families.LONGEST), "b": size(draw, 3), "rl": draw.randint(1, 16)}
    lora = peft.LoraConfig(r=letters["rl"], target_modules=modules, lora_dropout=0.0)
    wide = row["adapter_precision"] == "fp32"
    model = peft.get_peft_model(model, lora, autocast_adapter_dtype=wide)
    ids = token_ids({**letters, "u": config["vocab_size"]})
    with on_gpu(), Saved() as saved, torch.autocast("cpu", torch.bfloat16, enabled=wide):
        output = model(input_ids=ids, labels=ids)
    assert output.loss is not None
    return {
        "config": json.dumps({"model_type": family, **config}), **letters,
        "trained": sum(one.numel() for one in model.parameters() if one.requires_grad),
        "saved": saved.bytes(model, ids),
    }
