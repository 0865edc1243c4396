"""Buckets of PyTorch's DistributedDataParallel, and the pieces in which it first broadcasts a model.

By the source of PyTorch 2.13 (``torch/csrc/distributed/c10d/reducer.cpp``, ``torch/nn/parallel/distributed.py``): where
unused parameters are looked for, the constructor cuts buckets in the order of the model and makes the last first. Else
one bucket has all gradients in the first step, and the second step cuts buckets in the order of the gradients.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from shardmath.steps.rows import Rows
from shardmath.steps.trace import Trace

MIB = 2**20
#: Bytes that close a bucket; those that close the first one, and every other one, in PyTorch's own step.
BUCKET = 25 * MIB
CAPS = (MIB, BUCKET)
#: Bytes that close a piece of parameters that is broadcast, and pieces on their way at a time.
PIECE, ON_THE_WAY = 250 * MIB, 2
NAME = "buckets"


def cut(sizes: Iterable[int], caps: Sequence[int]) -> list[list[int]]:
    """Cut ``sizes`` into groups: a group is closed when it has the bytes of its cap, of which the last holds on."""
    groups: list[list[int]] = [[]]
    for size in sizes:
        groups[-1].append(size)
        if sum(groups[-1]) >= caps[min(len(groups), len(caps)) - 1]:
            groups.append([])
    return groups if groups[-1] else groups[:-1]


class Buckets:
    """Allocate the buckets of a rank, exactly as many bytes as the account has of them."""

    def __init__(self, rows: Rows, trace: Trace) -> None:
        self._rows, self._trace = rows, trace
        self._bytes = int(rows.account.get(f"stage.{NAME}.buffer", 0))
        self._each = rows.sizes["state.bucket"] if self._bytes else 0  # nanotron's are gradients
        self._whole: list[int] = []

    def make(self) -> None:
        """Broadcast the parameters, and make the buckets of the first step."""
        if not self._each:
            return
        sizes, everything = self._of_parameters(frozen=False), self._of_parameters(frozen=None)
        on_the_way: deque[int] = deque()
        for piece in cut(everything, [PIECE]):
            if len(on_the_way) == ON_THE_WAY:
                self._trace.free(on_the_way.popleft())
            size = sum(piece) if len(piece) > 1 else 0  # a single parameter is no copy
            on_the_way.append(self._trace.allocate(size, NAME))
        for key in on_the_way:
            self._trace.free(key)
        if used := self._bytes - sum(sizes):
            for bucket in reversed(cut(sizes, CAPS)):
                self._trace.allocate(sum(bucket), NAME)
            self._trace.allocate(used, NAME)
        else:
            self._whole = [self._trace.allocate(sum(sizes), NAME)]

    def _of_parameters(self, frozen: bool | None) -> list[int]:
        """Return the bytes of parameters in the order of modules: of those that are trained, or with None of all."""
        rows = self._rows
        return [self._each * count for experts in (False, True)
                for count in rows.weights(experts, rows.modules, frozen)]

    def remake(self, elements: Sequence[int]) -> None:
        """Make the buckets of the second step anew, of gradients with so many ``elements`` in their order."""
        self._trace.free_all(self._whole)
        for bucket in cut([self._each * count for count in elements], CAPS) if self._whole else ():
            self._trace.allocate(sum(bucket), NAME)
        self._whole = []
