"""Questions to parts of a space by branch and bound, with the answers that loops would have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from shardmath.search.boxes.answered import Bounded
from shardmath.search.boxes.branching import Progress, branched
from shardmath.search.boxes.kept import Kept, Within
from shardmath.search.nests.answers import BestAnswer, Found, FrontAnswer
from shardmath.search.spaces import Front, Part, Question


def by_boxes(
    parts: Sequence[Part], questions: Sequence[Question], within: Within,
    stopped: Callable[[], bool] = lambda: False, progress: Progress | None = None,
) -> tuple[list[list[Found]], tuple[float | None, ...]]:
    """Return the answers of bounds of boxes as loops have them, for each of some parts with equal axes.

    With the gap of each question where the search was stopped, else with none.
    """
    if not questions:
        return [[] for _ in parts], ()
    numbered = tuple(replace(part, number=number) for number, part in enumerate(parts))
    kept, cuts = branched(numbered, questions, within=within, stopped=stopped, progress=progress)
    answers = [[_found(item, number) for item in kept] for number in range(len(parts))]
    bounded = Bounded(numbered, tuple(kept), tuple(cuts))
    if bounded.complete:
        return answers, ()
    own = [[bounded.gap(place, part) for part in range(len(parts))] for place in range(len(questions))]
    return answers, largest([*zip(*own, strict=True)])


def _found(item: Kept, number: int) -> Found:
    """Return what was found in one part."""
    own = np.flatnonzero(item.parts == number)
    keys, numbers = item.keys[own], item.numbers[own]
    return (FrontAnswer.of(keys, numbers) if isinstance(item.question, Front)
            else BestAnswer(keys[:, np.newaxis], numbers[:, np.newaxis]))


def largest(gaps: Sequence[tuple[float | None, ...]]) -> tuple[float | None, ...]:
    """Return for each question the largest gap of some searches, None where one does not know it."""
    left = [own for own in gaps if own]
    return tuple(None if None in own else max(own) for own in zip(*left, strict=True))
