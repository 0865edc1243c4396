"""Bytes that one rank copies and adds up beside its passes: every such call, below autograd."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

#: Kinds of calls by the name of the operator; casts and copies out of buckets have the same one.
_OPERATORS = {
    "all_gather_copy_in": "copied in", "split_with_sizes_copy": "copied out", "chunk_cat": "reduced",
    "_foreach_copy_": "cast",
}


class Copied(TorchDispatchMode):
    """Record what FSDP2 copies inside of the ``with`` block, and what is added or copied to gradients of ``kept``.

    A copy reads its inputs and writes as much as it returns; an addition in place reads two tensors and writes one.
    DistributedDataParallel divides gradients by the number of ranks while it copies them into its buckets, unless
    another function reduces them.
    """

    def __init__(self, kept: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.bytes: Counter[str] = Counter()
        self._kept = list(kept)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Record a copy or an addition, then run it."""
        name = func.__name__.partition(".")[0]
        kind = _OPERATORS.get(name)
        if kind == "copied in":  # its second argument is the whole buffer, of which it writes a part
            self.bytes[kind] += 2 * _size(args[0])
        elif kind:
            self.bytes[kind] += _size(args) + _size(kwargs)
        elif name in ("add_", "copy_") and any(grad is args[0] for grad in self._gradients()):
            size = _size(args[0]) + _size(args[1])
            self.bytes["added" if name == "add_" else "out of buckets"] += size + (name == "add_") * _size(args[0])
        elif name == "copy_" and any(grad is args[1] for grad in self._gradients()):
            self.bytes["into buckets"] += _size(args)
        elif func.__name__ == "mul.out" and kwargs:
            self.bytes["into buckets"] += _size(args[0]) + _size(kwargs["out"])
        return func(*args, **kwargs or {})

    def _gradients(self) -> list[Tensor]:
        grads = [each.grad for each in self._kept if each.grad is not None]
        return [getattr(grad, "_local_tensor", grad) for grad in grads]


def _size(found: Any) -> int:
    return sum(each.nbytes for each in tree_leaves(found) if isinstance(each, Tensor))
