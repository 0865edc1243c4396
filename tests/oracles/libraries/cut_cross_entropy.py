"""Bytes that a forward pass with cut cross entropy leaves alive; its kernels, which allocate nothing, do not run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from oracles.hugging_face.huggingface import causal_lm, token_ids
from oracles.instruments.live import Live

TABLE = "fused_heads"
os.environ["TORCHDYNAMO_DISABLE"] = "1"


class Idle:
    """A kernel that is launched and does nothing."""

    def __getitem__(self, _: Any) -> Callable[..., None]:
        return lambda *_, **__: None


def has(row: Mapping[str, str]) -> bool:
    """True for the rows of this loss."""
    return row["loss"] == "cut"


def count(row: Mapping[str, str]) -> dict[str, int]:
    """Run the model and the loss, keep the loss alone; count what is alive beside weights, ids and labels."""
    for name in ("cce_lse_forward", "cce_backward", "indexed_dot"):
        module = import_module(f"cut_cross_entropy.{name}")
        for kernel in [each for each in vars(module) if each.startswith("_") and each.endswith("_kernel")]:
            setattr(module, kernel, Idle())
    shape = {letter: int(row[letter]) for letter in ("h", "a", "k", "d", "f", "u", "L", "tied", "s", "b")}
    model: Any = causal_lm(row["family"], shape, "sdpa")
    model.lm_head.weight.requires_grad_(row["head"] == "trained")
    ids, labels = token_ids(shape), token_ids(shape)
    with Live(model, ids, labels) as live:
        hidden = model.model(input_ids=ids).last_hidden_state
        loss = import_module("cut_cross_entropy").linear_cross_entropy(
            hidden, model.lm_head.weight, labels, shift=True, impl="cce")
        del hidden
        assert loss.requires_grad
        return {"kept": live.now}
