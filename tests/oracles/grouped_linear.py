"""A stand-in for Transformer Engine's grouped product of experts, which keeps its input as the real one does.

It computes nothing. Where its weights are frozen it keeps no input (``_GroupedLinear.forward`` of Transformer Engine).
"""

from __future__ import annotations

from typing import Any

import torch
from oracles.megatron_cpu import BF16
from torch import Tensor, nn


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: Tensor, outputs: int, *weights: Tensor) -> Tensor:
        ctx.save_for_backward(hidden if weights[0].requires_grad else None, *weights)
        return hidden.new_zeros(len(hidden), outputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        _, *weights = ctx.saved_tensors
        return gradient.new_zeros(len(gradient), weights[0].shape[1]), None, *(None for _ in weights)


class GroupedLinear(nn.Module):
    """One product for all experts of a rank, each with a matrix and perhaps a bias of its own."""

    def __init__(
        self, experts: int, inputs: int, outputs: int, *, config: Any, bias: bool, skip_bias_add: bool,
        tp_comm_buffer_name: str, **_: Any,
    ) -> None:
        super().__init__()
        self.config, self.is_expert, self.is_row = config, True, tp_comm_buffer_name == "fc2"
        self.input_size, self.output_size = inputs, outputs
        self._outputs, self._apart = outputs, bias and skip_bias_add
        self.weights = nn.ParameterList(torch.zeros(outputs, inputs, dtype=BF16) for _ in range(experts))
        self.biases = nn.ParameterList(torch.zeros(outputs, dtype=BF16) for _ in range(experts * bias))

    def forward(self, hidden: Tensor, _: list[int]) -> tuple[Tensor, list[Tensor] | None]:
        """Keep the input; a bias that is not added is handed out."""
        return _Product.apply(hidden, self._outputs, *self.weights), list(self.biases) if self._apart else None
