"""Bytes of all storages that are alive, from one operation to the next, and their peak."""

from __future__ import annotations

from typing import Any

from oracles.instruments.storages import Tally, storages_in
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Live(TorchDispatchMode):
    """Count the bytes that were made inside of the ``with`` block and are alive: now, and at most.

    Every operation is seen below autograd, in the backward pass too. A storage counts from the operation that
    returns it until its last tensor dies, so scratch memory inside of one operation is not seen: what a fused
    kernel needs besides its results is no part of this count. ``known`` are models, inputs and tensors that
    were there before.
    """

    def __init__(self, *known: Any) -> None:
        super().__init__()
        self._tally = Tally(storages_in(*known))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation, then count what it made."""
        result = func(*args, **kwargs or {})
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._tally.add(leaf)
        return result

    @property
    def now(self) -> int:
        """Bytes that are alive."""
        return self._tally.now

    @property
    def peak(self) -> int:
        """Most bytes that were alive at the same time since the start, or since ``restart``."""
        return self._tally.peak

    def restart(self) -> None:
        """Start a new peak from what is alive now."""
        self._tally.restart()
