"""Keys of single configurations, from formulas as they are written: floats round them as loops do.

Bounds come from formulas in other forms, whose sums are in another order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardmath.compiler.expressions import ops
from shardmath.compiler.expressions.graph import Node, ordered_without
from shardmath.compiler.native.objects import native
from shardmath.search.boxes import blocks
from shardmath.search.boxes.programs import least_anywhere
from shardmath.search.boxes.stages import Known, writing_of_keys
from shardmath.search.spaces import Axis

#: Configurations of one block of the machine.
_BLOCK = 512


@dataclass(frozen=True)
class Points:
    """The instructions for keys of configurations. ``values`` has those of all names that axes set, one by one."""

    code: NDArray[np.int64]
    numbers: NDArray[np.float64]
    values: NDArray[np.float64]
    keys: NDArray[np.int64]
    slots: int

    @classmethod
    def of(cls, keys: Sequence[Node], axes: Sequence[Axis], common: Mapping[Node, float]) -> Points:
        """Write the program of some keys; ``common`` are values of nodes of no axis."""
        columns = {(name, number): np.asarray(column, np.float64)
                   for number, axis in enumerate(axes) for name, column in axis.values.items()}
        starts = dict(zip(columns, np.cumsum([0, *map(len, columns.values())]).tolist(), strict=False))
        nodes = ordered_without(keys, common)
        names = {str(node.value): node for node in nodes if node.op == ops.NAME}
        places = {names[name]: (number, starts[name, number]) for name, number in columns if name in names}
        ends = {names[name]: (float(own.min()), float(own.max()))
                for (name, _), own in columns.items() if name in names}
        program, slots = writing_of_keys(nodes, Known(common, places, least_anywhere(nodes, common, ends)), keys)
        return cls(np.asarray(program.code, np.int64).reshape(-1, 7), program.numbers,
                   np.concatenate([*columns.values(), np.empty(0)]), np.asarray(slots, np.int64), program.slots)

    def keys_of(self, places: NDArray[np.int16]) -> NDArray[np.float64]:
        """Return the keys of configurations, a row for each."""
        return np.concatenate([np.empty((0, len(self.keys))), *self._blocks(places.astype(np.int64))])

    def _blocks(self, places: NDArray[np.int64]) -> Iterable[NDArray[np.float64]]:
        run, axes = native(blocks, "run"), places.shape[1]
        low, high = (np.empty((self.slots, _BLOCK)) for _ in "lh")
        at, steps = np.empty((axes, _BLOCK), np.int64), np.eye(axes, dtype=np.int64)
        none, firsts = np.empty(0, np.int64), np.zeros_like(steps)
        for start in range(0, len(places), _BLOCK):
            block = places[start: start + _BLOCK]
            run(self.code, 0, len(self.code), len(block), low, high, self.numbers, self.values, self.values, at, at,
                firsts, steps, 0, block, np.arange(len(block)), none, none, low[:0], high[:0])
            yield low[self.keys, : len(block)].T
