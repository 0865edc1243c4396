"""Attention within the documents of a packed sequence, which keeps what flash-attn keeps and counts its products.

It stands in the place of ``flash_attn_varlen_func`` (flash_attn_interface.py: q, k, v, output, log-sum-exp and the
bounds).
"""

from __future__ import annotations

from typing import Any

import torch
from oracles.megatron_core.fused import FlashAttention
from torch import Tensor
from transformers import AttentionInterface
from transformers.modeling_flash_attention_utils import prepare_fa_kwargs_from_position_ids


class Varlen(torch.autograd.Function):
    """Attention within documents; outputs do not matter, saved tensors and pairs of tokens do."""

    pairs = 0

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, window: int | None) -> Tensor:
        out, sums = torch.empty_like(query), query.new_empty(query.shape[1], query.shape[0], dtype=torch.float32)
        ctx.save_for_backward(query, key, value, out, sums, bounds)
        for length in bounds.diff().tolist():
            Varlen.pairs += length * length - (length - min(window or length, length))**2
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        query, key, value, *_ = ctx.saved_tensors
        return torch.zeros_like(query), torch.zeros_like(key), torch.zeros_like(value), None, None


class VarlenAttention(FlashAttention):
    """Attention of Transformer Engine in THD format, which is handed the bounds."""

    def forward(self, query: Tensor, key: Tensor, value: Tensor, *_: Any, **settings: Any) -> Tensor:
        """Keep what the interface keeps; tokens have no dimension of sequences."""
        output: Tensor = Varlen.apply(query, key, self._kept(value), settings["packed_seq_params"].cu_seqlens_q, None)
        return output.flatten(1)


def attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, position_ids: Any = None,
    sliding_window: int | None = None, **_: Any,
) -> Any:
    """Flatten the one sequence as Transformers does, then attend."""
    (bounds, _), _ = prepare_fa_kwargs_from_position_ids(position_ids)
    flat = (part.transpose(1, 2).reshape(-1, part.shape[1], part.shape[3]) for part in (query, key, value))
    return Varlen.apply(*flat, bounds, sliding_window)[None], None


#: Name of this attention in Transformers.
COUNTED = "counted_varlen"
AttentionInterface.register(COUNTED, attend)
