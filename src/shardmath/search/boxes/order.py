"""The order in which boxes are cut, found on samples; and first answers, from boxes that look best."""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import numpy as np

from shardmath.search.boxes.bounds import Bounds, Boxes, Places
from shardmath.search.boxes.kept import Kept

#: Children of a sample along an axis at most: of a long axis fewer boxes are tried, but no fewer than so many.
_CHILDREN, _FEWEST = 4096, 16
#: Rounds in which the best answers are changed on one axis at a time.
_ROUNDS = 8
#: Answers whose neighbours are looked at in a round.
_NEIGHBOURS = 64


def order_of(bounds: Bounds, answers: Sequence[Kept], size: int) -> list[int]:
    """Return the axes in the order in which boxes are to be cut, the first one first.

    On every level the axis comes next whose places close most of a sample of ``size`` boxes. What is closed depends on
    the answers so far.
    """
    left, order = list(range(len(bounds.sizes))), list[int]()
    sample, chance = bounds.root, np.random.default_rng(0)
    while left:
        tried = [_tried(bounds, answers, sample, axis) for axis in left]
        place = min(range(len(left)), key=lambda place: tried[place][0])
        order.append(left.pop(place))
        boxes = tried[place][1]
        if not len(boxes):
            break
        sample = boxes[chance.choice(len(boxes), min(size, len(boxes)), replace=False)]
    return order + left


def _tried(bounds: Bounds, answers: Sequence[Kept], sample: Places, axis: int) -> tuple[tuple[float, float], Places]:
    """Return how fast boxes multiply along an axis, with minus their mean bound, and the children."""
    size = bounds.sizes[axis]
    sample = sample[: max(_FEWEST, _CHILDREN // size)]
    children = opened(bounds.children(sample, axis), answers)
    share = len(children) / (len(sample) * size)
    growth = log(max(share * size, 1e-9)) / log(size) if size > 1 else -1.0
    return (growth, -float(children.low[:, 0].mean()) if len(children) else 0.0), children.places


def opened(boxes: Boxes, answers: Sequence[Kept]) -> Boxes:
    """Return the boxes that may hold something better for some question."""
    rows = np.zeros(len(boxes), np.bool_)
    for answer in answers:
        rows |= answer.open(boxes)
    return boxes.taken(np.flatnonzero(rows))


def begin(bounds: Bounds, answers: Sequence[Kept], order: Sequence[int], beam: int) -> None:
    """Find first answers: the ``beam`` boxes of a level with the best bounds of each key, then what is near answers."""
    places = bounds.root
    for axis in order:
        boxes = opened(bounds.children(places, axis), answers)
        if not len(boxes):
            return
        rows = [np.argsort(boxes.low[:, key], kind="stable")[:beam] for key in range(boxes.low.shape[1])]
        boxes = boxes.taken(np.unique(np.concatenate(rows)))
        places = boxes.places
    for answer in answers:
        answer.take(bounds, boxes)
    for _ in range(_ROUNDS):
        if not _nearer(bounds, answers):
            break


def _nearer(bounds: Bounds, answers: Sequence[Kept]) -> bool:
    """Change the best answers on one or two axes; tell whether any answer got better."""
    before = [answer.keys.copy() for answer in answers]
    starts = [answer.numbers[:_NEIGHBOURS][answer.parts[:_NEIGHBOURS] == bounds.part.number] for answer in answers]
    numbers = np.unique(np.concatenate(starts))
    if not len(numbers):
        return False
    places = bounds.at(numbers)
    for axis, size in enumerate(bounds.sizes):
        freed = places.copy()
        freed[:, axis] = size
        boxes = bounds.children(np.unique(freed, axis=0), axis)
        for answer in answers:
            answer.take(bounds, boxes)
    return any(not np.array_equal(keys, answer.keys) for keys, answer in zip(before, answers, strict=True))
