"""Stand-ins for Transformer Engine's modules in 16 bits: what each makes, keeps and frees, and when.

They compute nothing. Read in ``_Linear`` and ``_LayerNormLinear`` of release 2.11 and ``prepare_forward``: an input is
made contiguous, a rank keeps its own part of it and gathers it again behind the gradient of the output, and what a
function made lives until it returns. Gradients of scales and shifts of norms, which are vectors, are made by
``RmsNormLinear`` and ``LayerNormLinear`` alone.
"""

from __future__ import annotations

from typing import Any

import torch
from megatron.core.transformer.transformer_config import TransformerConfig
from torch import Tensor, nn

DUPLICATED, COLUMN, ROW = "duplicated", "column", "row"


def _numbers(hidden: Tensor) -> Tensor:
    """Make one fp32 number for each token."""
    return hidden.new_zeros(hidden.shape[:-1].numel(), dtype=torch.float32)


def _of_all_ranks(part: Tensor, ranks: int) -> Tensor:
    return part.new_zeros(part.shape[0] * ranks, *part.shape[1:])


class _Product(torch.autograd.Function):
    """A projection, with a norm before it if ``normed``; ``ranks`` of them share out tokens where it gathers."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, mode: str, normed: bool, ranks: int, separate: bool, *vectors: Tensor
    ) -> Tensor:
        ctx.vectors, ctx.mode, ctx.ranks, ctx.separate, ctx.shape = len(vectors), mode, ranks, separate, hidden.shape
        inputs = hidden.view(-1, hidden.shape[-1])
        numbers = [_numbers(inputs) for _ in range(max(1, len(vectors)))] if normed else []
        kept = torch.zeros_like(inputs) if normed else inputs
        whole = _of_all_ranks(kept, ranks) if mode == COLUMN and ranks > 1 else kept
        result = inputs.new_zeros(len(whole), len(weight))
        if mode == ROW and ranks > 1:
            result = result.new_zeros(len(whole) // ranks, len(weight))
        del whole
        ctx.save_for_backward(inputs if normed else None, kept, weight, *numbers)
        return result.view(-1, *hidden.shape[1:-1], len(weight))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        inputs, kept, weight, *_ = ctx.saved_tensors
        gradient = gradient.view(-1, gradient.shape[-1])
        if ctx.mode == ROW and ctx.ranks > 1:
            gradient = _of_all_ranks(gradient, ctx.ranks)
        whole = _of_all_ranks(kept, ctx.ranks) if ctx.mode == COLUMN and ctx.ranks > 1 else kept
        product = gradient.new_zeros(len(gradient), weight.shape[1])
        made = product
        if ctx.mode == COLUMN and ctx.ranks > 1:
            made = product.new_zeros(len(product) // ctx.ranks, weight.shape[1])
        of_weight = torch.zeros_like(weight) if ctx.separate else None
        del whole
        if inputs is not None:
            kept.data = kept.new_empty(0)  # cleared behind the product
        if ctx.mode == ROW and ctx.ranks > 1:
            del gradient
        of_vectors: list[Tensor] = []
        if inputs is not None:
            width = inputs.shape[-1]
            made, *of_vectors = torch.zeros_like(inputs), *(inputs.new_zeros(width) for _ in range(ctx.vectors))
        assert product is not None  # alive until here
        return made.view(ctx.shape), of_weight, None, None, None, None, *of_vectors


class Linear(nn.Module):
    """A projection whose input every rank has whole, of which it has columns or rows, or all."""

    mode, normed, vectors = DUPLICATED, False, 0

    def __init__(self, inputs: int, outputs: int, *, config: TransformerConfig, **_: Any) -> None:
        super().__init__()
        t = config.tensor_model_parallel_size
        size = {DUPLICATED: (outputs, inputs), COLUMN: (outputs // t, inputs), ROW: (outputs, inputs // t)}[self.mode]
        self.weight = nn.Parameter(torch.zeros(size, dtype=config.params_dtype))
        self.scales = nn.ParameterList(torch.zeros(inputs, dtype=config.params_dtype) for _ in range(self.vectors))
        self._ranks = t if config.sequence_parallel else 1
        self._separate = not config.gradient_accumulation_fusion

    def forward(self, hidden: Tensor) -> tuple[Tensor, None]:
        """Return the output and no bias."""
        given = hidden.contiguous()
        own = self.mode, self.normed, self._ranks, self._separate
        return _Product.apply(given, self.weight, *own, *self.scales), None


class ColumnParallelLinear(Linear):
    """A projection of which a rank has some outputs."""

    mode = COLUMN


class LayerNormColumnParallelLinear(ColumnParallelLinear):
    """The same with a norm before it."""

    normed = True


class RmsNormLinear(LayerNormColumnParallelLinear):
    """The same with the gradient of RMSNorm's scale."""

    vectors = 1


class LayerNormLinear(LayerNormColumnParallelLinear):
    """The same with the gradients of LayerNorm's scale and shift, which keeps two numbers for each token."""

    vectors = 2


class RowParallelLinear(Linear):
    """A projection of which a rank has some inputs."""

    mode = ROW


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor) -> Tensor:
        ctx.save_for_backward(hidden, _numbers(hidden))
        return torch.zeros_like(hidden)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return torch.zeros_like(ctx.saved_tensors[0])


class Norm(nn.Module):
    """RMSNorm, which keeps its input and one number for each token."""

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the normalised input."""
        return _Norm.apply(hidden)


class _LatentQueries(torch.autograd.Function):
    """Megatron-Core's kernel that turns queries in place."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return queries.view(-1, *queries.shape[2:]).view(queries.shape)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient.contiguous().view(-1, *gradient.shape[2:]).view(gradient.shape), None, None


class _LatentKeys(torch.autograd.Function):
    """Its kernel that makes keys and values of both parts."""

    @staticmethod
    def forward(ctx: Any, both: Tensor, rotary: Tensor, cos: Tensor, sin: Tensor, turned: int, plain: int) -> Any:
        ctx.save_for_backward(cos, sin)
        ctx.shapes = both.shape, rotary.shape
        *tokens, heads, width = both.shape
        both = both.view(-1, heads, width)
        keys = both.new_zeros(len(both), heads, turned + plain)
        values = both.new_zeros(len(both), heads, width - plain)
        return keys.view(*tokens, heads, -1), values.view(*tokens, heads, -1)

    @staticmethod
    def backward(ctx: Any, keys: Tensor, values: Tensor) -> Any:
        shape, rotary = ctx.shapes
        keys, values = (each.contiguous().view(-1, *each.shape[2:]) for each in (keys, values))
        made, of_rotary = keys.new_zeros(len(keys), *shape[2:]), keys.new_zeros(len(keys), *rotary[2:])
        return made.view(shape), of_rotary.view(rotary), None, None, None, None


def latent_queries(queries: Tensor, cos: Tensor, sin: Tensor, *_: Any) -> Tensor:
    """Turn queries of latent attention."""
    return _LatentQueries.apply(queries, cos, sin)


def latent_keys(both: Tensor, rotary: Tensor, cos: Tensor, sin: Tensor, turned: int, plain: int, *_: Any) -> Any:
    """Make keys and values of latent attention."""
    return _LatentKeys.apply(both, rotary, cos, sin, turned, plain)
