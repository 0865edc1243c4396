"""A stand-in for flash-attn below Transformers' own call of it: no CPU runs its kernels.

It makes and keeps what ``FlashAttnFunc`` does (flash_attn_interface.py of flash-attn 2.8): an output like the queries,
the fp32 log-sum-exp, and gradients like queries, keys and values. Temporaries inside of its kernels are left out, and
16 bytes of random state in each layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel, modeling_flash_attention_utils

#: Name of flash-attn in Transformers.
FLASH = "flash_attention_2"


class _Flash(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        batch, sequence, heads, _ = query.shape
        output = torch.empty_like(query)
        ctx.save_for_backward(query, key, value, output, query.new_empty(batch, heads, sequence, dtype=torch.float32))
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value, *_ = ctx.saved_tensors
        return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)


def _attend(
    q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0, softmax_scale: float | None = None, causal: bool = False,
) -> Tensor:
    output: Tensor = _Flash.apply(q, k, v)
    return output


def choose(model: PreTrainedModel) -> None:
    """Let a model attend with flash-attn, which it takes for installed."""
    model.config._attn_implementation = FLASH


@contextmanager
def installed() -> Iterator[None]:
    """Have flash-attn; no sequence is packed, which Transformers asks the values of positions for."""
    process = modeling_flash_attention_utils._lazy_define_process_function(_attend)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(modeling_flash_attention_utils, "lazy_import_flash_attention",
                        lambda *_, **__: ((_attend, None, None, None, None), (process, None)))
        patched.setattr(modeling_flash_attention_utils, "_is_packed_sequence", lambda *_: False)
        yield
