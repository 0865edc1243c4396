"""Bounds of a problem over boxes: some axes have one place, all others any.

Nodes of few axes have exact ranges in tables over legal combinations; all others follow by intervals. Ends are floats
that are rounded to nearest, as in a sweep.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import prod
from queue import SimpleQueue
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shardmath.compiler.expressions import ops
from shardmath.compiler.expressions.arrays import constants, operated
from shardmath.compiler.expressions.graph import Node, ordered
from shardmath.compiler.native.objects import native
from shardmath.compiler.nests.order import dependencies
from shardmath.compiler.nests.problem import ESTIMATE, Problem
from shardmath.search.boxes import blocks
from shardmath.search.boxes.idle import idle_places, united
from shardmath.search.boxes.programs import least_anywhere
from shardmath.search.boxes.stages import Known, Nodes, Stages
from shardmath.search.boxes.tables import NUMBERS, Table, homes
from shardmath.search.spaces import Part

#: The place of every axis, one row for a box; behind the last place stands a free axis.
Places: TypeAlias = NDArray[np.int16]
#: Boxes that are bounded in one call of ``children``, and in one block of the machine.
BATCH, BLOCK = 1 << 13, 128
#: Threads that share out a call: the machine runs without the lock of the interpreter.
_THREADS = 2
_POOL = ThreadPoolExecutor(_THREADS)


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


class _Room:
    """The memory of a thread of the machine, for blocks of so many boxes and so many tables."""

    def __init__(self, width: int, tables: int) -> None:
        self._width = width
        self._slots = [np.empty((0, width)) for _ in range(4)]
        self.scratch = (*(np.empty((tables, width), np.int64) for _ in "co"),
                        *(np.empty(width, np.int64) for _ in range(3)))

    def slots_for(self, stages: Stages) -> list[NDArray[np.float64]]:
        """Return the slots of children and of parents, least and largest values."""
        for place, slots in enumerate((stages.slots, stages.outer_slots)):
            if len(self._slots[2 * place]) < slots:
                self._slots[2 * place: 2 * place + 2] = [np.empty((slots, self._width)) for _ in "lh"]
        return self._slots


class Bounds:
    """Bounds of the keys of all questions of a problem."""

    def __init__(self, part: Part, problem: Problem) -> None:
        """Read the problem, and compute its tables."""
        self.part, graph = part, problem.graph
        self.sizes = tuple(axis.size for axis in part.axes)
        self._steps = np.asarray([prod(self.sizes[place + 1:]) for place in range(len(self.sizes))], np.int64)
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
        self._idle_of = [np.asarray(pairs, np.int64).reshape(-1, 2) for pairs in idle_places(
            part, problem, [*self._conditions, *self._counting, *self._keys])]
        self._common = self._everywhere()
        self._large = [node for node in self._nodes if self._rows(self._mask[node]) > NUMBERS]
        self._tables()
        self._reach = self._axes_of_bounds()
        self._every = self._needed([*self._conditions, *self._counting, *self._keys])
        ends = {node: (self._low[start + table.rows(self.root)[0]], self._high[start + table.rows(self.root)[0]])
                for node, (number, start) in self._columns.items() for table in (self._made[number],)}
        self._known = Known(self._common, self._columns, least_anywhere(self._every, self._common, ends))
        self._stages: dict[int, Stages] = {}
        self._children_of = native(blocks, "children")
        self._rooms = SimpleQueue[_Room]()
        for _ in range(_THREADS):
            self._rooms.put(_Room(max(BLOCK, *self.sizes), len(self._made)))

    @property
    def root(self) -> Places:
        """The box of the whole part."""
        return np.asarray([self.sizes], np.int16)

    def numbers(self, places: Places) -> NDArray[np.int64]:
        """Return the numbers of the first configurations of some boxes."""
        return np.where(places == self.sizes, 0, places).astype(np.int64) @ self._steps

    def at(self, numbers: NDArray[np.int64]) -> Places:
        """Return the boxes of some configurations."""
        return (numbers[:, np.newaxis] // self._steps % self.sizes).astype(np.int16)

    def children(self, parents: Places, axis: int) -> Boxes:
        """Return the boxes with one place on ``axis`` each that may have a configuration that counts."""
        step, stages = max(1, BATCH // _THREADS // self.sizes[axis]), self._stages_of(axis)
        pieces = [parents[start: start + step] for start in range(0, len(parents), step)]
        work = map if len(pieces) < _THREADS else _POOL.map
        return Boxes.joined([*work(lambda piece: self._children(piece, axis, stages), pieces)] or [self._none()])

    def _children(self, parents: Places, axis: int, stages: Stages) -> Boxes:
        size = self.sizes[axis]
        count = len(parents) * size
        rows, places = np.empty(count, np.int64), np.empty(count, np.int64)
        low, high = np.empty((count, len(self._keys))), np.empty((count, len(self._keys)))
        may, surely = (np.empty((count, len(self._counting)), np.int8) for _ in range(2))
        room = self._rooms.get()
        done = self._children_of(
            parents.astype(np.int64), axis, size, self._idle_of[axis], self._checked[axis], self._starts, self._members,
            self._strides, self._legal, stages.code, stages.stages, stages.numbers, self._low, self._high,
            *room.slots_for(stages), *room.scratch, stages.counting, stages.kept, stages.keys, rows, places, low, high,
            may, surely,
        )
        self._rooms.put(room)
        boxes = parents[rows[:done]]
        boxes[:, axis] = places[:done]
        return Boxes(boxes, low[:done], high[:done], may[:done].astype(np.bool_), surely[:done].astype(np.bool_))

    def _none(self) -> Boxes:
        counts, keys = np.empty((0, len(self._counting)), np.bool_), np.empty((0, len(self._keys)))
        return Boxes(self.root[:0], keys, keys, counts, counts)

    def _rows(self, mask: int) -> int:
        """Return rows of a table of some axes: one for each combination of places, a free axis among them."""
        return prod(size + 1 for place, size in enumerate(self.sizes) if mask >> place & 1)

    def _everywhere(self) -> dict[Node, float]:
        """Return the values of nodes that depend on no axis."""
        values = constants(self._nodes)
        with np.errstate(all="ignore"):
            for node in self._nodes:
                if not self._mask[node] and node not in values:
                    values[node] = (np.float64(self.part.fixed[str(node.value)]) if node.op == ops.NAME
                                    else operated(node, values))
        return {node: float(value) for node, value in values.items()}

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
        self._legal = np.concatenate([table.legal for table in self._made]).astype(np.int8)
        self._starts = np.cumsum([0, *(len(table.legal) for table in self._made)])
        self._strides = np.asarray([table.strides(len(self.sizes)) for table in self._made], np.int64)
        self._members = np.zeros((len(self._made), 1 + len(self.sizes)), np.int64)
        for number, table in enumerate(self._made):
            self._members[number, : 1 + len(table.places)] = len(table.places), *table.places
        self._checked = [np.asarray([number for number, table in enumerate(self._made) if axis in table.places],
                                    np.int64) for axis in range(len(self.sizes))]

    def _stages_of(self, axis: int) -> Stages:
        """Return the programs of an axis: nodes change along it, or are needed for those that do."""
        if axis not in self._stages:
            moved = {node for node in self._nodes if self._moves(node, axis)}
            roots = {*self._conditions, *self._counting, *self._keys}
            counted = set(self._needed([*self._conditions, *self._counting]))
            first = [node for node in self._every if node in moved and node in counted]
            then = [node for node in self._every if node in moved and node not in counted]
            args = {arg for node in (*first, *then) if node not in self._columns for arg in node.args}
            wanted = [node for node in self._every if node not in moved and (node in args or node in roots)]
            nodes = Nodes(self._needed(wanted), first, then)
            self._stages[axis] = Stages.of(
                nodes, self._known, self._conditions, self._counting, self._keys)
        return self._stages[axis]

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
        seen: dict[Node, None] = {}
        stack = [(root, False) for root in reversed(roots)]
        while stack:
            node, complete = stack.pop()
            if complete:
                seen[node] = None
            elif node not in seen and node not in self._common:
                stack.append((node, True))
                if node not in self._columns:
                    stack.extend((arg, False) for arg in reversed(node.args))
        return list(seen)
