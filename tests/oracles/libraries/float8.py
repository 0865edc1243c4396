"""Bytes that an FP8 linear layer of torchao saves for its backward pass, beside its weight."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

import torch
from oracles.instruments.saved import Saved
from torch import nn

TABLE = "float8_saved"


def has(row: Mapping[str, str]) -> bool:
    """True for all rows."""
    return True


def count(row: Mapping[str, str]) -> dict[str, int]:
    """Convert a layer, run it on tokens in bf16; count what it saves."""
    float8 = import_module("torchao.float8")
    layer = nn.Sequential(nn.Linear(int(row["inputs"]), int(row["outputs"]), bias=False, dtype=torch.bfloat16))
    config = float8.Float8LinearConfig.from_recipe_name(row["recipe"])
    model = float8.convert_to_float8_training(layer, config=config)
    tokens = torch.randn(int(row["tokens"]), int(row["inputs"]), dtype=torch.bfloat16, requires_grad=True)
    with Saved() as saved:
        output = model(tokens)
    output.float().sum().backward()
    return {"saved": saved.bytes(model)}
