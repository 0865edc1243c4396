"""States of 8-bit AdamW after a step on a small model: as Transformers' trainer makes it, and by itself."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from tempfile import TemporaryDirectory
from typing import Any

import torch
from oracles.hugging_face.huggingface import causal_lm
from torch import Tensor

TABLE = "optimizer_states"
DTYPES = {"bf16": torch.bfloat16, "autocast": torch.float32}
#: Tables of values, which all tensors share in bitsandbytes, and the parts of a state of torchao.
_TABLES, _PARTS = ("qmap1", "qmap2"), ("codes", "scale", "qmap")


def has(row: Mapping[str, str]) -> bool:
    """True for all rows."""
    return True


def optimizer_of(name: str, model: Any) -> torch.optim.Optimizer:
    """Make the optimizer of a row."""
    if name == "adamw_8bit":
        trainers = import_module("transformers")
        with TemporaryDirectory() as folder:
            settings = trainers.TrainingArguments(folder, optim="adamw_bnb_8bit", use_cpu=True, report_to=[])
            made: torch.optim.Optimizer = trainers.Trainer(model, settings).create_optimizer()
        return made
    module = {"adamw_8bit_alone": "bitsandbytes.optim", "adamw_8bit_torchao": "torchao.optim"}[name]
    alone: torch.optim.Optimizer = import_module(module).AdamW8bit(model.parameters())
    return alone


def count(row: Mapping[str, str]) -> dict[str, int]:
    """Make a step with gradients of ones; counters of steps are left out."""
    shape = {letter: int(row[letter]) for letter in ("h", "a", "k", "d", "f", "u", "L", "tied")} | {"s": 4, "b": 1}
    model = causal_lm(row["family"], shape, "sdpa", dtype=DTYPES[row["precision"]])
    for one in model.parameters():
        one.grad = torch.ones_like(one)
    optimizer = optimizer_of(row["optimizer"], model)
    with torch.compiler.set_stance("force_eager"):  # torchao compiles the step of every shape
        optimizer.step()
    states = [(name, state) for states in optimizer.state.values() for name, state in states.items()
              if isinstance(state, Tensor) and name != "step"]
    tables = {state.data_ptr(): _bytes(state) for name, state in states if name in _TABLES}
    return {"parameters": sum(one.numel() for one in model.parameters()),
            "states": sum(_bytes(state) for name, state in states if name not in _TABLES),
            "tables": sum(tables.values())}


def _bytes(state: Tensor) -> int:
    parts = [getattr(state, part) for part in _PARTS if hasattr(state, part)] or [state]
    return sum(part.numel() * part.element_size() for part in parts)
