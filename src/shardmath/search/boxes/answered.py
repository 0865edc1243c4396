"""A space by branch and bound: the answers of all of its parts as configurations, and how they were found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from shardmath.errors import InputError
from shardmath.search.boxes.branching import Cut, branched
from shardmath.search.boxes.kept import Kept
from shardmath.search.nests.configurations import Configuration, whole
from shardmath.search.nests.nest import steps
from shardmath.search.spaces import Best, Front, Part, Question, Space


@dataclass(frozen=True)
class Bounded:
    """Answers of one part, and how it was cut."""

    part: Part
    answers: tuple[Kept, ...]
    cut: Cut

    def configurations(self, place: int) -> Iterator[Configuration]:
        """Yield a configuration for each of the distinct keys that a question found, in the order of the keys."""
        answer, step = self.answers[place], steps(self.part.axes)
        if answer.boxes is None:
            return
        sizes = np.asarray([axis.size for axis in self.part.axes])
        places = np.where(answer.boxes == sizes, 0, answer.boxes).astype(np.int64)
        for keys, row in zip(answer.keys.tolist(), places.tolist(), strict=True):
            number = sum(at * step[axis.name] for at, axis in zip(row, self.part.axes, strict=True))
            yield Configuration(self.part, number, dict(zip(answer.question.by, map(whole, keys), strict=True)))

    def gap(self, place: int) -> float | None:
        """Return the share by which the first key of a question may still get better; 0.0 where nothing is open."""
        left = self.cut.left
        if left is None:
            return 0.0
        return self.answers[place].gap(left.low[left.may[:, place]]) if left.may[:, place].any() else 0.0


def bounded(
    space: Space, *, most: int | None = None, stopped: Callable[[], bool] = lambda: False,
) -> tuple[Bounded, ...]:
    """Return the answers of every part of a space whose questions are for the best and for fronts.

    No more than about ``most`` boxes of a part are bounded. Raises InputError for another question, as it needs a look
    at every configuration.
    """
    refuse_uncounted(space.questions)
    results = ((part, *branched(part, space.questions, most=most, stopped=stopped)) for part in space.parts())
    return tuple(Bounded(part, tuple(answers), cut) for part, answers, cut in results)


def refuse_uncounted(questions: Sequence[Question]) -> None:
    """Raise InputError for a question that bounds of boxes cannot answer."""
    for question in questions:
        if not isinstance(question, Best | Front):
            rule = "must be best or front with method bounds: counts need every configuration"
            raise InputError(f"questions.{question.name}", question.key, rule, "method sweep")
        if isinstance(question, Best) and question.per:
            rule = "must be empty with method bounds: one ranking is bounded at a time"
            raise InputError(f"questions.{question.name}.per", list(question.per), rule, "method sweep")
