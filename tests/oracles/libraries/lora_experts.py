"""Adapters of PEFT in Transformers' models with experts: trained elements and saved bytes of a small model.

PEFT casts 16-bit adapters of a router to fp32 on a CPU alone; here they are multiplied as on a GPU. Those in fp32
are run under autocast, as a trainer with bf16 does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from random import Random
from typing import Any

import torch
from oracles.hugging_face import huggingface_experts as families
from oracles.hugging_face.huggingface import token_ids
from oracles.instruments.saved import Saved
from oracles.libraries.lora import TARGETS

TABLE = "lora_experts"
LETTERS = ("h", "a", "k", "d", "f", "fe", "fs", "sgate", "bias", "qkn", "E", "q", "u", "L", "s", "b")
MAKERS = {"mixtral": families.mixtral, "qwen": families.qwen}


def has(row: Mapping[str, str]) -> bool:
    """True for every row."""
    return True


def drawn(family: str, seed: int) -> tuple[Any, dict[str, int]]:
    """Draw the model of a row and its sizes."""
    draw = Random(seed)
    shape = families.for_grouped_products(families.random_shape(draw) | {"E": draw.randint(2, 6), "q": 2, "f": 8})
    return MAKERS[family](draw, shape)


def count(row: Mapping[str, str]) -> dict[str, Any]:
    """Run one forward pass with loss; inputs need a gradient, as with recompute."""
    peft = import_module("peft")
    model, shape = drawn(row["family"], int(row["seed"]))
    model = model.to(torch.bfloat16).train()
    model.config._experts_implementation = "grouped_mm"
    model.set_attn_implementation("sdpa")
    model.enable_input_require_grads()
    modules = "all-linear" if row["adapters"] == "all_linear" else list(TARGETS[row["adapters"]])
    lora = peft.LoraConfig(r=int(row["rl"]), target_modules=modules, lora_dropout=0.0)
    wide = row["adapter_precision"] == "fp32"
    model = peft.get_peft_model(model, lora, autocast_adapter_dtype=wide)
    ids = token_ids(shape)
    with on_gpu(), Saved() as saved, torch.autocast("cpu", torch.bfloat16, enabled=wide):
        output = model(input_ids=ids, labels=ids)
    assert output.loss is not None
    divided = getattr(model.config, "norm_topk_prob", True)
    return {
        "model": type(model.get_base_model()).__name__, "scores": "softmax" if divided else "softmax_all",
        **{letter: shape.get(letter, 0) for letter in LETTERS},
        "trained": sum(one.numel() for one in model.parameters() if one.requires_grad),
        "saved": saved.bytes(model, ids),
    }


@contextmanager
def on_gpu() -> Iterator[None]:
    """Multiply 16-bit adapters that are added to weights as PEFT does on a GPU."""
    layer = import_module("peft.tuners.lora.layer").Linear
    on_cpu = layer.get_delta_weight
    layer.get_delta_weight = _product
    try:
        yield
    finally:
        layer.get_delta_weight = on_cpu


def _product(layer: Any, adapter: str) -> torch.Tensor:
    return layer.lora_B[adapter].weight @ layer.lora_A[adapter].weight * layer.scaling[adapter]
