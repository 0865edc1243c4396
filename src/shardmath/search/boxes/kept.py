"""Answers so far: what is kept for each question, and which boxes may still hold something better."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardmath.compiler.native.objects import native
from shardmath.search.boxes import blocks
from shardmath.search.boxes.bounds import Bounds, Boxes
from shardmath.search.spaces import Best, Front, Question
from shardmath.search.spaces.ties import slack, unbeaten

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Truths = NDArray[np.bool_]
_BEATEN = native(blocks, "beaten")


@dataclass
class Kept:
    """The best distinct keys of a question over all parts, or its front, each with the first configuration that has it.

    ``whole`` says which keys are whole numbers, which floats have exactly. ``parts`` and ``numbers`` say where a
    configuration is.
    """

    question: Best | Front
    columns: slice
    place: int
    whole: Truths
    keys: Floats = field(init=False)
    parts: Integers = field(init=False)
    numbers: Integers = field(init=False)

    def __post_init__(self) -> None:
        self.keys = np.empty((0, self.columns.stop - self.columns.start))
        self.parts, self.numbers = (np.empty(0, np.int64) for _ in "pn")

    @property
    def bound(self) -> Floats | None:
        """The keys that an answer must come before; None while there is room, and for a front."""
        full = isinstance(self.question, Best) and len(self.keys) >= self.question.count
        return self.keys[-1] if full else None

    def open(self, boxes: Boxes) -> Truths:
        """Tell which boxes may have a configuration that would be kept."""
        may, low = boxes.may[:, self.place], boxes.low[:, self.columns]
        if isinstance(self.question, Front):
            left = may.astype(np.int8)
            _BEATEN(self.keys + slack(self.keys, self.whole), np.ascontiguousarray(boxes.low), self.columns.start, left)
            return left.astype(np.bool_)
        return may if self.bound is None else may & self._before(low, self.bound)

    def take(self, bounds: Bounds, boxes: Boxes) -> None:
        """Keep what is better of boxes of a part whose configurations all count and have the same keys."""
        rows = np.flatnonzero(boxes.surely[:, self.place])
        if not len(rows):
            return
        keys = np.concatenate([self.keys, boxes.low[rows][:, self.columns]])
        parts = np.concatenate([self.parts, np.full(len(rows), bounds.part.number)])
        numbers = np.concatenate([self.numbers, bounds.numbers(boxes.places[rows])])
        if isinstance(self.question, Best):
            order = np.lexsort(keys.T[::-1])
            first = np.ones(len(keys), np.bool_)
            first[1:] = (keys[order[1:]] != keys[order[:-1]]).any(axis=1)
            kept = order[first][: self.question.count]
        else:
            kept = unbeaten(keys)
        self.keys, self.parts, self.numbers = keys[kept], parts[kept], numbers[kept]

    def gap(self, low: Floats) -> float | None:
        """Return by how much boxes with these bounds may be better than the answers, as a share of keys.

        For the best it is the share by which the first key may be smaller than that of the last answer; for a front
        the share by which all keys may be smaller than those of the answer that is nearest. None without an answer.
        """
        if not len(self.keys):
            return None
        low, last = low[:, self.columns], self.keys[-1:]
        if isinstance(self.question, Best):
            return float(shares(last[:, 0], low[:, 0]).max(initial=0.0))
        return float(max((shares(self.keys, row).max(axis=1).min() for row in low), default=0.0))

    def _before(self, low: Floats, bound: Floats) -> Truths:
        """Tell which rows may come before ``bound``, by the first key in which they differ."""
        room = slack(bound, self.whole)
        before, equal = np.zeros(len(low), np.bool_), np.ones(len(low), np.bool_)
        for column in range(low.shape[1]):
            before |= equal & (low[:, column] < bound[column] - room[column])
            equal &= low[:, column] <= bound[column] + room[column]
        # Floats may make of an equal key a smaller one, but not of whole numbers.
        return before | (equal if not self.whole.all() else before)


def shares(keys: Floats, low: Floats) -> Floats:
    """Return by which shares of themselves keys are above bounds, 0 where they are not."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share = (keys - low) / np.abs(keys)
    return np.where(keys <= low, 0.0, np.where(keys == 0, np.inf, share))


def kept_for(questions: tuple[Question, ...], whole: Any) -> list[Kept]:
    """Return empty answers for all questions of a space."""
    answers, start = [], 0
    for place, question in enumerate(questions):
        assert isinstance(question, Best | Front)
        stop = start + len(question.by)
        answers.append(Kept(question, slice(start, stop), place, np.asarray(whole[start:stop], np.bool_)))
        start = stop
    return answers
