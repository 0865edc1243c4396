"""The answer of a space: what was counted, and an answer to each question, over all of its parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Annotated, Any

import numpy as np
from pydantic import ConfigDict, GetPydanticSchema, PlainSerializer, with_config
from pydantic_core.core_schema import any_schema
from typing_extensions import TypedDict

from shardmath.answers import Answer, Drawn, Hidden, Label, alike
from shardmath.generated.definitions import VERDICTS
from shardmath.search.distinct import distinct
from shardmath.search.nests.answers import BestAnswer, FrontAnswer, HistogramAnswer
from shardmath.search.nests.answers import Found as Partial
from shardmath.search.nests.configurations import Configuration, configurations, front_of
from shardmath.search.nests.nest import Nest
from shardmath.search.nests.running import Run
from shardmath.search.spaces import Best, Front, Histogram, Question


@with_config(ConfigDict(use_attribute_docstrings=True, extra="allow", json_schema_extra={
    "additionalProperties": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
}))
class Found(TypedDict):
    """One configuration of a space: beside these fields one for each of its axes, by name."""

    keys: dict[str, int | float | None]
    """Values of the formulas that were asked for."""
    peak_bytes: int
    """Bytes of the peak."""
    verdict: str
    """fits, uncertain or out of memory, as the probability of running out says."""
    rule_80: str
    """The same by the published 80 % rule."""
    run_out_probability: float
    """Probability that the process on the fullest rank runs out of memory."""
    part: int
    """Part of the space, from 0."""
    number: int
    """Number of the configuration in its part."""


#: Configuration that JSON has as ``Found``.
Shown = Annotated[
    Configuration, GetPydanticSchema(lambda kind, handler: any_schema()),
    PlainSerializer(Configuration.to_dict, return_type=Found),
]


@dataclass(frozen=True)
class Broken(Answer):
    """Configurations that broke a condition first."""

    name: str
    """Name of the condition."""
    meaning: str
    """The condition that they had to meet."""
    count: int
    """Configurations."""


@dataclass(frozen=True)
class Group(Answer):
    """The best configurations of one group."""

    per: Mapping[str, Label]
    """Candidates that they share."""
    configurations: tuple[Shown, ...]
    """The configurations, the best one first."""


@dataclass(frozen=True)
class Ranking(Answer):
    """The answer to a question for the best."""

    by: tuple[str, ...]
    """Formulas that it is ranked by."""
    groups: tuple[Group, ...]
    """Groups that have a configuration, in the order of the space."""
    question: Hidden[Best]
    """The question."""


@dataclass(frozen=True)
class Unbeaten(Answer):
    """The answer to a question for those that none beats in every formula."""

    by: tuple[str, ...]
    """The formulas."""
    configurations: tuple[Shown, ...]
    """The configurations, sorted by the formulas."""
    question: Hidden[Front]
    """The question."""


@dataclass(frozen=True)
class Counted(Answer):
    """The answer to a question for counts."""

    of: str
    """Formula that is counted."""
    unit: str
    """Unit of the formula and of the edges, where it is the name of a term; else nothing."""
    edges: tuple[int | float, ...]
    """Edges between the counts."""
    counts: tuple[int, ...]
    """One count more than there are edges."""
    question: Hidden[Histogram]
    """The question."""


Answered = Ranking | Unbeaten | Counted


@dataclass(frozen=True)
class BoundedPart(Answer):
    """How boxes of a part were cut (method bounds)."""

    part: int
    """Part of the space, from 0."""
    options: Mapping[str, str]
    """Implementation and kernels of the part, where the space has several."""
    order: tuple[str, ...]
    """Axes in the order in which boxes were cut."""
    bounded: int
    """Boxes whose formulas were bounded, those for first answers and for the order of axes among them."""
    open: int
    """Boxes that are left; 0 where the answers are proved."""
    gaps: Mapping[str, float | None]
    """By question, the share by which keys may still get better than the last answer's (of a front, than those of the
    nearest answer); null without an answer yet."""


@dataclass(frozen=True)
class LeftOut(Answer):
    """A combination of options that is no part of the space."""

    options: Mapping[str, str]
    """Implementation and kernels by axis."""
    reason: str
    """The rule that it breaks, or what is not counted yet."""


@dataclass(frozen=True)
class Explored(Drawn, room="explore"):
    """Answer of a space: counts, and an answer to each question.

    With method bounds no configuration is counted: ``broken`` and ``verdicts`` are empty.

    Raises FrozenInstanceError where a field is set.

    Example:
        >>> axes = {"tensor_parallel": [1, 2, 4, 8], "micro_batch_size": [1, 2]}
        >>> job = {"model": "llama-3.1-8b", "gpu": "h100-80gb", "fixed": {"num_gpus": 16, "global_batch_size": 64}}
        >>> questions = {"least": {"best": ["peak"], "count": 1}}
        >>> answer = shardmath.explore({**job, "axes": axes, "questions": questions})
        >>> answer.size, answer.legal, answer.verdicts["fits"]
        (8, 8, 4)
    """

    size: int
    """Configurations of the space."""
    done: int
    """Those that were looked at."""
    complete: bool
    """True if every configuration is done."""
    evaluated: int
    """Those whose memory was computed; the others broke a condition that many share."""
    legal: int | None
    """Those that break no condition; null with method bounds."""
    broken: tuple[Broken, ...]
    """Configurations by the condition that they broke first."""
    verdicts: Mapping[str, int]
    """Legal ones by verdict."""
    answers: Mapping[str, Answered]
    """The answer to every question, by its name."""
    rows: int | None
    """Rows that were written; null if none were asked for."""
    bounds: tuple[BoundedPart, ...] = ()
    """How the parts were cut, with method bounds."""
    refusal: str = ""
    """Why no configuration is legal, with the nearest legal value; empty where one is, or where no rule says it."""
    left_out: tuple[LeftOut, ...] = ()
    """Combinations of options that cannot be."""
    risk: float | None = None
    """Probability of running out of memory below which a configuration is said to fit; null where it is not the same
    for all of them."""
    links_as_fastest: Hidden[bool] = False
    """True where links are measured: times are those with each link as fast as the fastest."""

    def records(self) -> list[dict[str, Any]]:
        """Return the configurations of all answers: the question, candidates on the axes, values of its formulas.

        Example:
            >>> axes = {"tensor_parallel": [1, 2, 4, 8], "micro_batch_size": [1, 2]}
            >>> job = {"model": "llama-3.1-8b", "gpu": "h100-80gb", "fixed": {"num_gpus": 16, "global_batch_size": 64}}
            >>> questions = {"least": {"best": ["peak"], "count": 1}}
            >>> answer = shardmath.explore({**job, "axes": axes, "questions": questions})
            >>> answer.records()
            [{'question': 'least', 'tensor_parallel': 8, 'micro_batch_size': 1, 'peak': 17794143232}]
        """
        return alike([
            {"question": name, **item.labels, **item.keys} for name, answer in self.answers.items()
            for item in configurations_of(answer)
        ])


def configurations_of(answer: Answered) -> Iterator[Configuration]:
    """Return the configurations of an answer; counts have none."""
    if isinstance(answer, Unbeaten):
        yield from answer.configurations
    elif isinstance(answer, Ranking):
        for group in answer.groups:
            yield from group.configurations


def explored(
    nests: Sequence[Nest], runs: Sequence[Run], questions: Sequence[Question], rows: int | None,
) -> Explored:
    """Put the answers of all parts together; of equal configurations that of the first part, then the first, is best.

    ``questions`` are those of the space, of which each nest was asked.
    """
    answers: dict[str, Answered] = {}
    for number, question in enumerate(questions):
        partials = [(nest, run.answer.questions[number]) for nest, run in zip(nests, runs, strict=True)]
        if isinstance(question, Best):
            answers[question.name] = _ranking(question, partials)
        elif isinstance(question, Front):
            answers[question.name] = _unbeaten(question, partials)
        elif isinstance(question, Histogram):
            counts = sum(item.counts for _, item in partials if isinstance(item, HistogramAnswer))
            answers[question.name] = Counted(
                question.of, nests[0].part.unit(question.of), tuple(question.edges),
                tuple(map(int, np.atleast_1d(counts))), question)
    verdicts = sum(run.answer.verdicts for run in runs)
    counted = {name: int(count) for (name, _), count in zip(VERDICTS, np.atleast_1d(verdicts), strict=True)}
    size = sum(nest.size for nest in nests)
    done = sum(run.shards * nest.shard_size for nest, run in zip(nests, runs, strict=True))
    return Explored(
        size, done, done == size, sum(run.answer.evaluated for run in runs), sum(counted.values()),
        tuple(_broken(nests, runs)), counted, answers, rows,
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


def _ranking(question: Best, partials: Sequence[tuple[Nest, Partial]]) -> Ranking:
    groups: dict[tuple[tuple[str, int | str], ...], list[Configuration]] = {}
    for nest, item in partials:
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
    return Ranking(question.formulas, tuple(
        Group(dict(labels), tuple(distinct(sorted(listed, key=lambda item: item.order))[: question.count]))
        for labels, listed in groups.items()
    ), question)


def _unbeaten(question: Front, partials: Sequence[tuple[Nest, Partial]]) -> Unbeaten:
    listed: list[Configuration] = []
    for nest, item in partials:
        assert isinstance(item, FrontAnswer)
        size = int(item.size[0])
        listed += configurations(nest.part, question, item.keys[:size], item.numbers[:size])
    return Unbeaten(question.formulas, tuple(front_of(listed)), question)
