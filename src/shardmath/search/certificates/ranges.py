"""Ranges of nodes over a few axes, computed for every legal combination: one column for each number of cut axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardmath.compiler.expressions import ops
from shardmath.compiler.expressions.arrays import steps_of
from shardmath.compiler.expressions.graph import Node, ordered
from shardmath.search.certificates.outward import Outward, enclosed, sign_of
from shardmath.search.spaces import Axis


class Ranges:
    """Ranges of some nodes over the same axes, of which those that are cut first have a place and the others any.

    Only combinations count that meet every condition on these axes; ``legal`` says where there is one.
    """

    def __init__(
        self, axes: Sequence[tuple[int, Axis]], nodes: Sequence[Node], conditions: Sequence[Node],
        common: Mapping[Node, Outward],
    ) -> None:
        """Compute all combinations of ``axes``, each with its place in the order of cutting, ascending."""
        self.levels = tuple(level for level, _ in axes)
        self._sizes = [axis.size for _, axis in axes]
        values, legal = self._points([axis for _, axis in axes], [*nodes, *conditions], common), np.True_
        for condition in conditions:
            legal = legal & values[condition][1]
        column = np.broadcast_to(legal, (prod(self._sizes),))
        self.legal = self._reduced(column, np.any)
        self._ends = {node: self._ends_by_cut(node, values[node], column) for node in nodes}

    def cut(self, levels: int) -> int:
        """Return how many of these axes are among the first ``levels`` that are cut."""
        return sum(level < levels for level in self.levels)

    def rows(self, places: NDArray[Any], order: Sequence[int], levels: int) -> NDArray[np.int64]:
        """Return where the columns for so many levels have each box; ``places`` have a row for each axis."""
        row = np.zeros(places.shape[1], np.int64)
        for level, size in zip(self.levels[: self.cut(levels)], self._sizes, strict=False):
            row = row * size + places[order[level]]
        return row

    def _points(
        self, axes: Sequence[Axis], roots: Sequence[Node], common: Mapping[Node, Outward],
    ) -> dict[Node, Outward]:
        indices = np.indices(self._sizes).reshape(len(axes), -1)
        names = {name: np.asarray(column, np.float64)[at]
                 for axis, at in zip(axes, indices, strict=True) for name, column in axis.values.items()}
        values = dict(common)
        signs = {node: sign_of(value) for node, value in common.items()}
        for node, last in steps_of([node for node in ordered(roots) if node not in common], {*roots, *common}):
            if node.op == ops.NAME:
                values[node] = -names[str(node.value)], names[str(node.value)]
            else:
                values[node] = enclosed(node, [values[arg] for arg in node.args], [signs[arg] for arg in node.args])
            signs[node] = sign_of(values[node])
            for arg in last:
                del values[arg]
        return values

    def _ends_by_cut(self, node: Node, value: Outward, legal: NDArray[np.bool_]) -> list[tuple[Any, Any]]:
        """Return both ends for each number of cut axes; of points, whose ends are one number, only the second.

        Ends grow outward: less with its sign changed, most; surely is a conjunction, maybe a disjunction.
        """
        less, most = (np.broadcast_to(end, legal.shape) for end in value)
        if node.is_condition:
            firsts, lasts = self._reduced(~legal | less, np.all), self._reduced(legal & most, np.any)
        else:
            firsts, lasts = (self._reduced(np.where(legal, end, -np.inf), np.max) for end in (less, most))
        return [(None if np.array_equal(_mirrored(node, first)[rows], last[rows]) else first, last)
                for first, last, rows in zip(firsts, lasts, self.legal, strict=True)]

    def taken(self, node: Node, cut: int, rows: NDArray[np.int64]) -> Outward:
        """Return the values of a node at rows of the columns for so many cut axes."""
        first, last = self._ends[node][cut]
        most = last[rows]
        return _mirrored(node, most) if first is None else first[rows], most

    def _reduced(self, column: NDArray[Any], reduce: Callable[..., Any]) -> list[NDArray[Any]]:
        """Return the column where none of the axes is cut, where the first is, and so on."""
        grid = column.reshape(self._sizes)
        columns = [np.ascontiguousarray(grid).ravel()]
        for _ in self._sizes:
            grid = reduce(grid, axis=-1)
            columns.append(np.ascontiguousarray(grid).ravel())
        return columns[::-1]


def _mirrored(node: Node, end: Any) -> Any:
    """Return the other end of a point: of a number with its sign changed, of a condition the same."""
    return end if node.is_condition else -end
