"""Answers so far: what is kept for each question, and which boxes may still hold something better."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardmath.compiler.native.objects import native
from shardmath.search.boxes import blocks
from shardmath.search.boxes.bounds import Boxes, Places
from shardmath.search.spaces import Best, Front, Question

Floats = NDArray[np.float64]
Truths = NDArray[np.bool_]
#: A sweep computes keys that are not whole in floats: a box is closed only if it is worse by more than this share.
SLACK = 1e-9
_BEATEN = native(blocks, "beaten")


@dataclass
class Kept:
    """The best distinct keys of a question, or its front, each with a box: all of its configurations have these keys.

    ``whole`` says which keys are whole numbers, which floats have exactly.
    """

    question: Best | Front
    columns: slice
    place: int
    whole: Truths
    keys: Floats = field(init=False)
    boxes: Places | None = None

    def __post_init__(self) -> None:
        self.keys = np.empty((0, self.columns.stop - self.columns.start))

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
            _BEATEN(self.keys + self._slack(self.keys), np.ascontiguousarray(boxes.low), self.columns.start, left)
            return left.astype(np.bool_)
        return may if self.bound is None else may & self._before(low, self.bound)

    def take(self, boxes: Boxes) -> None:
        """Keep what is better of boxes whose configurations all count and have the same keys."""
        rows = np.flatnonzero(boxes.surely[:, self.place])
        keys = np.concatenate([self.keys, boxes.low[rows][:, self.columns]])
        places = boxes.places[rows] if self.boxes is None else np.concatenate([self.boxes, boxes.places[rows]])
        order = np.lexsort(keys.T[::-1])
        keys, places = keys[order], places[order]
        first = np.ones(len(keys), np.bool_)
        first[1:] = (keys[1:] != keys[:-1]).any(axis=1)
        keys, places = keys[first], places[first]
        if isinstance(self.question, Best):
            self.keys, self.boxes = keys[: self.question.count], places[: self.question.count]
            return
        unbeaten: list[int] = []
        for row in range(len(keys)):  # sorted by the first key: only one before this can beat it
            if not unbeaten or not (keys[unbeaten] <= keys[row]).all(axis=1).any():
                unbeaten.append(row)
        self.keys, self.boxes = keys[unbeaten], places[unbeaten]

    def gap(self, low: Floats) -> float | None:
        """Return how much better than its last answer a question's first key may get in boxes with these bounds."""
        if not len(self.keys):
            return None
        last = self.keys[-1 if isinstance(self.question, Best) else 0, 0]
        least = low[:, self.columns.start].min()
        return max(0.0, float((last - least) / abs(last))) if last else 0.0

    def _slack(self, keys: Floats) -> Floats:
        return np.where(self.whole, 0.0, SLACK * np.abs(keys))

    def _before(self, low: Floats, bound: Floats) -> Truths:
        """Tell which rows may come before ``bound``, by the first key in which they differ."""
        slack = self._slack(bound)
        before, equal = np.zeros(len(low), np.bool_), np.ones(len(low), np.bool_)
        for column in range(low.shape[1]):
            before |= equal & (low[:, column] < bound[column] - slack[column])
            equal &= low[:, column] <= bound[column] + slack[column]
        # Floats may make of an equal key a smaller one, but not of whole numbers.
        return before | (equal if not self.whole.all() else before)


def kept_for(questions: tuple[Question, ...], whole: Any) -> list[Kept]:
    """Return empty answers for all questions of a part."""
    answers, start = [], 0
    for place, question in enumerate(questions):
        assert isinstance(question, Best | Front)
        stop = start + len(question.by)
        answers.append(Kept(question, slice(start, stop), place, np.asarray(whole[start:stop], np.bool_)))
        start = stop
    return answers
