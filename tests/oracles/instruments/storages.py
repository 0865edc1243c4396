"""Storages: which memory a tensor lives in, how many bytes that memory has, and whether it is still alive.

All counts of this folder are bytes of storages, not of tensors: ten views of one storage are counted once and
whole. They are not an allocator's bytes either: a GPU rounds every block up to 512 bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from weakref import ReferenceType, ref

from torch import Tensor, UntypedStorage, nn


def storage_of(tensor: Tensor) -> UntypedStorage:
    """Name the memory of a tensor; one object per memory for as long as any tensor lives in it."""
    return tensor.untyped_storage()


class Storages:
    """A set of storages that does not keep them alive."""

    def __init__(self, tensors: Iterable[Tensor] = ()) -> None:
        self._known: dict[int, ReferenceType[UntypedStorage]] = {}
        for tensor in tensors:
            self.add(tensor)

    def add(self, tensor: Tensor) -> None:
        """Add the memory of a tensor, once."""
        storage = storage_of(tensor)
        self._known[storage._cdata] = ref(storage)

    def alive(self) -> list[UntypedStorage]:
        """List the storages that some tensor still lives in."""
        found = (reference() for reference in self._known.values())
        return [storage for storage in found if storage is not None]

    def __contains__(self, storage: UntypedStorage) -> bool:
        reference = self._known.get(storage._cdata)
        return reference is not None and reference() is storage

    def bytes(self, without: Storages | None = None) -> int:
        """Sum up the storages that are alive, leaving out those of another set."""
        return sum(one.nbytes() for one in self.alive() if without is None or one not in without)


class Tally:
    """Bytes of storages from when they are added until they die: now, and at most."""

    def __init__(self, known: Storages) -> None:
        self.now = self.peak = 0
        self._known = known
        self._alive: dict[int, tuple[ReferenceType[UntypedStorage], int]] = {}

    def add(self, tensor: Tensor) -> None:
        """Count the memory of a tensor, once, unless it was known before."""
        storage = storage_of(tensor)
        if storage in self._known:
            return
        key, size = storage._cdata, storage.nbytes()
        if key not in self._alive:
            self._alive[key] = (ref(storage, lambda _: self._forget(key)), 0)
        reference, before = self._alive[key]
        self._alive[key] = (reference, size)  # an operation may resize what it returns
        self.now += size - before
        self.peak = max(self.peak, self.now)

    def _forget(self, key: int) -> None:
        _, size = self._alive.pop(key)  # before the subtraction: another thread may count meanwhile
        self.now -= size

    def restart(self) -> None:
        """Start a new peak from what is alive now."""
        self.peak = self.now


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Go through the tensors of nested tuples, lists and dictionaries, and of models with their buffers."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, nn.Module):
        yield from value.parameters()
        yield from value.buffers()
    elif isinstance(value, dict):
        for one in value.values():
            yield from tensors_in(one)
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from tensors_in(one)


def storages_in(*values: Any) -> Storages:
    """Collect the storages of everything in ``values``."""
    return Storages(tensors_in(values))
