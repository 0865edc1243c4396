"""The answer of a space by branch and bound: the best and the fronts of all parts together, and how they were cut."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from shardmath.commands.explore.answer import (
    Answered,
    BoundedPart,
    Explored,
    Group,
    Ranking,
    Unbeaten,
    configurations_of,
)
from shardmath.files.writing import whole_file
from shardmath.search.boxes.answered import Bounded, bounded
from shardmath.search.certificates.written import certificate
from shardmath.search.nests.configurations import Configuration, unbeaten
from shardmath.search.spaces import Best, Front, Question, Space


def bounded_answer(space: Space, stopped: Callable[[], bool]) -> Explored:
    """Answer the questions of ``space``. Raises InputError for one that needs a look at every configuration."""
    parts = bounded(space, stopped=stopped)
    answers: dict[str, Answered] = {}
    for place, question in enumerate(space.questions):
        every = distinct_keys(item for part in parts for item in part.configurations(place))
        if isinstance(question, Best):
            kept = tuple(every[: question.count])
            answers[question.name] = Ranking(question.formulas, (Group({}, kept),) if kept else (), question)
        elif isinstance(question, Front):
            answers[question.name] = Unbeaten(question.formulas, tuple(unbeaten(every)), question)
    size = sum(part.part.size for part in parts)
    complete = all(part.cut.left is None for part in parts)
    return Explored(
        size, size if complete else 0, complete, sum(part.cut.bounded for part in parts), None, (), {}, answers, None,
        tuple(_described(part, space.questions) for part in parts),
    )


def write_certificate(path: str, space: Space, explored: Explored) -> None:
    """Write the proof of a complete answer.

    Raises InputError where bounds do not prove it, or where no file can be written.
    """
    text = certificate(space, [part.order for part in explored.bounds], {
        name: list(configurations_of(answer)) for name, answer in explored.answers.items()
    })
    with whole_file("certificate", path) as file:
        file.write(text)  # type: ignore[call-overload]


def distinct_keys(configurations: Iterable[Configuration]) -> list[Configuration]:
    """Return configurations in the order of their keys, one for equal keys."""
    first: dict[tuple[int | float, ...], Configuration] = {}
    for item in sorted(configurations, key=lambda item: item.order):
        first.setdefault(tuple(item.keys.values()), item)
    return list(first.values())


def _described(part: Bounded, questions: Sequence[Question]) -> BoundedPart:
    left = part.cut.left
    gaps = {question.name: part.gap(place) for place, question in enumerate(questions)}
    return BoundedPart(part.part.number, part.cut.order, part.cut.bounded, 0 if left is None else len(left), gaps)
