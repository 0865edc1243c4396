"""A stand-in for flash-attn below Transformers' own call of it: no CPU runs its kernels.

It makes and keeps what ``FlashAttnFunc`` does (flash_attn_interface.py of flash-attn 2.8): an output like the queries,
the fp32 log-sum-exp, and gradients like queries, keys and values; ``FlashAttnVarlenFunc`` keeps the bounds of documents
too. Temporaries inside of its kernels are left out, and 16 bytes of random state in each layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel, modeling_flash_attention_utils

#: Name of flash-attn in Transformers.
FLASH = "flash_attention_2"


class _Flash(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, bounds: Tensor | None) -> Tensor:
        output = torch.empty_like(query)
        ctx.save_for_backward(query, key, value, output, query.new_empty(query.shape[:-1], dtype=torch.float32), bounds)
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, *_ = ctx.saved_tensors
        return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value), None


def _attend(
    q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
) -> Tensor:
    output: Tensor = _Flash.apply(q, k, v, None)
    return output


def _attend_in_documents(
    q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor, max_seqlen_q: int, max_seqlen_k: int,
    dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
) -> Tensor:
    output: Tensor = _Flash.apply(q, k, v, cu_seqlens_q)
    return output


def _bounds(documents: int, positions: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
    bounds, longest = torch.empty(documents + 1, dtype=torch.int32), positions.shape[-1] // documents
    return (bounds, bounds), (longest, longest)


def choose(model: PreTrainedModel) -> None:
    """Let a model attend with flash-attn, which it takes for installed."""
    model.config._attn_implementation = FLASH


@contextmanager
def installed(documents: int = 1) -> Iterator[None]:
    """Have flash-attn; whether a sequence is packed, and into what, Transformers asks the values of positions for."""
    library, are_packed = modeling_flash_attention_utils, documents > 1
    process = library._lazy_define_process_function(_attend_in_documents)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(library, "lazy_import_flash_attention",
                        lambda *_, **__: ((_attend, _attend_in_documents, None, None, None), (process, None)))
        patched.setattr(library, "_is_packed_sequence", lambda *_: are_packed)
        patched.setattr(library, "prepare_fa_kwargs_from_position_ids", partial(_bounds, documents))
        yield
