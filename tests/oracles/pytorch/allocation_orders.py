"""The order of a step's allocations, as PyTorch's autograd has it on a GPU, in short.

Autograd adds a gradient to one that it alone holds in place, but not below a mode that sees every operation, as a
recorder is one: there each sum is a new tensor. So sums are made in place here where autograd would: when the earlier
gradient is no view. Results of products are such, as a matrix of all tokens is viewed as sequences.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

import torch
from oracles.hugging_face.huggingface import Shape
from oracles.pytorch.sharded_steps import Recorder

from shardmath.allocator.trace import Action, Event

_ADD, _ADD_IN_PLACE, _PRODUCT = torch.ops.aten.add.Tensor, torch.ops.aten.add_.Tensor, torch.ops.aten.mm.default


class InPlace(Recorder):
    """A recorder that adds gradients in place."""

    def __init__(self, are_fake: bool = True) -> None:
        """Record tensors with memory, or without."""
        super().__init__(are_fake)
        self._views: set[int] = set()
        self._is_product = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operation; autograd's own ones build no graph."""
        self._is_product = func is _PRODUCT
        if func is _ADD and not torch.is_grad_enabled() and self._can_take(*args[:2]):
            func = _ADD_IN_PLACE
        return super().__torch_dispatch__(func, types, args, kwargs)

    def _can_take(self, sum: Any, other: Any) -> bool:
        is_like = isinstance(other, torch.Tensor) and sum.shape == other.shape and sum.dtype == other.dtype
        return is_like and sum.untyped_storage()._cdata not in self._views

    def record(self, tensor: torch.Tensor) -> None:
        """Record a storage that is new."""
        before = len(self.events)
        super().record(tensor)
        if len(self.events) > before:
            storage = tensor.untyped_storage()._cdata
            (self._views.add if self._is_product else self._views.discard)(storage)


def least(shape: Shape) -> int:
    """Return the bytes of the smallest tensor that counts: larger than token ids, labels and numbers of each token."""
    return 8 * shape["b"] * (shape["s"] + 1) + 1


def words(events: Iterable[Event], least: int, has_kernels: bool = False) -> list[tuple[list[int], int]]:
    """List the tensors of ``least`` bytes and more that events make: what is freed before each, in any order, and it.

    With ``has_kernels`` those that are freed before the next one is made are left out: temporaries of kernels.
    """
    sizes: dict[int, int] = {}
    made: list[tuple[list[int], int, int]] = []
    freed: list[int] = []
    for event in events:
        if event.action is Action.FREE and event.key in sizes:
            if has_kernels and made and made[-1][2] == event.key:
                freed = made.pop()[0] + freed
            else:
                freed.append(sizes[event.key])
        elif event.action is Action.ALLOCATE and event.size >= least:
            sizes[event.key] = event.size
            made.append((freed, event.size, event.key))
            freed = []
    return [(sorted(before), size) for before, size, _ in made]


def order(events: Iterable[Event], least: int) -> tuple[int, str]:
    """Return how many tensors of ``least`` bytes and more events make, and a digest of their order."""
    made = words(events, least)
    return len(made), sha256("\n".join(f"{freed} {size}" for freed, size in made).encode()).hexdigest()[:16]


def last_passes(events: list[Event]) -> list[Event]:
    """Return a replay's events behind the last tables of RoPE."""
    start = max(place for place, event in enumerate(events)
                if event.action is Action.ALLOCATE and event.row == "tables.rope.sin_bf16")
    return events[start + 1:]


def described(row: Mapping[str, str]) -> tuple[str, Shape, dict[str, Any]]:
    """Return family, sizes and run of a row of the table."""
    shape = {letter: int(row[letter]) for letter in ("k", "a", "d", "h", "f", "b", "s", "u", "L", "tied")}
    return row["family"], shape, {
        "full": row["recompute"] == "full", "holds": row["holds"] == "1", "microbatches": int(row["microbatches"])}
