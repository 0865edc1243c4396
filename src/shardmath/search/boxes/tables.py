"""Exact ranges of nodes over a few axes: computed for every legal combination, then reduced over the axes left free."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardmath.compiler.expressions import ops
from shardmath.compiler.expressions.arrays import operated, steps_of
from shardmath.compiler.expressions.graph import Node, ordered
from shardmath.search.spaces import Axis

#: Rows of a table of numbers, and of one that only says what is legal: at most so many, those of free axes included.
NUMBERS, LEGAL = 40_000, 1_500_000


def rows_of(axes: Sequence[Axis], mask: int) -> int:
    """Return rows of a table of some axes, as bits: one for each combination of places, a free axis among them."""
    return prod(axis.size + 1 for place, axis in enumerate(axes) if mask >> place & 1)


class Table:
    """Ranges of some nodes over the same axes; a place before the first one of an axis stands for all of its places.

    Only combinations count that meet every condition on these axes. ``legal`` says where there is one.
    """

    def __init__(
        self, axes: Sequence[tuple[int, Axis]], nodes: Iterable[Node], conditions: Sequence[Node],
        common: Mapping[Node, Any], low: NDArray[np.float64], high: NDArray[np.float64],
    ) -> None:
        """Compute all combinations of ``axes``, each with its place among those of the space.

        The least and the largest values of ``nodes`` go to the rows of ``low`` and ``high``. Those of a condition are
        0 or 1: whether it surely holds, and whether it may.
        """
        self.places = tuple(place for place, _ in axes)
        self.nodes = tuple(nodes)
        self._shape = [axis.size for _, axis in axes]
        indices = np.indices(self._shape).reshape(len(axes), -1)
        names = {name: np.asarray(column, np.float64)[at]
                 for (_, axis), at in zip(axes, indices, strict=True) for name, column in axis.values.items()}
        values = dict(common)
        with np.errstate(all="ignore"):
            inside = [node for node in ordered([*self.nodes, *conditions]) if node not in values]
            for node, last in steps_of(inside, {*self.nodes, *conditions, *common}):
                values[node] = names[str(node.value)] if node.op == ops.NAME else operated(node, values)
                for arg in last:
                    del values[arg]
        legal = np.ones(prod(self._shape), np.bool_)
        for condition in conditions:
            legal &= values[condition]
        self.legal = np.empty(prod(size + 1 for size in self._shape), np.bool_)
        self._reduce([legal], self.legal, np.max)
        for ends, end, reduce in ((low, np.inf, np.min), (high, -np.inf, np.max)):
            columns = (np.where(legal, values[node], end) for node in self.nodes)
            self._reduce(columns, ends, reduce)
            truths = np.asarray([node.is_condition for node in self.nodes], np.bool_)
            ends[truths] = ends[truths] > 0

    def steps(self, axes: int) -> list[int]:
        """Return for each of all axes how many rows further the table has a box that is one place further."""
        steps, step = [0] * axes, 1
        for place, size in zip(reversed(self.places), reversed(self._shape), strict=True):
            steps[place] = step
            step *= size + 1
        return steps

    def _reduce(self, columns: Iterable[Any], ends: NDArray[Any], reduce: Callable[..., NDArray[Any]]) -> None:
        """Write columns to the rows of ``ends``, with one more place for each axis."""
        grids = ends.reshape(-1, *(size + 1 for size in self._shape))
        inside, every = [slice(1, None)] * len(self._shape), slice(None)
        for grid, column in zip(grids, columns, strict=True):
            grid[tuple(inside)] = column.reshape(self._shape)
            for axis in range(len(self._shape)):
                before, behind = [every] * axis, inside[axis + 1:]
                grid[(*before, 0, *behind)] = reduce(grid[(*before, inside[axis], *behind)], axis=axis)


def homes(
    wanted: Mapping[Node, int], conditions: Sequence[int], size: Callable[[int], int],
) -> tuple[dict[Node, int], list[int]]:
    """Return the axes of the table of each node, and those of every table, as bits.

    ``wanted`` has the axes that nodes depend on, ``conditions`` those of conditions, ``size`` counts rows. A table has
    as many axes of conditions beside its own as there is room for: what is legal then bounds its numbers.
    """
    small = [mask for mask in dict.fromkeys(conditions) if size(mask) <= NUMBERS]
    widened: dict[int, int] = {}
    for mask in {*wanted.values(), *small}:
        wide = mask
        while more := [wide | other for other in small
                       if other & ~wide and other & wide and size(wide | other) <= NUMBERS]:
            wide = min(more, key=lambda both: (size(both), both))
        widened[mask] = wide
    large = [mask for mask in dict.fromkeys(conditions) if NUMBERS < size(mask) <= LEGAL]
    kept = list(dict.fromkeys(widened[mask] for mask in wanted.values()))
    kept += [widened[mask] for mask in small if not any(mask & ~wide == 0 for wide in kept)]
    return {node: widened[mask] for node, mask in wanted.items()}, list(dict.fromkeys([*kept, *large]))
