"""The spaces of a job with their answers as one: the best of all of them, what nothing beats, and counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardmath.errors import InputError
from shardmath.search.boxes.branching import branched
from shardmath.search.distinct import distinct
from shardmath.search.nests.answers import Answer, BestAnswer, Found, FrontAnswer
from shardmath.search.nests.chosen import nest_of
from shardmath.search.nests.configurations import Configuration, configurations, front_of
from shardmath.search.nests.nest import Nest
from shardmath.search.nests.running import Progress, run
from shardmath.search.spaces import Best, Front, Part, Question, Space
from shardmath.search.spaces.questions import of_program

#: Configurations of a part from which bounds of boxes answer some questions sooner than loops.
_HUGE = 10**9
#: More layouts than this take long; a person who asks for them most likely meant fewer.
_MANY = 10**11


@dataclass(frozen=True)
class Answered:
    """The nests of the spaces of one job, one for each part, with the questions that were asked of it, and its answers.

    ``asked`` is what the first space says, by name.
    """

    nests: tuple[Nest, ...]
    questions: tuple[Sequence[Question], ...]
    answers: tuple[Answer, ...]
    asked: Mapping[str, Any]

    @property
    def verdicts(self) -> NDArray[np.int64]:
        """Legal layouts by verdict."""
        counts: NDArray[np.int64] = np.sum([answer.verdicts for answer in self.answers], axis=0)
        return counts

    @property
    def legal(self) -> int:
        """Layouts that break no rule."""
        return int(self.verdicts.sum())

    @property
    def size(self) -> int:
        """Layouts that were tried."""
        return sum(nest.size for nest in self.nests)

    @property
    def parts(self) -> tuple[Part, ...]:
        """Results of the nests."""
        return tuple(nest.part for nest in self.nests)

    @property
    def programs(self) -> tuple[Part, ...]:
        """The first part of each implementation."""
        firsts = {part.evaluator.implementation: part for part in reversed(self.parts)}
        return tuple(reversed(firsts.values()))

    def asks(self, name: str) -> bool:
        """Check if there is such a question."""
        return any(question.name == name for question in self.questions[0])

    def best(self, name: str) -> list[Configuration]:
        """Return the best configurations of a question, as many for each group as were asked for."""
        groups: dict[tuple[int | str, ...], list[Configuration]] = {}
        count = 0
        for nest, question, answer in self._answers(name):
            assert isinstance(question, Best)
            assert isinstance(answer, BestAnswer)
            count = question.count
            for keys, numbers in zip(answer.keys, answer.numbers, strict=True):
                for item in configurations(nest.part, question, keys, numbers):
                    groups.setdefault(tuple(item.labels[axis] for axis in question.per), []).append(item)
        return [item for items in groups.values() for item in distinct(sorted(items, key=_keys))[:count]]

    def first(self, name: str = "best") -> Configuration | None:
        """Return the best configuration of a question, if there is one; of equal ones the first of the spaces."""
        place = {id(nest.part): place for place, nest in enumerate(self.nests)}
        return min(self.best(name), key=lambda item: (_keys(item), place[id(item.part)], item.number), default=None)

    def front(self, name: str) -> list[Configuration]:
        """Return the Pareto front over all spaces, sorted by the formulas of the question."""
        if name not in self._fronts:
            self._fronts[name] = self._front(name)
        return self._fronts[name]

    @cached_property
    def _fronts(self) -> dict[str, list[Configuration]]:
        """The fronts so far, whose configurations know their terms."""
        return {}

    def _front(self, name: str) -> list[Configuration]:
        every: list[Configuration] = []
        for nest, question, answer in self._answers(name):
            assert isinstance(question, Front)
            assert isinstance(answer, FrontAnswer)
            size = int(answer.size[0])
            every += configurations(nest.part, question, answer.keys[:size], answer.numbers[:size])
        return front_of(every)

    def _answers(self, name: str) -> Iterator[tuple[Nest, Question, object]]:
        for nest, questions, answer in zip(self.nests, self.questions, self.answers, strict=True):
            for question, item in zip(questions, answer.questions, strict=True):
                if question.name == name:
                    yield nest, question, item


def answered(
    spaces: Iterable[Space], questions: Callable[[Space], Sequence[Question]] | None = None,
    progress: Progress | None = None, within: float = inf,
) -> Answered:
    """Sweep some spaces, with their own or other ``questions``.

    Of the best per several axes, those may be left out that are slower than the best of all by more than the share
    ``within``. Raises InputError for too many layouts.
    """
    asked = tuple(space if questions is None else replace(space, questions=tuple(questions(space))) for space in spaces)
    pairs = [(part, space.questions) for space in asked for part in space.parts()]
    size = sum(part.size for part, _ in pairs)
    if size > _MANY:
        rule = f"must give at most {_MANY} layouts, not {size}: name the sizes to try for some axes"
        raise InputError("num_gpus", pairs[0][0].fixed["num_gpus"], rule)
    return _swept(pairs, progress, asked[0].asked, within)


def asked_again(
    parts: Iterable[Part], questions: Sequence[Question], values: Mapping[str, int], like: Sequence[Nest] = (),
) -> Answered:
    """Sweep some parts again with other values of fixed symbols; ``like`` are their nests so far, if they are known."""
    return _swept([(replace(part, fixed={**part.fixed, **values}), questions) for part in parts], None, {}, like=like)


def _swept(
    asked: Sequence[tuple[Part, Sequence[Question]]], progress: Progress | None, named: Mapping[str, Any],
    within: float = inf, like: Sequence[Nest] = (),
) -> Answered:
    programs = [(part, [of_program(item, part.labels) for item in questions]) for part, questions in asked]
    boxed = [_boxed(part, questions, within) for part, questions in programs]
    looped = [tuple(item for place, item in enumerate(questions) if place not in places)
              for (_, questions), places in zip(programs, boxed, strict=True)]
    nests = [nest_of(part, questions, like[place] if like else None)
             for place, ((part, _), questions) in enumerate(zip(programs, looped, strict=True))]
    size, before, answers = sum(nest.size for nest in nests), 0, list[Answer]()
    for (part, questions), places, nest in zip(programs, boxed, nests, strict=True):
        def report(done: int, _: int, before: int = before) -> None:
            if progress is not None:
                progress(before + done, size)

        of_boxes = _by_boxes(part, [questions[place] for place in places], within)
        answer = run(nest, progress=report).answer
        swept, bounded = iter(answer.questions), iter(of_boxes)
        in_order = tuple(next(bounded if place in places else swept) for place in range(len(questions)))
        answers.append(replace(answer, questions=in_order))
        before += nest.size
    return Answered(tuple(nests), tuple(questions for _, questions in asked), tuple(answers), named)


def is_huge(part: Part) -> bool:
    """Tell whether bounds of boxes answer some questions to a part sooner than loops."""
    return part.size >= _HUGE


def _boxed(part: Part, questions: Sequence[Question], within: float) -> list[int]:
    """Return the places of questions to a part that bounds of boxes answer sooner than loops.

    Loops count what is legal in any case, so the best alone is left to them, as are the best of each place of one axis.
    """
    if not is_huge(part) or part.sharing is not None or not any(isinstance(item, Front) for item in questions):
        return []
    return [place for place, item in enumerate(questions)
            if isinstance(item, Front) or (isinstance(item, Best) and item.count == 1
                                           and (not item.per or (len(item.per) > 1 and within < inf)))]


def _by_boxes(part: Part, questions: Sequence[Question], within: float) -> list[Found]:
    """Return the answers of bounds of boxes as loops have them."""
    if not questions:
        return []
    kept, _ = branched([part], questions, within=within)
    return [FrontAnswer.of(item.keys, item.numbers) if isinstance(item.question, Front)
            else BestAnswer(item.keys[:, np.newaxis], item.numbers[:, np.newaxis]) for item in kept]


def _keys(item: Configuration) -> tuple[int | float, ...]:
    return tuple(item.keys.values())
