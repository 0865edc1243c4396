"""Low-rank adapters beside the linear layers of Megatron-Core's own model, built as Megatron-Bridge builds them.

Megatron-Bridge itself needs Transformer Engine; its ``ParallelLinearAdapter`` is two linear layers of Megatron-Core
without sequence parallelism, put together here as read in ``peft/utils.py`` and ``peft/canonical_lora.py`` of 0.3.1.
Transformer Engine's norm hands the gathered input to all adapters of a projection, so it is gathered once here too. Its
``LayerNormLinear`` keeps the norm's output for the backward pass where it hands it out, also with frozen weights.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear
from megatron.core.tensor_parallel.mappings import (
    gather_from_sequence_parallel_region,
    scatter_to_sequence_parallel_region,
)
from megatron.core.transformer.moe.shared_experts import SharedExpertMLP
from oracles.megatron_core.megatron_cpu import NormedLinear
from torch import Tensor, nn

#: Projections that have adapters, by the ledger's choice ``adapters``.
TARGETS = {
    "qkv": ("linear_qkv",), "attention": ("linear_qkv", "linear_proj"),
    "all_linear": ("linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"),
}


#: Projections behind a norm: Transformer Engine's layers of both, but in experts.
_WITH_NORM = ("linear_qkv", "linear_fc1")


class Adapter(nn.Module):
    """Two matrices of Megatron-Core: column-parallel ones, but the first of a row-parallel projection."""

    def __init__(
        self, settings: Any, columns: int, rows: int, rank: int, *, row_parallel: bool, is_expert: bool,
    ) -> None:
        super().__init__()
        kind = RowParallelLinear if row_parallel else ColumnParallelLinear
        more = {"input_is_parallel": True, "skip_bias_add": True} if row_parallel else {
            "gather_output": True, "disable_grad_reduce": settings.sequence_parallel}
        settings = replace(settings, sequence_parallel=False)
        alone: Any = {"config": settings, "bias": False, "init_method": nn.init.zeros_, "is_expert": is_expert}
        self.linear_in = kind(columns, rank, **alone, **more)
        self.linear_out = ColumnParallelLinear(rank, rows, gather_output=row_parallel, **alone)

    def forward(self, hidden: Tensor) -> Tensor:
        """Multiply with both, and scale."""
        return self.linear_out(self.linear_in(hidden)[0])[0] * 0.5


class NormOutputKept(torch.autograd.Function):
    """The output of a norm as ``LayerNormLinear`` hands it out: unchanged, and saved for the backward pass."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor) -> Tensor:
        """Save a tensor."""
        ctx.save_for_backward(hidden)
        return hidden.view_as(hidden)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        """Return the gradient as it is."""
        return gradient


class Adapted(nn.Module):
    """A frozen linear layer with one adapter, or with one for each of the ``parts`` of its rows.

    A layer may be one ``with_norm``, whose output is its input.
    """

    def __init__(self, base: Any, rank: int, parts: tuple[int, ...], with_norm: bool) -> None:
        super().__init__()
        self.with_norm = with_norm
        self.base, self.row_parallel = base, isinstance(base, RowParallelLinear) or getattr(base, "is_row", False)
        is_expert = bool(getattr(base, "is_expert", False))
        self.gathers = base.config.sequence_parallel and not is_expert
        self.adapters = nn.ModuleList(
            Adapter(base.config, base.input_size, rows, rank, row_parallel=self.row_parallel, is_expert=is_expert)
            for rows in parts
        )

    def forward(self, hidden: Tensor, *args: Any, **more: Any) -> tuple[Tensor, Any]:
        """Add the outputs of the adapters to that of the frozen layer."""
        projected = self.base
        if isinstance(self.base, NormedLinear):  # it hands out the output of its norm
            hidden, projected = self.base.layer_norm(hidden), self.base.projected
        output, bias = projected(hidden, *args, **more)
        if self.gathers and not self.row_parallel:
            hidden = NormOutputKept.apply(hidden) if self.with_norm else hidden
            hidden = gather_from_sequence_parallel_region(hidden)
        parts = [adapter(hidden) for adapter in self.adapters]
        added = torch.cat(parts, -1) if len(parts) > 1 else parts[0]
        if self.gathers and self.row_parallel:
            added = scatter_to_sequence_parallel_region(added)
        return output + added.reshape(output.shape), bias


def with_gradient(_: nn.Module, args: Any, more: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Make the input of all layers need a gradient."""
    hidden = more["hidden_states"]
    needed = hidden if hidden is None or hidden.requires_grad else hidden.detach().requires_grad_()
    return args, {**more, "hidden_states": needed}


def adapt(model: Any, rank: int, adapters: str, *, apart: bool) -> None:
    """Freeze a model and put adapters beside projections.

    ``apart`` gives queries, keys, values, gate and up an adapter each. Where layers are recomputed in full, their input
    is made to need a gradient, without which PyTorch never calls the backward pass of a checkpoint.
    """
    model.requires_grad_(False)
    if hasattr(model, "decoder") and model.config.recompute_granularity == "full":
        model.decoder.register_forward_pre_hook(with_gradient, with_kwargs=True)
    for module in [*model.modules()]:
        for name in TARGETS[adapters]:
            base = getattr(module, name, None)
            if base is None or isinstance(base, Adapted):
                continue
            parts = (base.output_size,)
            if apart and name == "linear_qkv":
                settings = base.config
                heads = (settings.num_attention_heads, settings.num_query_groups, settings.num_query_groups)
                parts = tuple(settings.kv_channels * count for count in heads)
            elif apart and name == "linear_fc1":
                parts = (base.output_size // 2,) * 2
            with_norm = name in _WITH_NORM and not isinstance(module, SharedExpertMLP)
            setattr(module, name, Adapted(base, rank, parts, with_norm))
