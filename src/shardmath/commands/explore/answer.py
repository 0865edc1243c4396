"""The answer of a space: what was counted, and an answer to each question, over all of its parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import prod
from typing import Any

import numpy as np

from shardmath.generated.definitions import VERDICTS
from shardmath.search.distinct import distinct
from shardmath.search.nests.answers import BestAnswer, Found, FrontAnswer, HistogramAnswer
from shardmath.search.nests.configurations import Configuration, configurations
from shardmath.search.nests.nest import Nest
from shardmath.search.nests.running import Run
from shardmath.search.spaces import Best, Front, Histogram, Question


@dataclass(frozen=True)
class Broken:
    """How many configurations broke a condition first; ``meaning`` says what they had to meet."""

    name: str
    meaning: str
    count: int


@dataclass(frozen=True)
class Group:
    """The best configurations of one group, best first; ``labels`` has the candidates that they share."""

    labels: Mapping[str, int | str]
    configurations: tuple[Configuration, ...]


@dataclass(frozen=True)
class Ranking:
    """The answer to ``Best``: groups that have a configuration, in the order of the space."""

    question: Best
    groups: tuple[Group, ...]


@dataclass(frozen=True)
class Unbeaten:
    """The answer to ``Front``, sorted by the question's formulas."""

    question: Front
    configurations: tuple[Configuration, ...]


@dataclass(frozen=True)
class Counted:
    """The answer to ``Histogram``: one count more than there are edges."""

    question: Histogram
    counts: tuple[int, ...]


Answered = Ranking | Unbeaten | Counted


@dataclass(frozen=True)
class Explored:
    """Answer of a space: counts, and an answer to each question.

    ``done`` of ``size`` configurations were looked at: all, unless it was stopped. They are ``legal``, with the counts
    of ``verdicts``, or ``broken``; ``evaluated`` of them had their memory computed, the others broke a condition that
    many share. ``rows`` is how many rows were written, None if none were asked for.
    """

    size: int
    done: int
    evaluated: int
    broken: tuple[Broken, ...]
    verdicts: Mapping[str, int]
    answers: Mapping[str, Answered]
    rows: int | None

    @property
    def complete(self) -> bool:
        """True if every configuration is done."""
        return self.done == self.size

    @property
    def legal(self) -> int:
        """Configurations that break nothing."""
        return sum(self.verdicts.values())

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "size": self.size, "done": self.done, "complete": self.complete, "evaluated": self.evaluated,
            "legal": self.legal, "broken": [asdict(item) for item in self.broken], "verdicts": dict(self.verdicts),
            "answers": {name: _plain(item) for name, item in self.answers.items()}, "rows": self.rows,
        }


def explored(
    nests: Sequence[Nest], runs: Sequence[Run], questions: Sequence[Question], rows: int | None,
) -> Explored:
    """Put the answers of all parts together; of equal configurations that of the first part, then the first, is best.

    ``questions`` are those of the space, of which each nest was asked.
    """
    answers: dict[str, Answered] = {}
    for number, question in enumerate(questions):
        found = [(nest, run.answer.questions[number]) for nest, run in zip(nests, runs, strict=True)]
        if isinstance(question, Best):
            answers[question.name] = _ranking(question, found)
        elif isinstance(question, Front):
            answers[question.name] = _unbeaten(question, found)
        elif isinstance(question, Histogram):
            counts = sum(item.counts for _, item in found if isinstance(item, HistogramAnswer))
            answers[question.name] = Counted(question, tuple(map(int, np.atleast_1d(counts))))
    verdicts = sum(run.answer.verdicts for run in runs)
    return Explored(
        sum(nest.size for nest in nests),
        sum(run.shards * nest.shard_size for nest, run in zip(nests, runs, strict=True)),
        sum(run.answer.evaluated for run in runs), tuple(_broken(nests, runs)),
        {name: int(count) for (name, _), count in zip(VERDICTS, np.atleast_1d(verdicts), strict=True)},
        answers, rows,
    )


def _broken(nests: Sequence[Nest], runs: Sequence[Run]) -> Iterable[Broken]:
    counts: dict[str, int] = {}
    meanings: dict[str, str] = {}
    for nest, run in zip(nests, runs, strict=True):
        for item in nest.part.constraints:
            meanings.setdefault(item.name, item.text)
        for name, symbol, text in nest.part.evaluator.terms.RULES:
            meanings.setdefault(name, f"{symbol} {text}")
        for name, count in zip(nest.conditions, run.answer.broken, strict=True):
            counts[name] = counts.get(name, 0) + int(count)
    return (Broken(name, meanings[name], count) for name, count in counts.items())


def _ranking(question: Best, found: Sequence[tuple[Nest, Found]]) -> Ranking:
    groups: dict[tuple[tuple[str, int | str], ...], list[Configuration]] = {}
    for nest, item in found:
        assert isinstance(item, BestAnswer)
        axes = [axis for name in question.per for axis in nest.part.axes if axis.name == name]
        own = {name: label for name, label in nest.part.labels.items() if name in question.per}
        shape = [axis.size for axis in axes]
        assert len(item.numbers) == prod(shape)
        for group, (keys, numbers) in enumerate(zip(item.keys, item.numbers, strict=True)):
            places = np.unravel_index(group, shape) if shape else ()
            labels = {**own, **{axis.name: axis.labels[place] for axis, place in zip(axes, places, strict=True)}}
            listed = list(configurations(nest.part, question, keys, numbers))
            if listed:
                groups.setdefault(tuple((name, labels[name]) for name in question.per), []).extend(listed)
    return Ranking(question, tuple(
        Group(dict(labels), tuple(distinct(sorted(listed, key=lambda item: item.order))[: question.count]))
        for labels, listed in groups.items()
    ))


def _unbeaten(question: Front, found: Sequence[tuple[Nest, Found]]) -> Unbeaten:
    listed: list[Configuration] = []
    for nest, item in found:
        assert isinstance(item, FrontAnswer)
        size = int(item.size[0])
        listed += configurations(nest.part, question, item.keys[:size], item.numbers[:size])
    kept: list[Configuration] = []
    for candidate in sorted(listed, key=lambda item: item.order):
        # Sorted by the first key: only one before this can beat or equal it.
        keys = candidate.keys.values()
        if not any(all(one <= two for one, two in zip(other.keys.values(), keys, strict=True)) for other in kept):
            kept.append(candidate)
    return Unbeaten(question, tuple(kept))


def _plain(answered: Answered) -> dict[str, Any]:
    question = answered.question
    if isinstance(answered, Counted):
        return {"of": question.formulas[0], "edges": list(answered.question.edges), "counts": list(answered.counts)}
    by = {"by": list(question.formulas)}
    if isinstance(answered, Unbeaten):
        return {**by, "configurations": [item.to_dict() for item in answered.configurations]}
    return {**by, "groups": [
        {"per": dict(group.labels), "configurations": [item.to_dict() for item in group.configurations]}
        for group in answered.groups
    ]}
