"""PyTorch's differences on a GPU that change saved tensors: dropout, and autocast's operations in fp32."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

#: On the list of operations that autocast takes in fp32 on a GPU, and not on a CPU's.
_FP32 = (torch.pow, functional.softmax)


class RandomState(torch.autograd.Function):
    """Have attention with dropout keep the seed and the offset of its random numbers."""

    @staticmethod
    def forward(ctx: Any, output: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(*(torch.zeros((), dtype=torch.int64) for _ in range(2)))
        return output.view_as(output)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


class OnGpu(TorchFunctionMode):
    """Run these operations on a CPU as a GPU runs them; ``test_on_gpu`` compares the two.

    A GPU keeps a bool mask of dropout, a CPU factors as wide as the input; its kernel of attention drops out too, and
    keeps what makes the same random numbers again.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one function."""
        kwargs = kwargs or {}
        if func is functional.dropout:
            return self._dropout(*args, **kwargs)
        if func is functional.scaled_dot_product_attention and kwargs.get("dropout_p"):
            return RandomState.apply(func(*args, **kwargs | {"dropout_p": 0.0}))
        if func in _FP32 and torch.is_autocast_enabled("cpu"):
            return func(args[0].float(), *args[1:], **kwargs)
        return func(*args, **kwargs)

    def _dropout(self, value: torch.Tensor, p: float, training: bool, inplace: bool = False) -> torch.Tensor:
        return torch.native_dropout(value, p, True)[0] if p and training else value
