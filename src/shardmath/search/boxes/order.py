"""The order in which boxes are cut, found on samples; and first answers, from boxes that look best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from math import log

import numpy as np
from numpy.typing import NDArray

from shardmath.search.boxes.bounds import Bounds, Boxes, Places, sharing
from shardmath.search.boxes.closing import for_closing
from shardmath.search.boxes.improving import improved
from shardmath.search.boxes.kept import ALL, Kept, Within, kept_for, opened
from shardmath.search.boxes.prepared import Prepared
from shardmath.search.spaces import Part, Question

#: Boxes of a beam on each level, and of the sample that an order is then chosen on. Which axis closes most depends on
#: answers, and a better order finds better ones: the first pair is small, as its order only serves the second.
_TRIES = ((256, 64), (1024, 512))
#: How often boxes are followed whatever their bounds are.
_PROBES = 2
#: Boxes of a beam inside of a box whose last axes have their first place, where that of the whole space finds nothing.
_INSIDE = 1024
#: Answers of each question that are then changed on two axes at a time, and rounds of it.
_FEW, _DOUBLE_ROUNDS = 4, 3

#: Children of a sample along an axis at most: of a long axis fewer boxes are tried, but no fewer than so many.
_CHILDREN, _FEWEST = 4096, 16
#: Rounds in which the best answers are changed on one axis at a time.
_ROUNDS = 8
#: Answers whose neighbours are looked at in a round.
_NEIGHBOURS = 64


def settled(
    part: Part, prepared: Prepared, questions: Sequence[Question], within: Within = ALL,
) -> Prepared:
    """Return what was prepared of a part with the order in which its boxes are to be cut, and its first answers."""
    answers, order = kept_for(tuple(questions), prepared.whole, part.axes, within), prepared.order.tolist()
    chance = np.random.default_rng(0)
    with sharing() as threads:
        bounds = Bounds(part, prepared, threads)
        for place, (beam, sample) in enumerate(_TRIES):
            begin(bounds, answers, order, beam)
            _probe(bounds, answers, order, sample, chance)
            if not place and _lacks(answers):  # no order finds what is not legal, or does not fit
                _begin_inside(bounds, answers, order)
            order = order_of(bounds, answers, sample)
        order = improved(Bounds(part, for_closing(prepared), threads), answers, order, chance)
        first, counting = _around(bounds, np.unique(_numbers(bounds, answers)), order[-1])
    return replace(prepared, order=np.asarray(order, np.int64), first=first, counting=counting)


def begin_again(bounds: Bounds, answers: Sequence[Kept]) -> None:
    """Take the first answers of a part that were found when it was prepared."""
    last = int(bounds.prepared.order[-1])
    boxes = bounds.unknown(_freed(bounds, bounds.at(bounds.prepared.first), [last]))
    _take(bounds, bounds.children(replace(boxes, may=bounds.prepared.counting.astype(np.bool_)), last), answers)


def _around(bounds: Bounds, numbers: NDArray[np.int64], last: int) -> tuple[NDArray[np.int64], NDArray[np.int8]]:
    """Return the numbers of the boxes around configurations in which an axis is free, and for what these may count."""
    parents = np.unique(_freed(bounds, bounds.at(numbers), [last]), axis=0)
    boxes = bounds.children(bounds.unknown(parents), last)
    places, rows = np.unique(_freed(bounds, boxes.places, [last]), axis=0, return_inverse=True)
    counting = np.zeros((len(places), boxes.may.shape[1]), np.int8)
    np.maximum.at(counting, rows.ravel(), boxes.may.astype(np.int8))
    return bounds.numbers(places), counting


def _freed(bounds: Bounds, places: Places, axes: Sequence[int]) -> Places:
    """Return boxes in which some axes are free."""
    freed = places.copy()
    freed[:, axes] = [bounds.sizes[axis] for axis in axes]
    return freed


def order_of(bounds: Bounds, answers: Sequence[Kept], size: int) -> list[int]:
    """Return the axes in an order in which boxes may be cut.

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
        sample = boxes.taken(chance.choice(len(boxes), min(size, len(boxes)), replace=False))
    return order + left


def _tried(bounds: Bounds, answers: Sequence[Kept], sample: Boxes, axis: int) -> tuple[tuple[float, float], Boxes]:
    """Return how fast boxes multiply along an axis, with minus their mean bound, and the children."""
    size = bounds.live[axis]
    sample = sample.taken(slice(max(_FEWEST, _CHILDREN // size)))
    children = opened(bounds.children(sample, axis), answers)
    share = len(children) / (len(sample) * size)
    growth = log(max(share * size, 1e-9)) / log(size) if size > 1 else -1.0
    return (growth, -float(children.low[:, 0].mean()) if len(children) else 0.0), children


def begin(bounds: Bounds, answers: Sequence[Kept], order: Sequence[int], beam: int) -> None:
    """Find first answers: the ``beam`` boxes of a level with the best bounds of each key, then what is near answers."""
    if _descend(bounds, answers, order, beam, bounds.root):
        _approach(bounds, answers)


def _probe(
    bounds: Bounds, answers: Sequence[Kept], order: Sequence[int], size: int, chance: np.random.Generator,
) -> None:
    """Follow ``size`` boxes to the end whatever their bounds are, as nothing may fit in boxes with the best bounds."""
    for _ in range(_PROBES):
        some = bounds.root
        for axis in order:
            boxes = opened(bounds.children(some, axis), answers)
            some = boxes.taken(chance.choice(len(boxes), min(size, len(boxes)), replace=False))
        _take(bounds, boxes, answers)
        _approach(bounds, answers)


def _begin_inside(bounds: Bounds, answers: Sequence[Kept], order: Sequence[int]) -> None:
    """Find first answers where the last axes have their first place: more of them, until something is found.

    There switches are as usual, where every switch is tried. What is found is far from the best, so it is changed on
    two axes at a time: a rule that ties two of them, as stages and their layers, lets none of them change alone.
    """
    lacking = _lacks(answers)
    for count in range(1, len(bounds.sizes)):
        inside = bounds.root
        inside.places[:, -count:] = [places[0] for places in bounds.prepared.live[-count:]]
        free = [axis for axis in order if axis < len(bounds.sizes) - count]
        _descend(bounds, answers, free, _INSIDE, inside)
        if lacking and not _lacks(answers):
            break
    for _ in range(_DOUBLE_ROUNDS):
        _approach(bounds, answers)
        if not _nearer(bounds, answers, _FEW, 2):
            break


def _lacks(answers: Sequence[Kept]) -> bool:
    """Tell whether a question has no answer yet: what is legal may not fit."""
    return not all(len(answer.keys) for answer in answers)


def _descend(bounds: Bounds, answers: Sequence[Kept], order: Sequence[int], beam: int, boxes: Boxes) -> bool:
    """Cut boxes along some axes, keep the ``beam`` best of a level by each key, and take the last as answers.

    The best by a key of a question are of those that may have an answer to it: what needs least may not fit.
    Tell whether any were left to the end.
    """
    for axis in order:
        boxes = opened(bounds.children(boxes, axis), answers)
        if not len(boxes):
            return False
        rows = list[NDArray[np.int64]]()
        for answer in answers:
            own = np.flatnonzero(answer.open(boxes))
            rows += [own[np.argsort(low, kind="stable")[:beam]] for low in boxes.low[own, answer.columns].T]
        boxes = boxes.taken(np.unique(np.concatenate(rows)))
    _take(bounds, boxes, answers)
    return True


def _approach(bounds: Bounds, answers: Sequence[Kept]) -> None:
    """Change the best answers on one axis at a time, as long as any gets better."""
    for _ in range(_ROUNDS):
        if not _nearer(bounds, answers, _NEIGHBOURS, 1):
            break


def _nearer(bounds: Bounds, answers: Sequence[Kept], most: int, together: int) -> bool:
    """Change ``most`` of the best of each answer on so many axes ``together``; tell whether any answer got better."""
    before = [answer.keys.copy() for answer in answers]
    numbers = np.unique(_numbers(bounds, answers, most))
    if not len(numbers):
        return False
    best = bounds.at(numbers)
    for axes in combinations(range(len(bounds.sizes)), together):
        boxes = bounds.unknown(np.unique(_freed(bounds, best, axes), axis=0))
        for axis in axes[:-1]:
            boxes = opened(bounds.children(boxes, axis), answers)
        for start in range(0, len(boxes), _CHILDREN):
            _take(bounds, bounds.children(boxes.taken(slice(start, start + _CHILDREN)), axes[-1]), answers)
    return any(not np.array_equal(keys, answer.keys) for keys, answer in zip(before, answers, strict=True))


def _numbers(bounds: Bounds, answers: Sequence[Kept], most: int | None = None) -> NDArray[np.int64]:
    """Return the numbers of the best configurations of a part, at most so many of each answer."""
    return np.concatenate([answer.numbers[:most][answer.parts[:most] == bounds.part.number] for answer in answers])


def _take(bounds: Bounds, boxes: Boxes, answers: Sequence[Kept]) -> None:
    boxes = bounds.exact(opened(boxes, answers))
    for answer in answers:
        answer.take(bounds, boxes)
