"""Branch and bound of a space: boxes are cut axis by axis, and closed where nothing better can be inside."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from shardmath.search.boxes.bounds import BATCH, Bounds, Boxes, sharing
from shardmath.search.boxes.kept import ALL, Kept, Within, kept_for, opened
from shardmath.search.boxes.order import begin_again
from shardmath.search.boxes.prepared import Prepared
from shardmath.search.boxes.preparing import prepared_for
from shardmath.search.spaces import Best, Front, Part, Question

Stopped = Callable[[], bool]
#: Called with configurations done and in all.
Progress = Callable[[int, int], None]
#: Seconds between two reports of progress: counting what is left takes time.
_SECONDS = 0.2


@dataclass
class Cut:
    """How a part was cut: in which order, boxes that were bounded, and what is left open."""

    order: tuple[str, ...]
    bounded: int = 0
    left: Boxes | None = None


def branched(
    parts: Sequence[Part], questions: Sequence[Question], *, most: int | None = None, stopped: Stopped = lambda: False,
    within: Within = ALL, progress: Progress | None = None,
) -> tuple[list[Kept], list[Cut]]:
    """Return the answers of all parts together to questions for the best and for fronts, and how each part was cut.

    All parts get first answers before any is cut: an answer of one part closes boxes of the others. No box is cut once
    about ``most`` of a part are bounded, or once ``stopped`` says so: then boxes are left. Of parts that were not
    prepared by then nothing is known. All parts have the axes of the groups of a question.
    """
    prepared = list[Prepared]()
    for part in parts:
        if prepared and stopped():
            break
        prepared.append(prepared_for(part, questions, within))
    answers = kept_for(tuple(questions), np.all([own.whole for own in prepared], axis=0), parts[0].axes, within)
    with sharing() as threads:
        bounds = [Bounds(part, own, threads) for part, own in zip(parts, prepared, strict=False)]
        for own in bounds:
            begin_again(own, answers)
        watch = None if progress is None else _Watch(progress, sum(part.size for part in parts))
        cuts = [_cut(own, answers, most, stopped, watch) for own in bounds]
    return answers, [*cuts, *(_unknown(part, questions) for part in parts[len(bounds):])]


class _Watch:
    """Tells now and then how many configurations are in closed boxes."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress, self._total, self._before, self._last = progress, total, 0, 0.0

    def see(self, bounds: Bounds, levels: Sequence[Sequence[Boxes]]) -> None:
        """Take note of boxes of a part that are open."""
        now = time.monotonic()
        if now >= self._last + _SECONDS:
            self._last = now
            left = sum(bounds.held(boxes.places) for level in levels for boxes in level)
            self._progress(self._before + max(0, bounds.part.size - left), self._total)

    def close(self, part: Part) -> None:
        """Take note of a part that is done."""
        self._before += part.size
        self._progress(self._before, self._total)


def _unknown(part: Part, questions: Sequence[Question]) -> Cut:
    """Return the cut of a part of which nothing is known."""
    keys = sum(len(item.by) for item in questions if isinstance(item, Best | Front))
    low, may = np.full((1, keys), -np.inf), np.ones((1, len(questions)), np.bool_)
    places = np.asarray([[axis.size for axis in part.axes]], np.int16)
    return Cut(tuple(axis.name for axis in part.axes), 0, Boxes(places, low, -low, may, ~may))


def _cut(
    bounds: Bounds, answers: Sequence[Kept], most: int | None, stopped: Stopped, watch: _Watch | None = None,
) -> Cut:
    """Cut the boxes of a part, the most promising first, and take its answers."""
    order = bounds.prepared.order.tolist()
    cut = Cut(tuple(bounds.part.axes[axis].name for axis in order))
    levels: list[list[Boxes]] = [[] for _ in range(len(order) + 1)]
    _place(bounds, bounds.children(bounds.root, order[0]), levels, 1, answers)
    while (level := next((level for level in range(len(order), 0, -1) if levels[level]), None)) is not None:
        if watch is not None:
            watch.see(bounds, levels)
        boxes = opened(levels[level].pop(), answers)
        if stopped() or (most is not None and bounds.bounded >= most):
            levels[level].append(boxes)
            break
        axis = order[level]
        size = max(1, BATCH // bounds.live[axis])
        if len(boxes) > size:
            levels[level].append(boxes.taken(np.arange(size, len(boxes))))
            boxes = boxes.taken(np.arange(size))
        _place(bounds, bounds.children(boxes, axis), levels, level + 1, answers)
    open_boxes = [boxes for stack in levels for boxes in stack if len(boxes)]
    cut.bounded = bounds.bounded
    cut.left = Boxes.joined(open_boxes) if open_boxes else None
    if watch is not None and cut.left is None:
        watch.close(bounds.part)
    return cut


def _place(bounds: Bounds, boxes: Boxes, levels: list[list[Boxes]], level: int, answers: Sequence[Kept]) -> None:
    """Take the answers among children, and put the others onto their level, the best bound first."""
    boxes = opened(boxes, answers)
    if level == len(levels) - 1:  # before it some of the places of a free axis may be illegal
        some = bounds.exact(boxes)
        for answer in answers:
            answer.take(bounds, some)
    elif len(boxes):
        levels[level].append(boxes.taken(np.argsort(boxes.low[:, 0], kind="stable")))
