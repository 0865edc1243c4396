"""A stand-in for Transformer Engine's grouped product of experts, which keeps its input as the real one does.

It computes nothing. Where its weights are frozen it keeps no input (``_GroupedLinear.forward`` of Transformer Engine).
In FP8 it quantises its input both ways, of which it keeps the copy by columns, and the gradient of its output both
ways, as ``_GroupedLinear`` of release 2.11 does. Asked to, it keeps the input itself, as that does too.
"""

from __future__ import annotations

from typing import Any

import torch
from oracles.megatron_core.megatron_cpu import BF16
from torch import Tensor, nn

#: Recipes by name, and what Megatron-Core calls them.
RECIPES = {"delayed": "delayed", "current": "tensorwise", "block": "blockwise", "mx": "mxfp8", "nvfp4": "nvfp4"}


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, outputs: int, *weights: Tensor) -> Tensor:
        ctx.save_for_backward(hidden if weights[0].requires_grad else None, *weights)
        return hidden.new_zeros(len(hidden), outputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        _, *weights = ctx.saved_tensors
        return gradient.new_zeros(len(gradient), weights[0].shape[1]), None, *(None for _ in weights)


def _quantised(tensor: Tensor, experts: int, recipe: str) -> list[Tensor]:
    """Return copies of one byte by rows and by columns, with scales of blocks, or with an fp32 scale of each expert.

    In NVFP4 a byte has two elements, and each copy lies in one buffer with scales and magnitudes in steps of 16 bytes.
    """
    if recipe == "nvfp4":
        size = tensor.numel() // 2 + tensor.numel() // 16 + 16 * experts - 12
        return [*(torch.zeros(size, dtype=torch.uint8) for _ in range(2)), torch.zeros(0), torch.zeros(0)]
    ways = [torch.zeros(tensor.shape, dtype=torch.uint8) for _ in range(2)]
    if recipe in ("mxfp8", "blockwise"):
        return [*ways, *(torch.zeros(tensor.numel() // 32, dtype=torch.uint8) for _ in ways)]
    scale = torch.zeros(experts)
    return [*ways, scale, scale]


class _QuantisedProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, outputs: int, recipe: str, keeps: bool, *weights: Tensor) -> Tensor:
        by_rows, by_columns, _, scales = _quantised(hidden, len(weights), recipe)
        out = hidden.new_zeros(len(hidden), outputs)
        del by_rows  # update_usage(rowwise_usage=False)
        ctx.recipe, ctx.shape = recipe, hidden.shape
        kept = (hidden, None) if keeps else (by_columns, scales)
        ctx.save_for_backward(*(kept if weights[0].requires_grad else (None, None)), *weights)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        _, _, *weights = ctx.saved_tensors
        quantised = _quantised(gradient, len(weights), ctx.recipe)
        result = gradient.new_zeros(ctx.shape)
        assert len(quantised) == 4  # alive until both products are made
        return result, None, None, None, *(None for _ in weights)


class Unpadded(nn.Module):
    """Padding of the tokens of each expert, where all have a multiple of what FP8 needs: none."""

    def __init__(self, _: int) -> None:
        super().__init__()

    def forward(self, tokens: Tensor, counts: list[int]) -> Any:
        """Return tokens and counts as they are."""
        return tokens, counts


class TakenAway(Unpadded):
    """The way back, which returns tokens alone."""

    def forward(self, tokens: Tensor, counts: list[int]) -> Any:
        """Return tokens as they are."""
        return tokens


class GroupedLinear(nn.Module):
    """One product for all experts of a rank, each with a matrix and perhaps a bias of its own."""

    def __init__(
        self, experts: int, inputs: int, outputs: int, *, config: Any, bias: bool, skip_bias_add: bool,
        tp_comm_buffer_name: str, **_: Any,
    ) -> None:
        super().__init__()
        self.config, self.is_expert, self.is_row = config, True, tp_comm_buffer_name == "fc2"
        self.input_size, self.output_size = inputs, outputs
        self._outputs, self._apart, self.keeps_original = outputs, bias and skip_bias_add, False
        self.weights = nn.ParameterList(torch.zeros(outputs, inputs, dtype=BF16) for _ in range(experts))
        self.biases = nn.ParameterList(torch.zeros(outputs, dtype=BF16) for _ in range(experts * bias))

    def forward(self, hidden: Tensor, _: list[int]) -> tuple[Tensor, list[Tensor] | None]:
        """Keep the input; a bias that is not added is handed out."""
        biases = list(self.biases) if self._apart else None
        if self.config.fp8:
            return _QuantisedProduct.apply(
                hidden, self._outputs, self.config.fp8_recipe, self.keeps_original, *self.weights), biases
        return _Product.apply(hidden, self._outputs, *self.weights), biases
