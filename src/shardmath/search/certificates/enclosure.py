"""Bounds of a problem over boxes that are cut in one order, with outward rounding and tables of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from shardmath.compiler.expressions import ops
from shardmath.compiler.expressions.arrays import Step, steps_of
from shardmath.compiler.expressions.graph import Node, ordered, ordered_without
from shardmath.compiler.nests.order import dependencies
from shardmath.compiler.nests.problem import ESTIMATE, Problem
from shardmath.search.boxes.idle import idle_places
from shardmath.search.boxes.tables import NUMBERS, homes
from shardmath.search.certificates.outward import Outward, constant, enclosed, sign_of
from shardmath.search.certificates.ranges import Ranges
from shardmath.search.spaces import Part

#: The place of every axis, one row for a box; places of axes that are not cut yet mean nothing.
Places: TypeAlias = NDArray[np.int16]


@dataclass(frozen=True)
class Enclosed:
    """Some of the boxes that were asked for, by ``rows``: those that may have a configuration that counts.

    ``may`` says for which questions; ``less`` are lower bounds of all keys with their sign changed, ``most`` upper
    bounds.
    """

    rows: NDArray[np.int64]
    may: NDArray[np.bool_]
    less: NDArray[np.float64]
    most: NDArray[np.float64]


@dataclass(frozen=True)
class _Level:
    """How children of one level are bounded: ``lent`` nodes by steps on parents, then two stages on children.

    ``early`` nodes of parents are for the first stage; ``late`` ones, and ``kept`` ones of the first stage, for the
    second.
    """

    lent: tuple[Step, ...]
    early: tuple[Node, ...]
    late: tuple[Node, ...]
    first: tuple[Step, ...]
    kept: tuple[Node, ...]
    then: tuple[Step, ...]
    tables: tuple[Ranges, ...]


class Enclosure:
    """Bounds of the keys of all questions; all of it is computed inside of ``rounded_upward``."""

    def __init__(self, part: Part, problem: Problem, order: Sequence[int]) -> None:
        """Read the problem, and compute its tables for axes that are cut in this ``order``."""
        self.part, self.order, graph = part, tuple(order), problem.graph
        keys = [node for question in problem.questions for node in question.keys]
        replaced = graph.replaced([*problem.verdicts, *keys], {graph.name(ESTIMATE): problem.estimate})
        verdicts, self._keys = replaced[: len(problem.verdicts)], replaced[len(problem.verdicts):]
        self._conditions = [node for _, node in problem.conditions]
        self._counting = [
            graph.truth(True) if question.among is None else graph.logic(ops.OR, verdicts[: question.among])
            for question in problem.questions
        ]
        self._roots = [*self._conditions, *self._counting, *self._keys]
        self._nodes = ordered(self._roots)
        #: For every axis the places of others at which all of its places are alike.
        self.idle = idle_places(part, problem, self._roots)
        self._common = self._everywhere(dependencies(self._roots, problem.axes))
        self._tables(dependencies(self._roots, problem.axes))
        self._needed = self._outside(self._roots)
        values = dict(self._common)
        for node in self._needed:
            values[node] = self._value(node, values, np.zeros((len(self.order), 1), np.int64), 0)
        self._signs = {node: sign_of(value) for node, value in values.items()}
        self._levels = [self._level(level) for level in range(len(self.order))]

    def alike(self, level: int, boxes: Places) -> NDArray[np.bool_]:
        """Tell which children of a level have what the first child of their parent has, by axes cut before it."""
        axis, before = self.order[level], self.order[:level]
        idle = np.zeros(len(boxes), np.bool_)
        for other, place in self.idle[axis]:
            if other in before:
                idle |= boxes[:, other] == place
        idle &= boxes[:, axis] != 0
        return idle

    def standing_for(self, places: Sequence[int]) -> list[int]:
        """Return the configuration that stands for the one at these places: itself, if all of its axes count."""
        first = list(places)
        for level, axis in enumerate(self.order):
            if any(first[other] == place for other, place in self.idle[axis] if other in self.order[:level]):
                first[axis] = 0
        return first

    def children(self, level: int, parents: Places, rows: NDArray[np.int64], boxes: Places) -> Enclosed:
        """Bound ``boxes``, in which one more axis has a place than in their parents, which are at ``rows``."""
        plan, kept = self._levels[level], np.arange(len(boxes))
        for table in plan.tables:
            kept = kept[table.legal[table.cut(level + 1)][table.rows(boxes[kept].T, self.order, level + 1)]]
        if len(kept):
            used, at = np.unique(rows[kept], return_inverse=True)
            lent = dict(self._common)
            self._run(plan.lent, lent, parents[used], level)
            values = {**self._common, **{node: _taken(lent[node], at) for node in plan.early}}
            self._run(plan.first, values, boxes[kept], level + 1)
            holds = np.ones(len(kept), np.bool_)
            for node in self._conditions:
                holds &= values[node][1]
            may = np.stack([holds & values[node][1] for node in self._counting], axis=1)
            left = np.flatnonzero(may.any(axis=1))
            if len(left):
                values = {**self._common, **{node: _taken(values[node], left) for node in plan.kept},
                          **{node: _taken(lent[node], at[left]) for node in plan.late}}
                self._run(plan.then, values, boxes[kept[left]], level + 1)
                less, most = (np.stack([np.broadcast_to(values[node][end], left.shape) for node in self._keys], axis=1)
                              for end in (0, 1))
                return Enclosed(kept[left], may[left], less, most)
        none = np.empty((0, len(self._keys)))
        return Enclosed(kept[:0], np.empty((0, len(self._counting)), np.bool_), none, none)

    def _run(self, steps: Iterable[Step], values: dict[Node, Outward], boxes: Places, levels: int) -> None:
        rows: dict[int, NDArray[np.int64]] = {}
        columns = np.ascontiguousarray(boxes.T, np.int64)
        for node, last in steps:
            values[node] = self._value(node, values, columns, levels, rows)
            for arg in last:
                values.pop(arg, None)

    def _value(
        self, node: Node, values: dict[Node, Outward], columns: NDArray[np.int64], levels: int,
        rows: dict[int, NDArray[np.int64]] | None = None,
    ) -> Outward:
        table = self._home.get(node)
        if table is None:
            signs = [self._signs[arg] for arg in node.args] if rows is not None else [
                sign_of(values[arg]) for arg in node.args]
            return enclosed(node, [values[arg] for arg in node.args], signs)
        rows = {} if rows is None else rows
        if id(table) not in rows:
            rows[id(table)] = table.rows(columns, self.order, levels)
        less, most = table.ends[node]
        at, cut = rows[id(table)], table.cut(levels)
        return less[cut][at], most[cut][at]

    def _everywhere(self, masks: dict[Node, int]) -> dict[Node, Outward]:
        """Return the values of nodes that depend on no axis."""
        values: dict[Node, Outward] = {}
        for node in self._nodes:
            if node.op in (ops.NUMBER, ops.TRUTH):
                values[node] = constant(node)
            elif not masks[node] and node.op == ops.NAME:
                value = np.float64(self.part.fixed[str(node.value)])
                values[node] = -value, value
            elif not masks[node]:
                args = [values[arg] for arg in node.args]
                values[node] = enclosed(node, args, [sign_of(arg) for arg in args])
        return values

    def _tables(self, masks: dict[Node, int]) -> None:
        """Make the tables: masks have an axis for each bit, in the order of the part."""
        axes, level = self.part.axes, {axis: level for level, axis in enumerate(self.order)}

        def rows(mask: int) -> int:
            return prod(axis.size + 1 for place, axis in enumerate(axes) if mask >> place & 1)

        large = {node for node in self._nodes if rows(masks[node]) > NUMBERS}
        used = {arg for node in large for arg in node.args}.union(self._roots).difference(large, self._common)
        home, tables = homes({node: masks[node] for node in self._nodes if node in used},
                             [masks[node] for node in self._conditions if masks[node]], rows)
        made = {
            mask: Ranges(
                sorted((level[place], axis) for place, axis in enumerate(axes) if mask >> place & 1),
                [node for node, own in home.items() if own == mask],
                [node for node in self._conditions if masks[node] and not masks[node] & ~mask], self._common)
            for mask in tables
        }
        self._all_tables = tuple(made.values())
        self._home = {node: made[mask] for node, mask in home.items()}

    def _level(self, level: int) -> _Level:
        moved: set[Node] = set()
        for node in self._needed:
            table = self._home.get(node)
            if (level in table.levels) if table is not None else any(arg in moved for arg in node.args):
                moved.add(node)
        counted = set(self._outside([*self._conditions, *self._counting]))
        first = [node for node in self._needed if node in moved and node in counted]
        then = [node for node in self._needed if node in moved and node not in counted]
        early, late = ({*roots, *(arg for node in stage if node not in self._home for arg in node.args)}
                       for stage, roots in ((first, (*self._conditions, *self._counting)), (then, self._keys)))
        lent = [node for node in self._needed if node not in moved and node in early | late]
        return _Level(
            steps_of(self._outside(lent), {*lent, *self._common}),
            tuple(node for node in lent if node in early), tuple(node for node in lent if node in late),
            steps_of(first, {*self._conditions, *self._counting, *late, *self._common}),
            tuple(node for node in first if node in late),
            steps_of(then, {*self._keys, *self._common}),
            tuple(table for table in self._all_tables if level in table.levels),
        )

    def _outside(self, roots: Iterable[Node]) -> list[Node]:
        """Return the nodes that ``roots`` are computed from, arguments first, without those inside of tables."""
        return ordered_without(roots, self._common, self._home)


def _taken(value: Outward, rows: NDArray[np.int64]) -> Outward:
    less, most = value
    return less[rows] if np.ndim(less) else less, most[rows] if np.ndim(most) else most
