"""Adapters of PEFT in dense families with other norms, activations and rotary embeddings, each drawn as a config.json.

As in ``lora_quantised``, adapters in fp32 are run under autocast, with casts as on a GPU.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from random import Random
from typing import Any

import pytest
import torch
from oracles.hugging_face.huggingface import size, token_ids
from oracles.hugging_face.public_families import LONGEST, built, random_config
from oracles.instruments.saved import Saved
from oracles.instruments.storages import storages_in
from oracles.libraries.lora import TARGETS
from oracles.libraries.lora_quantised import as_on_gpu, in_4_bits, quantise, statistics

TABLE = "lora_dense_families"
#: Families that Transformers has no other kernel of attention for.
EAGER = ("gemma2",)


def has(row: Mapping[str, str]) -> bool:
    """True for every row."""
    return True


def count(row: Mapping[str, str]) -> dict[str, Any]:
    """Run one forward pass with loss; inputs need a gradient, as with recompute."""
    draw, is_wide = Random(f"{row['family']} {row['seed']}"), row["adapter_precision"] == "fp32"
    config = random_config(draw, row["family"])
    letters = {"s": size(draw, LONGEST), "b": size(draw, 3), "rl": draw.randint(1, 16)}
    model: Any = built(config, "eager" if row["family"] in EAGER else "sdpa").to(torch.bfloat16)
    quantised = list(quantise(model, in_4_bits)) if row["base_weights"] == "nf4" else []
    model.is_loaded_in_4bit = bool(quantised)
    model.enable_input_require_grads()
    peft = import_module("peft")
    lora = peft.LoraConfig(r=letters["rl"], target_modules=list(TARGETS[row["adapters"]]), lora_dropout=0.0)
    model = peft.get_peft_model(model, lora, autocast_adapter_dtype=False)
    adapters = [one for one in model.parameters() if one.requires_grad]
    for one in adapters:
        one.data = one.data.to(torch.float32 if is_wide else torch.bfloat16)
    tables = [tensor for part in quantised for tensor in statistics(part)]
    ids = token_ids({**letters, "u": config["vocab_size"]})
    with pytest.MonkeyPatch.context() as patched:
        as_on_gpu(patched)
        with Saved() as saved, torch.autocast("cpu", torch.bfloat16, enabled=is_wide):
            output = model(input_ids=ids, labels=ids)
    assert output.loss is not None
    whole, own = storages_in(list(model.parameters())).bytes(), storages_in(adapters).bytes()
    return {
        "config": json.dumps(config), **letters, "weights": whole - own + sum(tensor.nbytes for tensor in tables),
        "adapter_weights": own, "saved": saved.bytes(model, tables, ids),
    }
