"""Partial answer of a sweep: counts, and an answer per question. Answers of two stretches merge into one.

Merging is associative and commutative, and merging a configuration twice is the same as once, so that any number of
threads and machines comes to the same answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from shardmath.search.spaces import Best, Front, Histogram, Question
from shardmath.search.spaces.ties import unbeaten

#: The number of no configuration: behind all others.
NOBODY = np.iinfo(np.int64).max
#: Places of a front to begin with; it grows.
_ROOM = 256

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass
class BestAnswer:
    """The best of every group, best first: ``keys`` by group, place and key; ``numbers`` of configurations."""

    keys: Floats
    numbers: Integers

    @classmethod
    def empty(cls, groups: int, count: int, keys: int) -> BestAnswer:
        """Nothing yet."""
        return cls(np.full((groups, count, keys), np.inf), np.full((groups, count), NOBODY))

    @property
    def arrays(self) -> tuple[NDArray[np.generic], ...]:
        """Return the arrays that a nest fills."""
        return (self.keys, self.numbers)

    def merged(self, other: BestAnswer) -> BestAnswer:
        """Return the best of both."""
        keys = np.concatenate((self.keys, other.keys), axis=1)
        numbers = np.concatenate((self.numbers, other.numbers), axis=1)
        order = np.lexsort((numbers, *np.moveaxis(keys, 2, 0)[::-1]), axis=1)
        ordered = np.take_along_axis(numbers, order, axis=1)
        repeated = np.zeros(order.shape, np.bool_)
        repeated[:, 1:] = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != NOBODY)
        # Unique rows come first, in their order.
        kept = np.argsort(repeated, axis=1, kind="stable")[:, :self.numbers.shape[1]]
        order = np.take_along_axis(order, kept, axis=1)
        return BestAnswer(np.take_along_axis(keys, order[:, :, np.newaxis], axis=1),
                          np.take_along_axis(numbers, order, axis=1))


    def taken(self, keys: Floats, numbers: Integers, groups: Integers) -> BestAnswer:
        """Get the same with some configurations taken among the best: a row of keys, a number and a group for each."""
        bound = self.keys[groups, -1]
        order = np.flatnonzero(~_precede(bound, keys))  # what the last one of the group does not precede
        order = order[np.lexsort((numbers[order], *keys[order].T[::-1], groups[order]))]
        groups = groups[order]
        place = np.arange(len(order)) - np.searchsorted(groups, groups)
        order, groups, place = (column[place < self.numbers.shape[1]] for column in (order, groups, place))
        best = BestAnswer(np.full_like(self.keys, np.inf), np.full_like(self.numbers, NOBODY))
        best.keys[groups, place], best.numbers[groups, place] = keys[order], numbers[order]
        return self.merged(best)


@dataclass
class FrontAnswer:
    """Pareto front in no order: the first ``size`` places of ``keys`` and ``numbers``."""

    keys: Floats
    numbers: Integers
    size: Integers = field(default_factory=lambda: np.zeros(1, np.int64))

    @classmethod
    def empty(cls, keys: int) -> FrontAnswer:
        """Nothing yet."""
        return cls(np.full((_ROOM, keys), np.inf), np.full(_ROOM, NOBODY))

    @property
    def arrays(self) -> tuple[NDArray[np.generic], ...]:
        """Return the arrays that a nest fills."""
        return (self.keys, self.numbers, self.size)

    def with_room(self, places: int) -> FrontAnswer:
        """Return the same front in larger arrays."""
        extra = max(0, places - len(self.numbers))
        keys = np.concatenate((self.keys, np.full((extra, self.keys.shape[1]), np.inf)))
        return FrontAnswer(keys, np.concatenate((self.numbers, np.full(extra, NOBODY))), self.size.copy())

    def merged(self, other: FrontAnswer) -> FrontAnswer:
        """Return the front of both, sorted by its keys; of equal configurations the first of the space."""
        keys = np.concatenate((self.keys[: self.size[0]], other.keys[: other.size[0]]))
        numbers = np.concatenate((self.numbers[: self.size[0]], other.numbers[: other.size[0]]))
        kept = unbeaten(keys, numbers)
        return FrontAnswer.of(keys[kept], numbers[kept])

    def taken(self, keys: Floats, numbers: Integers) -> FrontAnswer:
        """Return the same with some configurations taken into the front: a row of keys and a number for each."""
        left = np.arange(len(numbers))
        for own in self.keys[: self.size[0]]:
            left = left[~(keys[left] >= own).all(axis=1) | (keys[left] == own).all(axis=1)]
        kept = left[unbeaten(keys[left], numbers[left])]
        return self.merged(FrontAnswer.of(keys[kept], numbers[kept]))

    @staticmethod
    def of(keys: Floats, numbers: Integers) -> FrontAnswer:
        """Return a front of some configurations."""
        front = FrontAnswer.empty(keys.shape[1]).with_room(2 * len(numbers))
        front.keys[: len(numbers)], front.numbers[: len(numbers)], front.size[0] = keys, numbers, len(numbers)
        return front


@dataclass
class HistogramAnswer:
    """How many configurations fall below the first of ``edges``, between two of them, and above the last."""

    edges: Floats
    counts: Integers

    @property
    def arrays(self) -> tuple[NDArray[np.generic], ...]:
        """Return the arrays that a nest fills."""
        return (self.edges, self.counts)

    def taken(self, values: Floats) -> HistogramAnswer:
        """Return the same with some configurations counted."""
        bins = np.searchsorted(self.edges, values, side="right")
        return HistogramAnswer(self.edges, self.counts + np.bincount(bins, minlength=len(self.counts)))

    def merged(self, other: HistogramAnswer) -> HistogramAnswer:
        """Add up the counts of both."""
        return HistogramAnswer(self.edges, self.counts + other.counts)


Found = BestAnswer | FrontAnswer | HistogramAnswer


@dataclass
class Answer:
    """Counts of configurations: that broke each condition first, and that have each verdict; and all that was asked.

    ``evaluated`` counts the configurations whose memory was computed, legal or not; the others broke a condition
    that many of them share.
    """

    broken: Integers
    verdicts: Integers
    questions: tuple[Found, ...]
    evaluated: int = 0

    def merged(self, other: Answer) -> Answer:
        """Return the answer for the configurations of both, which must have none in common."""
        pairs = zip(self.questions, other.questions, strict=True)
        return Answer(
            self.broken + other.broken, self.verdicts + other.verdicts,
            tuple(mine.merged(two) for mine, two in pairs),  # type: ignore[arg-type]
            self.evaluated + other.evaluated,
        )

    def seed(self) -> Answer:
        """Return an answer without counts and with the best rows, from which the next stretch looks for better ones."""
        return Answer(np.zeros_like(self.broken), np.zeros_like(self.verdicts), tuple(map(_seed, self.questions)))


def empty(questions: Sequence[Question], groups: Sequence[int], conditions: int, verdicts: int) -> Answer:
    """Return the answer for no configuration; ``groups`` has the number of groups of each question."""
    answers: list[Found] = []
    for question, count in zip(questions, groups, strict=True):
        if isinstance(question, Best):
            answers.append(BestAnswer.empty(count, question.count, len(question.by)))
        elif isinstance(question, Front):
            answers.append(FrontAnswer.empty(len(question.by)))
        elif isinstance(question, Histogram):
            edges = np.asarray(question.edges, np.float64)
            answers.append(HistogramAnswer(edges, np.zeros(len(edges) + 1, np.int64)))
    return Answer(np.zeros(conditions, np.int64), np.zeros(verdicts, np.int64), tuple(answers))


def _seed(answer: Found) -> Found:
    if isinstance(answer, HistogramAnswer):
        return HistogramAnswer(answer.edges, np.zeros_like(answer.counts))
    if isinstance(answer, BestAnswer):
        return BestAnswer(answer.keys.copy(), answer.numbers.copy())
    return answer.with_room(2 * int(answer.size[0]) + _ROOM)


def _precede(left: Floats, right: Floats) -> NDArray[np.bool_]:
    """Return the mask of rows of keys that are better than others, by the first key in which they differ."""
    better = np.zeros(len(left), np.bool_)
    for column in range(left.shape[1] - 1, -1, -1):
        mine, other = left[:, column], right[:, column]
        better = (mine < other) | ((mine == other) & better)
    return better
