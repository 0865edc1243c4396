"""The tree of boxes: which children of every box are cut further; all others are closed by bounds."""

from __future__ import annotations

import base64
import lzma
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from shardmath.errors import InputError
from shardmath.search.certificates.enclosure import Enclosed, Enclosure, Places
from shardmath.search.certificates.rounding import rounded_upward
from shardmath.search.spaces import Best, Front, Part
from shardmath.search.spaces.ties import slack

#: Boxes that a thread bounds at a time, at least and at most: fewer take longer, as each operation on a column has a
#: cost of its own.
_FEWEST, _BATCH = 1 << 11, 1 << 15
#: Threads that share out the boxes of a level: operations on columns run without the lock of the interpreter.
_THREADS = 2
#: Boxes of one level at most, and bytes of a tree.
_BOXES, _BYTES = 1 << 25, 1 << 26

Floats = NDArray[np.float64]
Truths = NDArray[np.bool_]


@dataclass(frozen=True)
class Closing:
    """The answers to one question, as bounds see them: ``keys`` in floats, and the ``slack`` of equal ones.

    With a ``gap`` above 0 others may be better by this share: than the last of the best in its first key, than an
    answer of a front in all keys.
    """

    question: Best | Front
    columns: slice
    keys: Floats
    slack: Floats
    gap: float

    @classmethod
    def of(
        cls, questions: Sequence[Best | Front], answers: Sequence[Sequence[Sequence[Fraction]]],
        gaps: Mapping[str, float],
    ) -> list[Closing]:
        """Return one for each question, with the exact keys of its answers. Whole numbers are equal or not."""
        closings, start = list[Closing](), 0
        for question, rows in zip(questions, answers, strict=True):
            stop = start + len(question.by)
            keys = np.asarray([[float(key) for key in row] for row in rows], np.float64).reshape(-1, stop - start)
            whole = np.asarray([[key == float(key) for key in row] for row in rows], np.bool_).reshape(keys.shape)
            closings.append(cls(question, slice(start, stop), keys, slack(keys, whole), gaps[question.name]))
            start = stop
        return closings

    def closes(self, low: Floats, high: Floats) -> Truths:
        """Tell which boxes have nothing that should be an answer and is none."""
        low, high = (np.ascontiguousarray(ends[:, self.columns].T) for ends in (low, high))
        keys, room = self.keys[:, :, np.newaxis], self.slack[:, :, np.newaxis]
        closed = np.zeros(low.shape[1], np.bool_)
        if isinstance(self.question, Front):
            for limits in keys - room - self.gap * np.abs(keys):
                closed |= (low >= limits).all(axis=0)
            return closed
        if self.gap and len(keys):
            closed = low[0] >= (keys - room - self.gap * np.abs(keys))[-1, 0]
        if len(keys) >= self.question.count:
            closed |= ~self._before(low)
        for least, most in zip(keys - room, keys + room, strict=True):
            closed |= ((low >= least) & (high <= most)).all(axis=0)
        return closed

    def _before(self, low: Floats) -> Truths:
        """Tell which boxes may come before the last answer, by the first key in which they differ."""
        before, equal = np.zeros(low.shape[1], np.bool_), np.ones(low.shape[1], np.bool_)
        for ends, key, room in zip(low, self.keys[-1], self.slack[-1], strict=True):
            before |= equal & ~(ends >= key - room)
            equal &= ~(ends > key + room)
        return before


@dataclass
class Tree:
    """For each level one bit for every child of its boxes: set if the child is cut further."""

    levels: list[Truths]

    @property
    def boxes(self) -> int:
        """Boxes of all levels."""
        return sum(map(len, self.levels))

    @property
    def text(self) -> str:
        """The tree as characters."""
        packed = b"".join(np.packbits(bits).tobytes() for bits in self.levels)
        return base64.b85encode(lzma.compress(packed, lzma.FORMAT_XZ, preset=9)).decode()

    @classmethod
    def read(cls, text: str, sizes: Sequence[int]) -> Tree:
        """Return the tree of a text, for axes of these sizes in the order of cutting.

        Raises InputError for a text that is none.
        """
        try:
            unpacking = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=1 << 27)
            packed = np.frombuffer(unpacking.decompress(base64.b85decode(text), _BYTES), np.uint8)
        except (ValueError, lzma.LZMAError):
            raise _broken("be compressed") from None
        if not unpacking.eof or unpacking.unused_data:
            raise _broken("be whole")
        levels, boxes = list[Truths](), 1
        for size in sizes:
            count = boxes * size
            if count > _BOXES or len(packed) < -(-count // 8):
                raise _broken("have a bit for every box")
            levels.append(np.unpackbits(packed[: -(-count // 8)], count=count).astype(np.bool_))
            packed, boxes = packed[-(-count // 8):], int(levels[-1].sum())
        if boxes or len(packed):
            raise _broken("end in closed boxes")
        return cls(levels)


def grown(enclosure: Enclosure, closings: Sequence[Closing]) -> Tree:
    """Cut boxes until bounds close all. Raises InputError if they do not: then the answers are not proved."""
    levels = list[Truths]()
    boxes = np.zeros((1, len(enclosure.order)), np.int16)
    for level, axis in enumerate(enclosure.order):
        size = enclosure.part.axes[axis].size
        bits = np.zeros(len(boxes) * size, np.bool_)
        for still in _open(enclosure, closings, level, boxes, np.arange(len(bits))):
            bits[still] = True
        levels.append(bits)
        boxes = _cut(boxes, np.flatnonzero(bits), axis, size)
    if len(boxes):
        raise InputError("certificate", _shown(enclosure.part, boxes[0]), "must not be better than the answers")
    return Tree(levels)


def refuse_open(enclosure: Enclosure, closings: Sequence[Closing], tree: Tree) -> None:
    """Raise InputError unless bounds close every box that the tree does not cut."""
    boxes = np.zeros((1, len(enclosure.order)), np.int16)
    for level, (axis, bits) in enumerate(zip(enclosure.order, tree.levels, strict=True)):
        size = enclosure.part.axes[axis].size
        for still in _open(enclosure, closings, level, boxes, np.flatnonzero(~bits)):
            if len(still):
                box = _cut(boxes, still[:1], axis, size)[0]
                shown = _shown(enclosure.part, box, enclosure.order[: level + 1])
                raise InputError("certificate", shown, "must be cut further: it may hold a better configuration")
        boxes = _cut(boxes, np.flatnonzero(bits), axis, size)


def refuse_outside(
    enclosure: Enclosure, places: Places, counts: Truths, keys: Sequence[Sequence[Fraction]],
) -> None:
    """Raise InputError unless the bounds of all boxes around legal configurations hold what they have exactly.

    ``counts`` says for each configuration and question whether it counts, ``keys`` has the keys of all questions.
    """
    for level in range(len(enclosure.order)):
        with rounded_upward():
            result = enclosure.children(level, places, np.arange(len(places)), places)
        rows = np.flatnonzero(counts.any(axis=1))
        outside = bool(not np.isin(rows, result.rows).all() or (counts[result.rows] & ~result.may).any())
        for row, less, most in zip(result.rows.tolist(), result.less.tolist(), result.most.tolist(), strict=True):
            outside |= any(key < -low or key > high for low, key, high in zip(less, keys[row], most, strict=True))
        if outside:
            rule = "must lie within the bounds of the boxes around it"
            raise InputError("certificate", "a configuration that was drawn", rule)


def _open(
    enclosure: Enclosure, closings: Sequence[Closing], level: int, boxes: Places, children: NDArray[np.int64],
) -> Iterator[NDArray[np.int64]]:
    """Yield, for one batch of ``children`` of a level after the other, the numbers of those that bounds do not close.

    Those that are like the first child of their parent are left out: it stands for them.
    """
    axis = enclosure.order[level]
    size = enclosure.part.axes[axis].size

    def still(some: NDArray[np.int64]) -> NDArray[np.int64]:
        cut = _cut(boxes, some, axis, size)
        own = ~enclosure.alike(level, cut)
        some, cut = some[own], cut[own]
        with rounded_upward():  # of this thread
            result = enclosure.children(level, boxes, some // size, cut)
        return some[result.rows[~_closed(result, closings)]]

    step = min(_BATCH, max(_FEWEST, -(-len(children) // _THREADS)))
    batches = [children[start: start + step] for start in range(0, len(children), step)]
    if len(batches) < _THREADS:
        yield from map(still, batches)
        return
    with ThreadPoolExecutor(_THREADS) as pool:  # threads do not outlive a level: a process that forks has none
        yield from pool.map(still, batches)


def _closed(result: Enclosed, closings: Sequence[Closing]) -> Truths:
    closed = np.ones(len(result.rows), np.bool_)
    for question, closing in enumerate(closings):
        closed &= ~result.may[:, question] | closing.closes(-result.less, result.most)
    return closed


def _cut(boxes: Places, children: NDArray[np.int64], axis: int, size: int) -> Places:
    places = boxes[children // size]
    places[:, axis] = children % size
    return places


def _shown(part: Part, box: Places, axes: Sequence[int] | None = None) -> str:
    cut = range(len(part.axes)) if axes is None else axes
    return ", ".join(f"{part.axes[axis].name} {part.axes[axis].labels[box[axis]]}" for axis in cut)


def _broken(rule: str) -> InputError:
    return InputError("certificate", "tree", f"must {rule}")
