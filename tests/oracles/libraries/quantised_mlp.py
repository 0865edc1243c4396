"""The most that the backward pass of an MLP has beside what lives before it, with Transformer Engine's own layers."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import torch
import torch.distributed as dist
from oracles.libraries._transformer_engine import engine, quantising
from oracles.megatron_cpu import BF16, one_rank
from oracles.quantised_linear import bytes_of_mlp
from torch import Tensor, nn

TABLE = "quantised_mlp"


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


def count(row: Mapping[str, str]) -> dict[str, int]:
    """Return the most that the backward pass of Megatron-Core's MLP has with the library's layers."""
    shape = {letter: int(row[letter]) for letter in "thfs"}
    ranks = shape["t"]
    shape |= {"b": 1, "a": 4, "k": 4, "d": 128, "L": 1, "u": 64, "sp": int(ranks > 1)}
    with one_rank(shape, Random(1)), quantising(row["recipe"]):
        hidden = torch.zeros(shape["s"] // ranks, 1, shape["h"], dtype=BF16, requires_grad=True)
        return {"peak": bytes_of_mlp(shape, _Linear, hidden)[1]}
