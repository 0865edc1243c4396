"""The answer of a space by branch and bound: the best and the fronts of all parts together, and how they were cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
from shardmath.search.spaces import Best, Front, Part, Question, Space


def bounded_answer(parts: Sequence[Part], questions: Sequence[Question], stopped: Callable[[], bool]) -> Explored:
    """Answer questions about parts of a space. Raises InputError for one that needs a look at every configuration."""
    result = bounded(parts, questions, stopped=stopped)
    answers: dict[str, Answered] = {}
    for place, question in enumerate(questions):
        kept = tuple(result.configurations(place))
        if isinstance(question, Best):
            answers[question.name] = Ranking(question.formulas, (Group({}, kept),) if kept else (), question)
        elif isinstance(question, Front):
            answers[question.name] = Unbeaten(question.formulas, kept, question)
    size = sum(part.size for part in result.parts)
    return Explored(
        size, size if result.complete else 0, result.complete, sum(cut.bounded for cut in result.cuts), None, (), {},
        answers, None, tuple(_described(result, part, questions) for part in result.parts),
    )


def is_provable(explored: Explored) -> bool:
    """Check if each question of a search has an answer so far, so that the others are known to be hardly better."""
    return all(gap is not None for part in explored.bounds for gap in part.gaps.values())


def write_certificate(path: str, space: Space, explored: Explored) -> None:
    """Write the proof of an answer, or of how much better a search that was stopped might have made it.

    Raises InputError where bounds do not prove it, or where no file can be written.
    """
    text = certificate(
        space, [part.order for part in explored.bounds],
        {name: list(configurations_of(answer)) for name, answer in explored.answers.items()},
        {name: max(part.gaps[name] or 0.0 for part in explored.bounds) for name in explored.answers})
    with whole_file("certificate", path) as file:
        file.write(text)  # type: ignore[call-overload]


def _described(result: Bounded, part: Part, questions: Sequence[Question]) -> BoundedPart:
    cut = result.cuts[part.number]
    gaps = {question.name: result.gap(place, part.number) for place, question in enumerate(questions)}
    left = 0 if cut.left is None else len(cut.left)
    return BoundedPart(part.number, part.labels, cut.order, cut.bounded, left, gaps)
