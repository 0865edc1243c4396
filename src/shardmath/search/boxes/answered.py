"""A space by branch and bound: the answers of all of its parts as configurations, and how they were found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, isinf

from shardmath.errors import InputError
from shardmath.search.boxes.branching import Cut, branched
from shardmath.search.boxes.kept import Kept
from shardmath.search.nests.configurations import Configuration, whole
from shardmath.search.spaces import Best, Front, Part, Question

#: Gaps are whole numbers of this part of a key.
_PARTS = 10_000


@dataclass(frozen=True)
class Bounded:
    """Answers to the questions of a space, and how each of its parts was cut."""

    parts: tuple[Part, ...]
    answers: tuple[Kept, ...]
    cuts: tuple[Cut, ...]

    @property
    def complete(self) -> bool:
        """Check if no box is left."""
        return all(cut.left is None for cut in self.cuts)

    def configurations(self, place: int) -> Iterator[Configuration]:
        """Yield a configuration for each of the distinct keys that a question found, in the order of the keys."""
        answer = self.answers[place]
        columns = (column.tolist() for column in (answer.keys, answer.parts, answer.numbers))
        for keys, part, number in zip(*columns, strict=True):
            yield Configuration(self.parts[part], number, dict(zip(answer.question.by, map(whole, keys), strict=True)))

    def gap(self, place: int, part: int) -> float | None:
        """Return the share by which a part may still make the answer to a question better; 0.0 where nothing is open.

        See ``Kept.gap``; it is rounded up to a hundredth of a per cent. None without an answer yet.
        """
        left = self.cuts[part].left
        if left is None or not (may := left.may[:, place]).any():
            return 0.0
        gap = self.answers[place].gap(left.low[may])
        return None if gap is None or isinf(gap) else ceil(gap * _PARTS) / _PARTS


def bounded(
    parts: Sequence[Part], questions: Sequence[Question], *, most: int | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> Bounded:
    """Return the answers of all parts of a space to questions for the best and for fronts.

    No more than about ``most`` boxes of a part are bounded. Raises InputError for another question, as it needs a look
    at every configuration.
    """
    refuse_uncounted(questions)
    answers, cuts = branched(parts, questions, most=most, stopped=stopped)
    return Bounded(tuple(parts), tuple(answers), tuple(cuts))


def refuse_uncounted(questions: Sequence[Question]) -> None:
    """Raise InputError for a question that bounds of boxes cannot answer."""
    for question in questions:
        if not isinstance(question, Best | Front):
            rule = "must be best or front with method bounds: counts need every configuration"
            raise InputError(f"questions.{question.name}", question.key, rule, "method sweep")
        if isinstance(question, Best) and question.per:
            rule = "must be empty with method bounds: one ranking is bounded at a time"
            raise InputError(f"questions.{question.name}.per", list(question.per), rule, "method sweep")
