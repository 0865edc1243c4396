"""PyTorch's differences on a GPU that change saved tensors: dropout, and autocast's operations in fp32."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

#: On the list of operations that autocast takes in fp32 on a GPU, and not on a CPU's.
_FP32 = (torch.pow, functional.softmax)


class OnGpu(TorchFunctionMode):
    """Run these operations on a CPU as a GPU runs them; ``test_on_gpu`` compares the two.

    A GPU keeps a bool mask of dropout, a CPU factors as wide as the input.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one function."""
        kwargs = kwargs or {}
        if func is functional.dropout:
            return self._dropout(*args, **kwargs)
        if func in _FP32 and torch.is_autocast_enabled("cpu"):
            return func(args[0].float(), *args[1:], **kwargs)
        return func(*args, **kwargs)

    def _dropout(self, value: torch.Tensor, p: float, training: bool, inplace: bool = False) -> torch.Tensor:
        return torch.native_dropout(value, p, True)[0] if p and training else value
