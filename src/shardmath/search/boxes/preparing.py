"""Prepare the machine of bounds for a part: nodes of few axes in tables, all others in programs for each axis.

What is prepared of a large part is kept in the user's cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from shardmath.compiler.expressions import ops
from shardmath.compiler.expressions.arrays import constants, operated
from shardmath.compiler.expressions.graph import Node, ordered, ordered_without
from shardmath.compiler.expressions.intervals import Bounds as Exact
from shardmath.compiler.nests.order import dependencies, nested_order
from shardmath.compiler.nests.posing import posed
from shardmath.compiler.nests.problem import ESTIMATE, Best, Problem
from shardmath.files.cached import keep, kept, key_of, making, source_of
from shardmath.search.boxes import (
    blocks,
    bounds,
    closing,
    idle,
    improving,
    live,
    order,
    packing,
    points,
    prepared,
    programs,
    rounded,
    stages,
    tables,
)
from shardmath.search.boxes import kept as kept_answers
from shardmath.search.boxes import switched as switched_sums
from shardmath.search.boxes.idle import idle_places, united
from shardmath.search.boxes.kept import ALL, Within
from shardmath.search.boxes.live import live_places, with_places
from shardmath.search.boxes.order import settled
from shardmath.search.boxes.packing import packed
from shardmath.search.boxes.points import Points
from shardmath.search.boxes.prepared import Prepared
from shardmath.search.boxes.programs import least_anywhere
from shardmath.search.boxes.stages import Known, Nodes, Stages
from shardmath.search.boxes.switched import switched
from shardmath.search.boxes.tables import NUMBERS, Table, homes, rows_of
from shardmath.search.nests.posing import evaluator_source, is_large, key_in_cache, posing_of, verdict_source
from shardmath.search.spaces import Part, Question

#: Modules that decide what is prepared.
_MODULES = (
    blocks, bounds, closing, idle, improving, kept_answers, live, order, packing, points, prepared, programs, rounded,
    stages, switched_sums, tables,
)


def prepared_for(part: Part, questions: Sequence[Question], within: Within = ALL) -> Prepared:
    """Return what the machine takes for a part and its questions; that of a large part is kept in the cache."""
    posing = posing_of(part, questions, literal=True)

    def make() -> Prepared:
        made = prepare(part, posed(posing, evaluator_source(part), verdict_source())[0])
        return packed(settled(part, made, questions, within))

    if not is_large(part):
        return make()
    axes = [(axis.name, sorted(axis.values.items())) for axis in part.axes]
    rules = programs._PLAIN, programs._ROUNDED, programs._FOLDED
    key = key_of(key_in_cache(part, posing), verdict_source(), axes, sorted(part.fixed.items()), rules, within,
                 *(source_of(module) for module in _MODULES))
    content = kept("bounds", f"{key}.bin")
    if content is not None:
        return Prepared.read(content)
    with making("bounds"):
        made = make()
    keep("bounds", f"{key}.bin", made.written())
    return made


def prepare(part: Part, problem: Problem) -> Prepared:
    """Return what the machine takes for a problem, with its axes in the order of a sweep and without first answers."""
    return _Preparing(part, problem).prepared(problem)


class _Preparing:
    """The graph of a problem, its tables, and what the programs of all axes share."""

    def __init__(self, part: Part, problem: Problem) -> None:
        """Read the problem, and compute its tables."""
        written = _keys_of(problem)
        problem = switched(problem, part)
        graph = problem.graph
        verdicts = graph.replaced(problem.verdicts, {graph.name(ESTIMATE): problem.estimate})
        self._keys = _keys_of(problem)
        self._conditions = [node for _, node in problem.conditions]
        self._counting = [
            graph.truth(True) if question.among is None else graph.logic(ops.OR, verdicts[:question.among])
            for question in problem.questions
        ]
        self._nodes = ordered([*self._conditions, *self._counting, *self._keys])
        self._mask = dependencies([*self._conditions, *self._counting, *self._keys], problem.axes)
        self._common = _everywhere(self._nodes, problem, part)
        self._points = Points.of(written, part.axes, _everywhere(ordered(written), problem, part))
        self._live = live_places(part.axes, self._conditions, self._mask, self._common)
        self.part = replace(part, axes=tuple(map(with_places, part.axes, self._live)))
        self.sizes = tuple(axis.size for axis in self.part.axes)
        self._idle = idle_places(self.part, problem, [*self._conditions, *self._counting, *self._keys])
        self._large = [node for node in self._nodes if self._rows(self._mask[node]) > NUMBERS]
        self._tables()
        self._reach = self._axes_of_bounds()
        self._every = self._needed([*self._conditions, *self._counting, *self._keys])
        ends = {node: (self._low[start], self._high[start]) for node, (_, start) in self._columns.items()}
        self._known = Known(self._common, self._columns, least_anywhere(self._every, self._common, ends))

    def prepared(self, problem: Problem) -> Prepared:
        """Return all of it as arrays."""
        axes, exact = [axis.name for axis in self.part.axes], Exact(problem.graph, {})
        first, count = nested_order(problem), range(len(self.sizes))
        grouping = {name for question in problem.questions if isinstance(question, Best) for name in question.per}
        members = np.zeros((len(self._made), 1 + len(self.sizes)), np.int64)
        steps = np.asarray([table.steps(len(self.sizes)) for table in self._made], np.int64)
        for number, table in enumerate(self._made):
            members[number, : 1 + len(table.places)] = len(table.places), *table.places
        return Prepared(
            np.asarray([axes.index(axis.name) for axis in (*first.shard, *first.loops, *first.fused)], np.int64),
            np.empty(0, np.int64), np.empty((0, len(problem.questions)), np.int8),
            np.asarray([exact.is_integer(node) for question in problem.questions for node in question.keys], np.int8),
            self._low, self._high, np.concatenate([table.legal for table in self._made]).astype(np.int8),
            np.cumsum([0, *(len(table.legal) for table in self._made)]),
            steps, steps.copy(), members,
            self._points, self._live,
            tuple(np.asarray(() if axis in grouping else pairs, np.int64).reshape(-1, 2)
                  for axis, pairs in zip(axes, self._idle, strict=True)),
            tuple(np.asarray([number for number, table in enumerate(self._made) if axis in table.places], np.int64)
                  for axis in count),
            tuple(map(self._stages, count)),
        )

    def _rows(self, mask: int) -> int:
        return rows_of(self.part.axes, mask)

    def _tables(self) -> None:
        """Make the tables of nodes that are wanted outside of them, and of conditions, one behind the other."""
        large = set(self._large)
        used = {arg for node in self._large for arg in node.args}.union(
            self._conditions, self._counting, self._keys).difference(large, self._common)
        of_conditions = [self._mask[node] for node in self._conditions if self._mask[node]]
        home, masks = homes({node: self._mask[node] for node in self._nodes if node in used}, of_conditions,
                            self._rows)
        nodes = {mask: [node for node, own in home.items() if own == mask] for mask in masks}
        self._low, self._high = (np.empty(sum(len(nodes[mask]) * self._rows(mask) for mask in masks)) for _ in "lh")
        self._columns: dict[Node, tuple[int, int]] = {}
        self._made, start = list[Table](), 0
        for number, mask in enumerate(masks):
            rows = self._rows(mask)
            ends = [end[start: start + len(nodes[mask]) * rows].reshape(-1, rows) for end in (self._low, self._high)]
            self._made.append(Table(
                [(place, axis) for place, axis in enumerate(self.part.axes) if mask >> place & 1], nodes[mask],
                [node for node in self._conditions if self._mask[node] and not self._mask[node] & ~mask],
                self._common, *ends))
            self._columns |= {node: (number, start + place * rows) for place, node in enumerate(nodes[mask])}
            start += len(nodes[mask]) * rows

    def _stages(self, axis: int) -> Stages:
        """Return the programs of an axis: nodes change along it, or are needed for those that do."""
        moved = {node for node in self._nodes if self._moves(node, axis)}
        roots = {*self._conditions, *self._counting, *self._keys}
        counted = set(self._needed([*self._conditions, *self._counting]))
        first = [node for node in self._every if node in moved and node in counted]
        then = [node for node in self._every if node in moved and node not in counted]
        args = {arg for node in (*first, *then) if node not in self._columns for arg in node.args}
        wanted = [node for node in self._every if node not in moved and (node in args or node in roots)]
        nodes = Nodes(self._needed(wanted), first, then)
        return Stages.of(nodes, self._known, self._conditions, self._counting, self._keys)

    def _moves(self, node: Node, axis: int) -> bool:
        """Tell whether bounds of a node change with the place on an axis: those of its table, or of an argument."""
        return bool(self._reach[node] >> axis & 1)

    def _axes_of_bounds(self) -> dict[Node, int]:
        """Return the axes that bounds of each node depend on, as bits: those of its table, or of its arguments."""
        reach: dict[Node, int] = {}
        for node in self._nodes:
            places = (self._made[self._columns[node][0]].places if node in self._columns else None)
            reach[node] = sum(1 << place for place in places) if places is not None else united(
                reach[arg] for arg in node.args)
        return reach

    def _needed(self, roots: Sequence[Node]) -> list[Node]:
        """Return the nodes that ``roots`` are computed from, arguments first, without those inside of tables."""
        return ordered_without(roots, self._common, self._columns)


def _keys_of(problem: Problem) -> list[Node]:
    """Return the keys of all questions, with the estimate in them."""
    keys = [node for question in problem.questions for node in question.keys]
    return problem.graph.replaced(keys, {problem.graph.name(ESTIMATE): problem.estimate})


def _everywhere(nodes: Sequence[Node], problem: Problem, part: Part) -> dict[Node, float]:
    """Return the values of those of some nodes, arguments first, that depend on no axis."""
    values, mask = constants(nodes), dependencies(nodes, problem.axes)
    with np.errstate(all="ignore"):
        for node in nodes:
            if not mask[node] and node not in values:
                values[node] = (np.float64(part.fixed[str(node.value)]) if node.op == ops.NAME
                                else operated(node, values))
    return {node: float(value) for node, value in values.items()}
