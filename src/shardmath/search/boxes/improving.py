"""A better order for boxes that are cut, where each step alone does not see how many boxes the next ones take.

How many boxes are open once some axes are cut is the same in whatever order they were cut, but for idle ones: bounds of
a box are no looser than those of the boxes around it. So numbers of open boxes are sampled for sets of axes, once each,
and the boxes of an order are a sum over the sets that it goes through.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from shardmath.search.boxes.bounds import Bounds, Boxes
from shardmath.search.boxes.kept import Kept, opened

#: Boxes of the sample for a set of axes. Of many orders the one that looks best is one of which samples say too little,
#: so the second pass has others.
_SAMPLES = (128, 256)
#: Axes in a row of which every order is tried.
_TOGETHER = 5
#: An order is taken for another if it has no more than this share of its boxes.
_FEWER = 0.995

#: The axes of a set, with the idle ones that were cut before those that make them so.
_Key: TypeAlias = tuple[frozenset[int], frozenset[tuple[int, int]]]


def improved(
    bounds: Bounds, answers: Sequence[Kept], order: Sequence[int], chance: np.random.Generator,
) -> list[int]:
    """Return an order that takes fewer boxes than another, as samples say."""
    best = list(order)
    for size in _SAMPLES:
        best = _Orders(bounds, answers, size, chance).improved(best)
    return best


class _Orders:
    """About how many boxes are bounded in orders, from samples of ``size`` boxes."""

    def __init__(self, bounds: Bounds, answers: Sequence[Kept], size: int, chance: np.random.Generator) -> None:
        self._bounds, self._answers, self._size, self._chance = bounds, answers, size, chance
        self._open: dict[_Key, tuple[Boxes, float]] = {(frozenset(), frozenset()): (bounds.root, 1.0)}
        self._before = {(axis, other) for axis, pairs in enumerate(bounds.prepared.idle)
                        for other in {int(other) for other, _ in pairs}}

    def boxes(self, order: Sequence[int], most: float = np.inf) -> float:
        """Return the boxes of an order; no more is looked at once there are ``most``."""
        total = 0.0
        for level, axis in enumerate(order):
            count = self.open(order[:level])[1]
            total += count * self._bounds.live[axis]
            if total >= most or not count:
                break
        return total

    def open(self, cut: Sequence[int]) -> tuple[Boxes, float]:
        """Return a sample of the open boxes in which some axes were cut, in this order, and how many there are."""
        places = {axis: place for place, axis in enumerate(cut)}
        key = frozenset(cut), frozenset(
            (axis, other) for axis, other in self._before
            if axis in places and other in places and places[axis] < places[other])
        if key not in self._open:
            sample, count = self.open(cut[:-1])
            if len(sample):
                boxes = opened(self._bounds.children(sample, cut[-1]), self._answers)
                count *= len(boxes) / len(sample)
                sample = boxes.taken(self._chance.choice(len(boxes), min(self._size, len(boxes)), replace=False))
            self._open[key] = sample, count
        return self._open[key]

    def improved(self, order: Sequence[int]) -> list[int]:
        """Return a better order, by moves of single axes and of some in a row, as long as any helps."""
        best = list(order)
        boxes, before = self.boxes(best), np.inf
        while boxes < before:
            before = boxes
            for start in range(len(best)):
                for other in (self._in_a_row(best, start, boxes), *_elsewhere(best, start)):
                    fewer = self.boxes(other, _FEWER * boxes)
                    if fewer < _FEWER * boxes:
                        best, boxes = other, fewer
        return best

    def _in_a_row(self, order: Sequence[int], start: int, most: float) -> list[int]:
        """Return an order with the best one of some axes in a row, by the sets of them that are cut first."""
        first, inside = tuple(order[:start]), order[start: start + _TOGETHER]
        ways: dict[frozenset[int], tuple[float, tuple[int, ...]]] = {frozenset(): (0.0, ())}
        for _ in inside:
            longer: dict[frozenset[int], tuple[float, tuple[int, ...]]] = {}
            for done, (total, way) in ways.items():
                count = self.open((*first, *way))[1]
                for axis in inside:
                    own = total + count * self._bounds.live[axis]
                    if axis not in done and own < most and own < longer.get(done | {axis}, (np.inf,))[0]:
                        longer[done | {axis}] = own, (*way, axis)
            ways = longer
        return [*first, *next((way for _, way in ways.values()), inside), *order[start + _TOGETHER:]]


def _elsewhere(order: Sequence[int], place: int) -> list[list[int]]:
    """Return orders with the axis of a place at each other one, the nearest first."""
    rest = [*order[:place], *order[place + 1:]]
    others = sorted(set(range(len(order))) - {place}, key=lambda other: abs(other - place))
    return [[*rest[:other], order[place], *rest[other:]] for other in others]
