"""Bounds of the keys of all questions over boxes of a part: some axes have one place, all others any.

Nodes of few axes have exact ranges in tables over legal combinations; all others follow by intervals. Ends are floats
that are rounded to nearest, as in a sweep.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import prod
from queue import SimpleQueue
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shardmath.compiler.native.objects import native
from shardmath.search.boxes import blocks
from shardmath.search.boxes.live import DEAD, narrowing
from shardmath.search.boxes.prepared import Prepared
from shardmath.search.boxes.stages import Stages
from shardmath.search.spaces import Part

#: The place of every axis, one row for a box; behind the last place stands a free axis.
Places: TypeAlias = NDArray[np.int16]
#: Boxes that are bounded in one call of ``children``, and in one block of the machine.
BATCH, BLOCK = 1 << 13, 256
#: Threads that share out a call: the machine runs without the lock of the interpreter.
_THREADS = 2


def sharing() -> ThreadPoolExecutor:
    """Return the threads for all bounds of a search: they end with it, so a process that forks later has none."""
    return ThreadPoolExecutor(_THREADS)


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

    def taken(self, rows: NDArray[Any] | slice) -> Boxes:
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
                        *(np.empty(width, np.int64) for _ in range(4)))

    def slots_for(self, stages: Stages) -> list[NDArray[np.float64]]:
        """Return the slots of children and of parents, least and largest values."""
        for place, slots in enumerate((stages.slots, stages.outer_slots)):
            if len(self._slots[2 * place]) < slots:
                self._slots[2 * place: 2 * place + 2] = [np.empty((slots, self._width)) for _ in "lh"]
        return self._slots


class Bounds:
    """Bounds of the keys of all questions of a part."""

    def __init__(self, part: Part, prepared: Prepared, threads: Executor | None = None) -> None:
        """Make room for the machine, which shares out calls among ``threads``."""
        self.part, self.prepared, self._threads = part, prepared, threads
        #: Boxes that were bounded so far.
        self.bounded = 0
        self.sizes = tuple(axis.size for axis in part.axes)
        self._steps = np.asarray([prod(self.sizes[place + 1:]) for place in range(len(self.sizes))], np.int64)
        self.live = tuple(len(places) for places in prepared.live)
        self._narrowed = narrowing(self.sizes, prepared.live)
        self._children_of = native(blocks, "children")
        self._rooms = SimpleQueue[_Room]()
        for _ in range(_THREADS):
            self._rooms.put(_Room(max(BLOCK, *self.sizes), len(prepared.steps)))

    @property
    def root(self) -> Boxes:
        """The box of the whole part."""
        return self.unknown(np.asarray([self.sizes], np.int16))

    def numbers(self, places: Places) -> NDArray[np.int64]:
        """Return the numbers of the first configurations of some boxes."""
        return np.where(places == self.sizes, 0, places).astype(np.int64) @ self._steps

    def held(self, places: Places) -> int:
        """Return how many configurations some boxes have in all, as nearly as floats say."""
        return int(np.where(places == self.sizes, self.sizes, 1).astype(np.float64).prod(axis=1).sum())

    def at(self, numbers: NDArray[np.int64]) -> Places:
        """Return the boxes of some configurations."""
        return (numbers[:, np.newaxis] // self._steps % self.sizes).astype(np.int16)

    def exact(self, boxes: Boxes) -> Boxes:
        """Return boxes of one configuration each with the keys that it has by the formulas as they are written.

        What may be of a single one surely is.
        """
        keys = self.prepared.points.keys_of(boxes.places)
        return replace(boxes, low=keys, high=keys, surely=boxes.may)

    def unknown(self, places: Places) -> Boxes:
        """Return boxes that were not bounded."""
        stages, count = self.prepared.stages[0], len(places)
        low, may = np.full((count, len(stages.keys)), -np.inf), np.ones((count, len(stages.counting)), np.bool_)
        return Boxes(places, low, -low, may, ~may)

    def children(self, parents: Boxes, axis: int) -> Boxes:
        """Return the boxes with one place on ``axis`` each that may have a configuration that counts.

        Where programs leave out what does not change along the axis, it is as in ``parents``.
        """
        size = self.live[axis]
        self.bounded += len(parents) * size
        shares = _THREADS if len(parents) * size >= _THREADS * BLOCK else 1
        step = max(1, -(-min(BATCH // size, len(parents)) // shares))
        pieces = [parents.taken(slice(start, start + step)) for start in range(0, len(parents), step)]
        shared = map if self._threads is None or len(pieces) == 1 else self._threads.map
        return Boxes.joined([*shared(lambda piece: self._children(piece, axis), pieces)] or [parents])

    def _children(self, parents: Boxes, axis: int) -> Boxes:
        narrow = self._narrowed(parents.places)
        if (dead := (narrow == DEAD).any(axis=1)).any():
            parents, narrow = parents.taken(~dead), narrow[~dead]
        known, size = self.prepared, self.live[axis]
        stages, count = known.stages[axis], len(parents) * size
        rows, places = np.empty(count, np.int64), np.empty(count, np.int64)
        low, high = (np.empty((count, len(stages.keys))) for _ in "lh")
        may, surely = (np.empty((count, len(stages.counting)), np.int8) for _ in "ms")
        room = self._rooms.get()
        done = self._children_of(
            narrow, axis, size, known.idle[axis], known.checked[axis], known.starts, known.members,
            known.firsts, known.steps, known.legal, stages.code, stages.stages, stages.numbers, known.low, known.high,
            *room.slots_for(stages), *room.scratch, stages.counting, stages.kept, stages.keys, stages.every,
            np.ascontiguousarray(parents.low), parents.may.astype(np.int8), rows, places, low, high, may, surely,
        )
        self._rooms.put(room)
        boxes = parents.places[rows[:done]]
        boxes[:, axis] = known.live[axis][places[:done]]
        return Boxes(boxes, low[:done], high[:done], may[:done].astype(np.bool_), surely[:done].astype(np.bool_))
