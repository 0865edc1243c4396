"""Answers so far: what is kept for each question, and which boxes may still hold something better."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite, prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shardmath.account.judged import FITS
from shardmath.compiler.native.objects import native
from shardmath.search.boxes import blocks
from shardmath.search.boxes.bounds import Bounds, Boxes, Places
from shardmath.search.spaces import Axis, Best, Front, Question
from shardmath.search.spaces.ties import slack, unbeaten

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Truths = NDArray[np.bool_]
_BEATEN = native(blocks, "beaten")


class Within(NamedTuple):
    """Shares by which the first key of an answer may be larger than that of the best; what is larger may be left out.

    ``groups``: of the best for each combination of places. ``fronts``: of the front of what fits; of other fronts all
    may be left out that is worse by the first key than the best of that front.
    """

    groups: float = np.inf
    fronts: float = np.inf


#: Nothing is left out.
ALL = Within()


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
        """Keep what is better of boxes of one configuration each, of those that count."""
        rows = np.flatnonzero(boxes.surely[:, self.place])
        if not len(rows):
            return
        keys = np.concatenate([self.keys, boxes.low[rows][:, self.columns]])
        parts = np.concatenate([self.parts, np.full(len(rows), bounds.part.number)])
        numbers = np.concatenate([self.numbers, bounds.numbers(boxes.places[rows])])
        kept = self._kept(bounds, keys, parts, numbers)
        self.keys, self.parts, self.numbers = keys[kept], parts[kept], numbers[kept]

    def _kept(self, _: Bounds, keys: Floats, parts: Integers, numbers: Integers) -> Integers:
        """Return the rows of what is kept of some configurations; of equal keys the first of the space."""
        if isinstance(self.question, Front):
            first = np.lexsort((numbers, parts))
            return first[unbeaten(keys[first])]
        order = np.lexsort((numbers, parts, *keys.T[::-1]))
        distinct = np.ones(len(keys), np.bool_)
        distinct[1:] = (keys[order[1:]] != keys[order[:-1]]).any(axis=1)
        return order[distinct][: self.question.count]

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
            before |= equal & (low[:, column] < bound[..., column] - room[..., column])
            equal &= low[:, column] <= bound[..., column] + room[..., column]
        # Floats may make of an equal key a smaller one, but not of whole numbers.
        return before | (equal if not self.whole.all() else before)


@dataclass
class KeptNear(Kept):
    """The part of a front whose first key is not larger than that of the best by more than ``within``.

    Beside ``those``, another answer, it is the part whose first key is not larger than that of its best.
    """

    within: float
    those: Kept | None = None

    def open(self, boxes: Boxes) -> Truths:
        """See ``Kept``."""
        may, best = super().open(boxes), (self.those or self).keys[:, 0]
        if not len(best):
            return may
        return may & _near(boxes.low[:, self.columns.start], best, 0 if self.those else self.within)


@dataclass
class KeptPer(Kept):
    """The best configuration for each combination of places on the axes ``per``, of ``sizes``, which all parts have.

    Groups whose first key is larger than that of the best by more than the share ``within`` may be left out.
    """

    per: tuple[int, ...]
    sizes: tuple[int, ...]
    within: float
    best: Floats = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.best = np.full((prod(self.sizes), self.keys.shape[1]), np.inf)

    def open(self, boxes: Boxes) -> Truths:
        """See ``Kept``: boxes of several groups may have a better one in some of them."""
        may, low = boxes.may[:, self.place].copy(), boxes.low[:, self.columns]
        if not len(self.keys):
            return may
        may &= _near(low[:, 0], self.keys[:, 0], self.within)
        rows = np.flatnonzero(may & (boxes.places[:, self.per] < self.sizes).all(axis=1))
        best = self.best[self._groups(boxes.places[rows])]
        known = np.isfinite(best[:, 0])
        may[rows[known]] = self._before(low[rows[known]], best[known])
        return may

    def take(self, bounds: Bounds, boxes: Boxes) -> None:
        """See ``Kept``."""
        super().take(bounds, boxes)
        self.best[self._groups(bounds.at(self.numbers))] = self.keys

    def gap(self, low: Floats) -> float | None:
        """See ``Kept``: nobody knows it of groups that may have no answer yet."""
        return None if len(low) else 0.0

    def _groups(self, places: Places) -> Integers:
        groups: Integers = np.ravel_multi_index(tuple(places[:, self.per].T.astype(np.int64)), self.sizes)
        return groups

    def _kept(self, bounds: Bounds, keys: Floats, parts: Integers, numbers: Integers) -> Integers:
        groups = self._groups(bounds.at(numbers))
        order = np.lexsort((numbers, *keys.T[::-1], groups))
        return order[np.unique(groups[order], return_index=True)[1]]


def _near(low: Floats, best: Floats, within: float) -> Truths:
    """Tell which bounds are above the least of some keys by no more than a share of it."""
    most = (1 + within) * best.min()
    near: Truths = low <= most + slack(most, False)
    return near


def opened(boxes: Boxes, answers: Sequence[Kept]) -> Boxes:
    """Return the boxes that may hold something better for some question."""
    rows = np.zeros(len(boxes), np.bool_)
    for answer in answers:
        rows |= answer.open(boxes)
    return boxes.taken(np.flatnonzero(rows))


def shares(keys: Floats, low: Floats) -> Floats:
    """Return by which shares of themselves keys are above bounds, 0 where they are not."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share = (keys - low) / np.abs(keys)
    return np.where(keys <= low, 0.0, np.where(keys == 0, np.inf, share))


def kept_for(
    questions: tuple[Question, ...], whole: Any, axes: Sequence[Axis] = (), within: Within = ALL,
) -> list[Kept]:
    """Return empty answers for all questions of a space, all parts of which have the ``axes`` of groups."""
    answers, start = list[Kept](), 0
    those: Kept | None = None
    sizes = {axis.name: axis.size for axis in axes}
    for place, question in enumerate(questions):
        assert isinstance(question, Best | Front)
        stop = start + len(question.by)
        common = question, slice(start, stop), place, np.asarray(whole[start:stop], np.bool_)
        per = question.per if isinstance(question, Best) else ()
        if per:
            groups = tuple([*sizes].index(name) for name in per)
            answers.append(KeptPer(*common, groups, tuple(sizes[name] for name in per), within.groups))
        elif isinstance(question, Front) and isfinite(within.fronts):
            answers.append(KeptNear(*common, within.fronts, those))
            those = answers[-1] if question.among == FITS and those is None else those
        else:
            answers.append(Kept(*common))
        start = stop
    return answers
