"""AxoNN's tensor parallelism on three axes: what one rank keeps, saves and sends.

A transformer layer made of axonn's own linear layers in its expert mode, where a person shares out what lies between
them: the residual stream is whole on the ranks of x and y, a part of it is dropped before the first projection of a
block and gathered behind the second, whose layout is transposed. Norms and core attention are stand-ins that save what
fused kernels do.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from axonn import axonn as ax
from axonn.intra_layer import Drop, Gather, Linear, sync_gradients
from oracles.megatron_core import fused
from oracles.megatron_core.megatron_cpu import BF16, CpuForCuda, Shape
from torch import Tensor, nn


@contextmanager
def three_axes(shape: Shape) -> Iterator[Any]:
    """Be one rank of a job of t ty tz D processes that exist or not; yields axonn's groups."""
    grouped = dist.new_group

    def on_cpu(ranks: Any, backend: str) -> Any:
        return grouped([int(rank) for rank in ranks])

    patched = (
        (dist, "new_group", on_cpu), (torch.cuda, "set_device", lambda _: None),
        (torch.cuda, "current_device", lambda: torch.device("cpu")),
    )
    originals = [(module, name, getattr(module, name)) for module, name, _ in patched]
    before = torch.get_default_dtype()
    for module, name, stand_in in patched:
        setattr(module, name, stand_in)
    torch.set_default_dtype(BF16)
    try:
        ax.init(G_inter=1, G_data=shape["D"], G_intra_r=shape["t"], G_intra_c=shape["ty"], G_intra_d=shape["tz"],
                gpus_per_node=8)
        with CpuForCuda():
            yield ax.comm_handle
    finally:
        torch.set_default_dtype(before)
        for module, name, original in originals:
            setattr(module, name, original)


class Config(NamedTuple):
    """Fields of a configuration for the stand-ins of norms."""

    params_dtype: torch.dtype = BF16
    sequence_parallel: bool = False


class Block(nn.Module):
    """Norm, two projections with something between them, and the residual stream."""

    def __init__(self, width: int, outputs: int, inputs: int, bias: bool) -> None:
        super().__init__()
        self.norm = fused.FusedRMSNorm(Config(), width)
        self.first = Linear(width, outputs, bias=bias, expert_mode=True)
        self.second = Linear(inputs, width, bias=bias, expert_mode=True, transpose=True)

    def between(self, hidden: Tensor) -> Tensor:
        """Turn the rank's outputs of the first projection into inputs of the second."""
        raise NotImplementedError

    def forward(self, stream: Tensor) -> Tensor:
        """Drop the other ranks' parts of y, multiply twice, gather them again."""
        hidden = self.first(Drop.apply(self.norm(stream), self.first.inner_group))
        return stream + Gather.apply(self.second(self.between(hidden)), self.first.inner_group)


class Mlp(Block):
    """The MLP with GELU."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape["h"], shape["f"], shape["f"], bool(shape["lbias"]))

    def between(self, hidden: Tensor) -> Tensor:
        """GELU keeps its input."""
        return nn.functional.gelu(hidden)


class Attention(Block):
    """Self-attention of the rank's heads, without rotary embedding."""

    def __init__(self, shape: Shape) -> None:
        self.heads, self.groups, self.width = shape["a"] // shape["t"], shape["k"] // shape["t"], shape["d"]
        query, key = shape["a"] * shape["d"], shape["k"] * shape["d"]
        super().__init__(shape["h"], query + 2 * key, query, bool(shape["lbias"]))

    def between(self, hidden: Tensor) -> Tensor:
        """FlashAttention keeps q, k, v, its output and the log-sum-exp; q, k and v are tensors of their own."""
        parts = (self.heads, self.groups, self.groups)
        q, k, v = hidden.split([count * self.width for count in parts], dim=-1)
        q, k, v = (
            part.reshape(*part.shape[:-1], count, self.width).clone()
            for part, count in zip((q, k, v), parts, strict=True)
        )
        return fused._Flash.apply(q, k, v, 0.0).flatten(-2)


class Layers(nn.Module):
    """The transformer layers of a model, without embedding and head."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(block(shape) for _ in range(shape["L"]) for block in (Attention, Mlp))

    def forward(self, stream: Tensor) -> Tensor:
        """Run the blocks one after another."""
        for block in self.blocks:
            stream = block(stream)
        return stream


def synchronise(model: nn.Module) -> None:
    """Sum gradients as a step of axonn ends: over z what its ranks have in common, over data-parallel ranks all."""
    sync_gradients(model, expert_mode=True)
