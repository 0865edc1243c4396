"""The spaces of a job with their answers as one: the best of all of them, what nothing beats, and counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shardmath.account.judged import NAMES
from shardmath.errors import InputError
from shardmath.search.boxes.found import by_boxes, largest
from shardmath.search.boxes.kept import Within
from shardmath.search.distinct import distinct
from shardmath.search.nests.answers import Answer, BestAnswer, FrontAnswer
from shardmath.search.nests.chosen import is_quick, nest_of, refuse_loops
from shardmath.search.nests.clusters import workers_of
from shardmath.search.nests.configurations import Configuration, configurations, front_of
from shardmath.search.nests.nest import Nest
from shardmath.search.nests.running import Progress, run
from shardmath.search.spaces import Best, Front, Part, Question, Space
from shardmath.search.spaces.questions import of_program

if TYPE_CHECKING:
    from distributed import Client

#: Configurations of a part from which bounds of boxes answer some questions sooner than loops.
_HUGE = 10**9
#: Configurations of a job from which bounds of boxes answer all questions: loops that count them take minutes.
_MANY = 10**11


@dataclass(frozen=True)
class Answered:
    """The parts of the spaces of one job, with the questions that were asked of each, and its answers.

    ``nests`` has the loops of each part; none where bounds of boxes alone answered, which count nothing. ``asked`` is
    what the first space says, by name. ``gaps`` has for each of the questions by how much a search that was stopped
    may have missed something better, see ``Kept.gap``; None where nobody knows, as where loops were stopped. It is
    empty for one that was not.
    """

    parts: tuple[Part, ...]
    nests: tuple[Nest, ...]
    questions: tuple[Sequence[Question], ...]
    answers: tuple[Answer, ...]
    asked: Mapping[str, Any]
    gaps: tuple[float | None, ...] = ()

    @property
    def complete(self) -> bool:
        """Tell whether the search went to its end."""
        return not self.gaps

    def gap(self, name: str = "best") -> float | None:
        """Return by which share the best of a question may be better than the answer; None where nobody knows."""
        if self.complete:
            return 0.0
        return next(gap for question, gap in zip(self.questions[0], self.gaps, strict=True) if question.name == name)

    @property
    def counted(self) -> bool:
        """Tell whether legal layouts were counted."""
        return bool(self.nests)

    @property
    def looped(self) -> tuple[tuple[Nest, Answer], ...]:
        """The loops of each part with their answer; none where nothing was counted."""
        return tuple(zip(self.nests, self.answers, strict=self.counted))

    @property
    def verdicts(self) -> NDArray[np.int64]:
        """Legal layouts by verdict, where they were counted."""
        counts: NDArray[np.int64] = np.sum([answer.verdicts for answer in self.answers], axis=0)
        return counts

    @property
    def legal(self) -> int | None:
        """Layouts that break no rule; None where they were not counted."""
        return int(self.verdicts.sum()) if self.counted else None

    @property
    def any_legal(self) -> bool:
        """Tell whether a layout breaks no rule, where questions are about legal ones or they were counted."""
        if self.counted:
            return bool(self.legal)
        return any(self.front(item.name) if isinstance(item, Front) else self.best(item.name)
                   for item in self.questions[0] if isinstance(item, Best | Front))

    @property
    def size(self) -> int:
        """Layouts that were tried."""
        return sum(part.size for part in self.parts)

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
        for part, question, answer in self._answers(name):
            assert isinstance(question, Best)
            assert isinstance(answer, BestAnswer)
            count = question.count
            for keys, numbers in zip(answer.keys, answer.numbers, strict=True):
                for item in configurations(part, question, keys, numbers):
                    groups.setdefault(tuple(item.labels[axis] for axis in question.per), []).append(item)
        return [item for items in groups.values() for item in distinct(sorted(items, key=_keys))[:count]]

    def first(self, name: str = "best") -> Configuration | None:
        """Return the best configuration of a question, if there is one; of equal ones the first of the spaces."""
        place = {id(part): place for place, part in enumerate(self.parts)}
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
        for part, question, answer in self._answers(name):
            assert isinstance(question, Front)
            assert isinstance(answer, FrontAnswer)
            size = int(answer.size[0])
            every += configurations(part, question, answer.keys[:size], answer.numbers[:size])
        return front_of(every)

    def _answers(self, name: str) -> Iterator[tuple[Part, Question, object]]:
        for part, questions, answer in zip(self.parts, self.questions, self.answers, strict=True):
            for question, item in zip(questions, answer.questions, strict=True):
                if question.name == name:
                    yield part, question, item


def answered(
    spaces: Iterable[Space], questions: Callable[[Space], Sequence[Question]] | None = None,
    progress: Progress | None = None, within: float = inf, stopped: Callable[[], bool] = lambda: False,
    client: Client | None = None,
) -> Answered:
    """Answer the questions of some spaces, their own or other ``questions``.

    Of the best per several axes, those may be left out that are slower than the best of all by more than the share
    ``within``. Of very many layouts nothing is counted. Once ``stopped`` says so, the search ends with what it has, and
    counts nothing. ``client`` is of a cluster that runs long loops. Raises InputError for a question that then has no
    answer, and for a client where no loops run.
    """
    asked = tuple(space if questions is None else replace(space, questions=tuple(questions(space))) for space in spaces)
    pairs = [(part, space.questions) for space in asked for part in space.parts()]
    if client is not None and is_bounded(part for part, _ in pairs):
        rule = f"must not be given for more than {_MANY:.0e} layouts: bounds answer here, and there is no loop to share"
        raise InputError("dask", client.scheduler.address, rule, "sizes to try for some axes, without --every-switch")
    return _swept(pairs, progress, asked[0].asked, within, stopped=stopped, client=client)


def asked_again(
    parts: Iterable[Part], questions: Sequence[Question], values: Mapping[str, int], like: Sequence[Nest] = (),
    client: Client | None = None,
) -> Answered:
    """Ask some parts again with other values of fixed symbols; ``like`` are their nests so far, if they are known."""
    return _swept([(replace(part, fixed={**part.fixed, **values}), questions) for part in parts], None, {}, like=like,
                  client=client)


def _swept(
    asked: Sequence[tuple[Part, Sequence[Question]]], progress: Progress | None, named: Mapping[str, Any],
    within: float = inf, like: Sequence[Nest] = (), stopped: Callable[[], bool] = lambda: False,
    client: Client | None = None,
) -> Answered:
    programs = [(part, [of_program(item, part.labels) for item in questions]) for part, questions in asked]
    if is_bounded(part for part, _ in asked):
        return _bounded(programs, named, [questions for _, questions in asked], within, progress, stopped)
    boxed = [_boxed(part, questions, within) for part, questions in programs]
    looped = [tuple(item for place, item in enumerate(questions) if place not in places)
              for (_, questions), places in zip(programs, boxed, strict=True)]
    nests = [nest_of(part, questions, like[place] if like else None)
             for place, ((part, _), questions) in enumerate(zip(programs, looped, strict=True))]
    size, before, answers, complete = sum(nest.size for nest in nests), 0, list[Answer](), True
    for (part, questions), places, nest in zip(programs, boxed, nests, strict=True):
        def report(done: int, _: int, before: int = before) -> None:
            if progress is not None:
                progress(before + done, size)

        (of_boxes,), left = by_boxes([part], [questions[place] for place in places], Within(within), stopped)
        workers = workers_of(nest, None if is_quick(nest) else client)
        state = run(nest, workers=workers, progress=report, stopped=stopped)
        answer, complete = state.answer, complete and not left and state.shards == nest.shards
        swept, bounded = iter(answer.questions), iter(of_boxes)
        in_order = tuple(next(bounded if place in places else swept) for place in range(len(questions)))
        answers.append(replace(answer, questions=in_order))
        before += nest.size
    return Answered(tuple(part for part, _ in asked), tuple(nests) if complete else (),
                    tuple(questions for _, questions in asked), tuple(answers), named,
                    () if complete else (None,) * len(asked[0][1]))


def _bounded(
    programs: Sequence[tuple[Part, Sequence[Question]]], named: Mapping[str, Any],
    questions: Sequence[Sequence[Question]], within: float, progress: Progress | None, stopped: Callable[[], bool],
) -> Answered:
    """Return the answers of bounds of boxes alone."""
    parts, size, before = tuple(part for part, _ in programs), sum(part.size for part, _ in programs), 0
    refuse_loops(parts, method="bounds")
    answers, alike, gaps = dict[int, Answer](), dict[str, list[int]](), list[tuple[float | None, ...]]()
    for place, (part, asked) in enumerate(programs):
        alike.setdefault(repr([part.axes, asked]), []).append(place)
    for places in alike.values():
        def report(done: int, _: int, before: int = before) -> None:
            if progress is not None:
                progress(before + done, size)

        of_boxes, own_gaps = by_boxes([parts[place] for place in places], programs[places[0]][1],
                                       Within(within, within), stopped, report)
        gaps.append(own_gaps)
        for place, own in zip(places, of_boxes, strict=True):
            answers[place] = Answer(np.zeros(0, np.int64), np.zeros(len(NAMES), np.int64), tuple(own))
            before += parts[place].size
    return Answered(parts, (), tuple(questions), tuple(answers[place] for place in range(len(parts))), named,
                    largest(gaps))


def is_bounded(parts: Iterable[Part]) -> bool:
    """Tell whether bounds of boxes answer all questions of a job, and no loops run."""
    return sum(part.size for part in parts) > _MANY


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


def _keys(item: Configuration) -> tuple[int | float, ...]:
    return tuple(item.keys.values())
