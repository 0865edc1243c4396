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
        self.ends = {node: tuple(self._ends(node, end, column, last) for last, end in enumerate(values[node]))
                     for node in nodes}

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

    def _ends(self, node: Node, end: Any, legal: NDArray[np.bool_], last: int) -> list[NDArray[Any]]:
        """Both ends grow outward: less with its sign changed, most; surely is a conjunction, maybe a disjunction."""
        column = np.broadcast_to(end, legal.shape)
        if node.is_condition:
            return self._reduced(legal & column, np.any) if last else self._reduced(~legal | column, np.all)
        return self._reduced(np.where(legal, column, -np.inf), np.max)

    def _reduced(self, column: NDArray[Any], reduce: Callable[..., Any]) -> list[NDArray[Any]]:
        """Return the column where none of the axes is cut, where the first is, and so on."""
        grid = column.reshape(self._sizes)
        columns = [np.ascontiguousarray(grid).ravel()]
        for _ in self._sizes:
            grid = reduce(grid, axis=-1)
            columns.append(np.ascontiguousarray(grid).ravel())
        return columns[::-1]
