"""Bounds of a problem over boxes that are cut in one order, with outward rounding and tables of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
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
from shardmath.search.certificates.outward import ANY, NEGATIVE, POSITIVE, SIGNED, Outward, constant, enclosed, sign_of
from shardmath.search.certificates.ranges import Ranges
from shardmath.search.spaces import Part

#: Values of nodes over other boxes, with the rows of them that are wanted.
Lent: TypeAlias = Mapping[Node, tuple[Outward, NDArray[np.int64]]]
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
class _Stage:
    """Steps on what is left of some children. Each tuple of ``lent`` has nodes of their parents or of a stage before.

    Afterwards a child is left for a question if all of the question's ``conditions`` may hold.
    """

    steps: tuple[Step, ...]
    lent: tuple[tuple[Node, ...], ...]
    conditions: Sequence[Sequence[Node]]


@dataclass(frozen=True)
class _Level:
    """How children of one level are bounded: by ``tables``, steps on their parents, then stages on what is left."""

    tables: tuple[Ranges, ...]
    parents: tuple[Step, ...]
    stages: tuple[_Stage, ...]


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
        self._needed, self._signs = self._outside(self._roots), dict[Node, str]()
        everywhere = self._run([(node, ()) for node in self._needed], np.zeros((1, len(self.order)), np.int16), 0)
        self._signs = {node: sign for node, sign in zip(everywhere, map(sign_of, everywhere.values()), strict=True)
                       if sign in (POSITIVE, NEGATIVE)}
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
        may, ends = np.ones((len(kept), len(self._counting)), np.bool_), np.empty((2, 0, len(self._keys)))
        if len(kept):
            used, at = np.unique(rows[kept], return_inverse=True)
            known = [(self._run(plan.parents, parents[used], level), at)]
        for stage in plan.stages:
            if not len(kept):
                return Enclosed(kept, may, *ends)
            lent = {node: (values[node], at) for nodes, (values, at) in zip(stage.lent, known, strict=True)
                    for node in nodes}
            values = self._run(stage.steps, boxes[kept], level + 1, lent)
            for question, conditions in enumerate(stage.conditions):
                for node in conditions:
                    may[:, question] &= values[node][1]
            left = np.flatnonzero(may.any(axis=1))
            kept, may = kept[left], may[left]
            known = [*((earlier, at[left]) for earlier, at in known), (values, left)]
        less, most = (np.stack([np.broadcast_to(values[node][end], len(kept)) for node in self._keys], axis=1)
                      for end in (0, 1))
        return Enclosed(kept, may, less, most)

    def _run(
        self, steps: Iterable[Step], boxes: Places, levels: int, lent: Lent = MappingProxyType({}),
    ) -> dict[Node, Outward]:
        """Return the values of nodes over boxes, without those that a later step does not need.

        Those that are ``lent`` are taken from the rows beside them at their own step, not before: a column that waits
        for its use takes room in the cache.
        """
        values, signs, rows = dict(self._common), dict(self._signs), dict[int, NDArray[np.int64]]()
        columns = np.ascontiguousarray(boxes.T, np.int64)
        for node, last in steps:
            table = self._home.get(node)
            if node in lent:
                (less, most), at = lent[node]
                values[node] = less[at] if np.ndim(less) else less, most[at] if np.ndim(most) else most
            elif table is not None:
                if id(table) not in rows:
                    rows[id(table)] = table.rows(columns, self.order, levels)
                values[node] = table.taken(node, table.cut(levels), rows[id(table)])
            else:
                if node.op in SIGNED:
                    signs.update((arg, sign_of(values[arg])) for arg in node.args if arg not in signs)
                values[node] = enclosed(
                    node, [values[arg] for arg in node.args], [signs.get(arg, ANY) for arg in node.args])
            for arg in last:
                values.pop(arg, None)
        return values

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
        asked = self._conditions, self._counting, self._keys
        origins, nodes, lent = [set(self._needed) - moved], list[list[Node]](), list[list[tuple[Node, ...]]]()
        for roots in asked:
            nodes.append(ordered_without(roots, self._common, self._home.keys() | set().union(*origins)))
            lent.append([tuple(node for node in nodes[-1] if node in origin) for origin in origins])
            origins.append(set(nodes[-1]).difference(*origins))
        wanted = [dict.fromkeys(node for taken in lent[origin:] for node in taken[origin])
                  for origin in range(len(origins))]
        filters = [self._conditions] * len(self._counting), [[node] for node in self._counting], ()
        return _Level(
            tuple(table for table in self._all_tables if level in table.levels),
            steps_of(self._outside(wanted[0]), {*wanted[0], *self._common}),
            tuple(
                _Stage(steps_of(own, {*roots, *later, *self._common}), tuple(taken), conditions)
                for own, roots, later, taken, conditions in zip(nodes, asked, wanted[1:], lent, filters, strict=True)),
        )

    def _outside(self, roots: Iterable[Node]) -> list[Node]:
        """Return the nodes that ``roots`` are computed from, arguments first, without those inside of tables."""
        return ordered_without(roots, self._common, self._home)
