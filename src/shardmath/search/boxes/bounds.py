"""Bounds of a problem over boxes: some axes have one place, all others any.

Nodes of few axes have exact ranges in tables over legal combinations; all others follow by intervals. Ends are floats
that are rounded to nearest, as in a sweep.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shardmath.compiler.expressions import ops
from shardmath.compiler.expressions.arrays import Step, constants, operated, steps_of
from shardmath.compiler.expressions.graph import Node, ordered
from shardmath.compiler.nests.order import dependencies
from shardmath.compiler.nests.problem import ESTIMATE, Problem
from shardmath.search.boxes.idle import idle_places
from shardmath.search.boxes.intervals import Interval, ranged
from shardmath.search.boxes.tables import NUMBERS, Table, homes
from shardmath.search.spaces import Part

#: The place of every axis, one row for a box; behind the last place stands a free axis.
Places: TypeAlias = NDArray[np.int16]
#: Boxes that are bounded at a time: columns of them stay in the processor's cache.
BATCH = 1 << 13


@dataclass(frozen=True)
class Boxes:
    """Boxes that may have a legal configuration, with bounds of all keys of all questions, a column for each.

    ``may`` and ``surely`` say for each question whether some configuration, and whether every one, counts.
    """

    places: Places
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    may: NDArray[np.bool_]
    surely: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.places)

    def taken(self, rows: NDArray[Any]) -> Boxes:
        """Return some of the boxes."""
        return Boxes(self.places[rows], self.low[rows], self.high[rows], self.may[rows], self.surely[rows])

    @staticmethod
    def joined(parts: Sequence[Boxes]) -> Boxes:
        """Return the boxes of all ``parts``."""
        return Boxes(*(np.concatenate([getattr(part, name) for part in parts])
                       for name in ("places", "low", "high", "may", "surely")))


@dataclass(frozen=True)
class _Plan:
    """How children along an axis are bounded: ``lent`` nodes keep the bounds of their parents, others are computed.

    ``first`` is needed to say which children count, ``then`` for the keys of those, with what is ``kept`` of the first.
    """

    lent: tuple[Step, ...]
    first: tuple[Step, ...]
    then: tuple[Step, ...]
    kept: frozenset[Node]
    tables: tuple[Table, ...]


class Bounds:
    """Bounds of the keys of all questions of a problem."""

    def __init__(self, part: Part, problem: Problem) -> None:
        """Read the problem, and compute its tables."""
        self.part, graph = part, problem.graph
        self.sizes = tuple(axis.size for axis in part.axes)
        keys = [node for question in problem.questions for node in question.keys]
        estimate = {graph.name(ESTIMATE): problem.estimate}
        replaced = graph.replaced([*problem.verdicts, *keys], estimate)
        verdicts, self._keys = replaced[:len(problem.verdicts)], replaced[len(problem.verdicts):]
        self._conditions = [node for _, node in problem.conditions]
        self._counting = [
            graph.truth(True) if question.among is None else graph.logic(ops.OR, verdicts[:question.among])
            for question in problem.questions
        ]
        self._nodes = ordered([*self._conditions, *self._counting, *self._keys])
        self._mask = dependencies([*self._conditions, *self._counting, *self._keys], problem.axes)
        self._idle = idle_places(part, problem, [*self._conditions, *self._counting, *self._keys])
        self._common = self._everywhere()
        self._large = [node for node in self._nodes if self._rows(self._mask[node]) > NUMBERS]
        self._home = self._tables()
        self._reach = self._axes_of_bounds()
        self._least: dict[Node, tuple[float, ...]] = {}
        self._add_signs()
        self._plans = [self._plan(axis) for axis in range(len(self.sizes))]

    @property
    def root(self) -> Places:
        """The box of the whole part."""
        return np.asarray([self.sizes], np.int16)

    def children(self, parents: Places, axis: int) -> Boxes:
        """Return the boxes with one place on ``axis`` each that may have a configuration that counts."""
        step = max(1, BATCH // self.sizes[axis])
        return Boxes.joined([self._children(parents[start: start + step], axis)
                             for start in range(0, len(parents), step)] or [self._none()])

    def _children(self, parents: Places, axis: int) -> Boxes:
        plan, size = self._plans[axis], self.sizes[axis]
        rows, places = np.divmod(np.arange(len(parents) * size), size)
        boxes = parents[rows]
        boxes[:, axis] = places
        alive = np.ones(len(boxes), np.bool_)
        for other, place in self._idle[axis]:
            alive &= (boxes[:, other] != place) | (places == 0)
        for table in plan.tables:
            alive &= table.legal[table.rows(boxes)]
        rows, boxes = rows[alive], boxes[alive]
        if not len(boxes):
            return self._none()
        kept, rows = np.unique(rows, return_inverse=True)
        outer: dict[Node, Interval] = dict(self._common)
        self._computed(plan.lent, parents[kept], outer)
        inner = _Lent(outer, rows)
        self._computed(plan.first, boxes, inner)
        holds = np.ones(len(boxes), np.bool_)
        surely = np.ones(len(boxes), np.bool_)
        for node in self._conditions:
            surely &= inner[node][0]
            holds &= inner[node][1]
        sure, may = (np.stack([np.broadcast_to(inner[node][end], holds.shape) for node in self._counting], axis=1)
                     for end in (0, 1))
        sure, may = sure & surely[:, np.newaxis], may & holds[:, np.newaxis]
        left = np.flatnonzero(may.any(axis=1))
        if not len(left):
            return self._none()
        boxes, sure, may, inner = boxes[left], sure[left], may[left], inner.taken(left, plan.kept)
        self._computed(plan.then, boxes, inner)
        low, high = (np.stack([np.broadcast_to(np.asarray(inner[node][end], np.float64), (len(boxes),))
                               for node in self._keys], axis=1) for end in (0, 1))
        return Boxes(boxes, low, high, may, sure)

    def _none(self) -> Boxes:
        counts, keys = np.empty((0, len(self._counting)), np.bool_), np.empty((0, len(self._keys)))
        return Boxes(self.root[:0], keys, keys, counts, counts)

    def _computed(self, steps: Iterable[Step], boxes: Places, values: dict[Node, Interval]) -> None:
        """Add the bounds of all steps to ``values``, which has those of other arguments, and drop what none needs."""
        rows: dict[int, NDArray[np.int64]] = {}
        with np.errstate(all="ignore"):
            for node, last in steps:
                table = self._home.get(node)
                if table is None:
                    values[node] = ranged(node, [values[arg] for arg in node.args], self._least[node])
                else:
                    if id(table) not in rows:
                        rows[id(table)] = table.rows(boxes)
                    at = rows[id(table)]
                    values[node] = table.low[node][at], table.high[node][at]
                for arg in last:
                    values.pop(arg, None)

    def _rows(self, mask: int) -> int:
        """Return rows of a table of some axes: one for each combination of places, a free axis among them."""
        return prod(size + 1 for place, size in enumerate(self.sizes) if mask >> place & 1)

    def _everywhere(self) -> dict[Node, Interval]:
        """Return the values of nodes that depend on no axis."""
        values = constants(self._nodes)
        with np.errstate(all="ignore"):
            for node in self._nodes:
                if not self._mask[node] and node not in values:
                    values[node] = (np.float64(self.part.fixed[str(node.value)]) if node.op == ops.NAME
                                    else operated(node, values))
        return {node: (value, value) for node, value in values.items()}

    def _add_signs(self) -> None:
        """Find for every node the least values of its arguments anywhere in the part."""
        values: dict[Node, Interval] = dict(self._common)
        for node in self._needed([*self._conditions, *self._counting, *self._keys]):
            self._least[node] = tuple(float(np.min(values[arg][0])) for arg in node.args if arg in values)
            self._computed([(node, ())], self.root, values)

    def _tables(self) -> dict[Node, Table]:
        """Make the tables of nodes that are wanted outside of them, and of conditions."""
        large = set(self._large)
        used = {arg for node in self._large for arg in node.args}.union(
            self._conditions, self._counting, self._keys).difference(large, self._common)
        of_conditions = [self._mask[node] for node in self._conditions if self._mask[node]]
        home, masks = homes({node: self._mask[node] for node in self._nodes if node in used}, of_conditions,
                            self._rows)
        common = {node: low for node, (low, _) in self._common.items()}
        self._by_mask = {
            mask: Table(
                [(place, axis) for place, axis in enumerate(self.part.axes) if mask >> place & 1],
                [node for node, own in home.items() if own == mask],
                [node for node in self._conditions if self._mask[node] and not self._mask[node] & ~mask], common)
            for mask in masks
        }
        return {node: self._by_mask[mask] for node, mask in home.items()}

    def _plan(self, axis: int) -> _Plan:
        """Sort nodes by whether they change along an axis, or are needed for those that do."""
        bit = 1 << axis
        moved = {node for node in self._nodes if self._moves(node, axis)}
        counted = set(self._needed([*self._conditions, *self._counting]))
        roots = {*self._conditions, *self._counting, *self._keys}
        every = self._needed([*self._conditions, *self._counting, *self._keys])
        first = [node for node in every if node in moved and node in counted]
        then = [node for node in every if node in moved and node not in counted]
        args = {arg for node in (*first, *then) if node not in self._home for arg in node.args}
        wanted = [node for node in every if node not in moved and (node in args or node in roots)]
        lent = [node for node in self._needed(wanted) if node not in self._common]
        tables = tuple(table for mask, table in self._by_mask.items() if mask & bit)
        later = {*self._keys, *(arg for node in then for arg in node.args)}
        return _Plan(
            steps_of(lent, {*wanted, *self._common}), steps_of(first, {*later, *roots, *self._common}),
            steps_of(then, {*self._keys, *self._common}), frozenset(later.intersection(first)), tables)

    def _moves(self, node: Node, axis: int) -> bool:
        """Tell whether bounds of a node change with the place on an axis: those of its table, or of an argument."""
        table = self._home.get(node)
        return axis in table.places if table is not None else bool(self._reach[node] >> axis & 1)

    def _axes_of_bounds(self) -> dict[Node, int]:
        """Return the axes that bounds of each node depend on, as bits: those of its table, or of its arguments."""
        reach: dict[Node, int] = {}
        for node in self._nodes:
            table = self._home.get(node)
            reach[node] = (sum(1 << place for place in table.places) if table is not None else
                           _united(reach[arg] for arg in node.args))
        return reach

    def _needed(self, roots: Sequence[Node]) -> list[Node]:
        """Return the nodes that ``roots`` are computed from, arguments first, without those inside of tables."""
        seen: dict[Node, None] = {}
        stack = [(root, False) for root in reversed(roots)]
        while stack:
            node, complete = stack.pop()
            if complete:
                seen[node] = None
            elif node not in seen and node not in self._common:
                stack.append((node, True))
                if node not in self._home:
                    stack.extend((arg, False) for arg in reversed(node.args))
        return list(seen)


class _Lent(dict[Node, Interval]):
    """Bounds of children; those of a node that is not theirs are those of their parents."""

    def __init__(self, outer: dict[Node, Interval], rows: NDArray[np.int64]) -> None:
        super().__init__()
        self.outer, self.rows = outer, rows

    def __missing__(self, node: Node) -> Interval:
        low, high = self.outer[node]
        self[node] = (low[self.rows] if np.ndim(low) else low, high[self.rows] if np.ndim(high) else high)
        return self[node]

    def taken(self, rows: NDArray[np.int64], nodes: frozenset[Node]) -> _Lent:
        """Return the bounds of some nodes for some of the children."""
        lent = _Lent(self.outer, self.rows[rows])
        for node in nodes:
            low, high = self[node]
            lent[node] = low[rows] if np.ndim(low) else low, high[rows] if np.ndim(high) else high
        return lent


def _united(masks: Any) -> int:
    whole = 0
    for mask in masks:
        whole |= mask
    return whole
