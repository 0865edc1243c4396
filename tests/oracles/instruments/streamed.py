"""Bytes that kernels without matrix products read and write, operation by operation."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

#: Operations that make a tensor without reading or writing its elements.
_UNTOUCHED = {"empty", "empty_like", "new_empty", "empty_strided", "detach", "_unsafe_view", "lift_fresh"}
#: In-place operations that only write.
_WRITTEN = {"copy_", "fill_", "zero_"}
#: Operations that touch one element of each row: what they return or are given instead counts.
_LOOKUPS = {"index", "index_put_", "gather", "scatter_", "nll_loss_forward"}


class Streamed(TorchDispatchMode):
    """Sum what every operation inside of the ``with`` block reads and writes, if each is one kernel.

    Views move nothing; an element that a broadcast repeats is read once. Matrix products and attention are left out.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation and add its bytes."""
        result = func(*args, **kwargs or {})
        name = func.__name__.partition(".")[0]
        moves = func.namespace == "aten" and not func.is_view and name not in _UNTOUCHED | _LOOKUPS
        if moves and func._overloadpacket not in flop_registry:
            # The gradient of a loss by its labels is a tensor of zeros but for one element of each row.
            given = () if name == "nll_loss_backward" else args[1:] if name in _WRITTEN else args
            self.bytes += sum(_bytes(one) for one in tree_leaves((given, result)) if isinstance(one, Tensor))
        return result


def _bytes(tensor: Tensor) -> int:
    elements = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        elements *= size if stride else 1
    return elements * tensor.element_size()
