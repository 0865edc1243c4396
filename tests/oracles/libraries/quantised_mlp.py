"""Bytes that an MLP saves, and the most in its backward pass, with Transformer Engine's own layers, in 16 bits too."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from importlib import import_module
from random import Random
from typing import Any

import torch
import torch.distributed as dist
from megatron.core.tensor_parallel import checkpoint, get_cuda_rng_tracker
from oracles.libraries._transformer_engine import engine, quantising
from oracles.megatron_core.megatron_cpu import BF16, one_rank
from oracles.megatron_core.quantised_linear import bytes_of_mlp
from torch import Tensor, nn

TABLE = "quantised_mlp"
#: Recipe of a row in 16 bits.
PLAIN = "none"


def has(row: Mapping[str, str]) -> bool:
    """True for all rows."""
    return True


class _Linear(nn.Module):
    """One of the library's layers, as Megatron-Core makes it for a rank of an MLP."""

    def __init__(self, inputs: int, outputs: int, *, config: Any, tp_comm_buffer_name: str, **_: Any) -> None:
        super().__init__()
        library, row, ranks = engine(), tp_comm_buffer_name == "fc2", config.tensor_model_parallel_size
        kind, normed = (library.Linear, {}) if row else (library.LayerNormLinear, {"normalization": "RMSNorm"})
        self.layer = kind(
            inputs, outputs, bias=False, params_dtype=BF16, device="cpu", fuse_wgrad_accumulation=True,
            parallel_mode="row" if row else "column", sequence_parallel=ranks > 1, tp_size=ranks,
            tp_group=dist.group.WORLD if ranks > 1 else None, **normed)
        self.layer.weight.main_grad = torch.zeros(self.layer.weight.shape)

    def forward(self, hidden: Tensor) -> tuple[Tensor, None]:
        """Return the output and no bias."""
        return self.layer(hidden, is_first_microbatch=True), None


def _plain_checkpoint(run: Any, hidden: Tensor) -> Any:
    """Keep the input alone, as Megatron-Core does in 16 bits."""
    return checkpoint(run, False, hidden)


def _checkpoint(run: Any, hidden: Tensor) -> Any:
    """Keep the input alone, as Megatron-Core asks the library in FP8. Random states of a GPU have no elements here.

    To look for layers of its own the library would import its attention.
    """
    module = import_module("transformer_engine.pytorch.distributed")
    module._get_cuda_rng_state = lambda *_, **__: torch.empty(0)
    module._set_cuda_rng_state = lambda *_, **__: None
    module.has_te_modules = lambda _: True
    return module.checkpoint(run, hidden, distribute_saved_activations=False,
                             get_rng_state_tracker=get_cuda_rng_tracker, tp_group=None)


def count(row: Mapping[str, str]) -> dict[str, int]:
    """Return what the MLP of Megatron-Core saves with the library's layers, and the most in its backward pass."""
    shape = {letter: int(row[letter]) for letter in "thfs"}
    ranks = shape["t"]
    shape |= {"b": 1, "a": 4, "k": 4, "d": 128, "L": 1, "u": 64, "sp": int(ranks > 1)}
    recipe = row["recipe"]
    again = _plain_checkpoint if recipe == PLAIN else _checkpoint
    engine()
    with one_rank(shape, Random(1)), nullcontext() if recipe == PLAIN else quantising(recipe):
        hidden = torch.zeros(shape["s"] // ranks, 1, shape["h"], dtype=BF16, requires_grad=True)
        saved, peak = bytes_of_mlp(shape, _Linear, hidden, again if row["recompute"] == "mlp" else None)
    return {"saved": saved - hidden.nbytes, "peak": peak}
