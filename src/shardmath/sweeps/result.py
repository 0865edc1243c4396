"""The answer of a sweep: what was tried, what broke which rule, what fits, and the best layouts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardmath.errors import InputError
from shardmath.exactness import EXACT
from shardmath.generated.definitions import VERDICTS
from shardmath.gpus import Gpu
from shardmath.machines import Cluster
from shardmath.models import Model
from shardmath.spaces import Best, Space
from shardmath.sweeps.answers import Answer, BestAnswer
from shardmath.sweeps.configurations import Configuration, configurations
from shardmath.sweeps.layout import RULES, Layout, layout_of
from shardmath.sweeps.nests import Nest

#: What a condition such as ``divides(tensor_parallel, num_gpus)`` is about: the divisor, and what it must divide.
_DIVIDES = re.compile(r"divides\((.+), (\w+)\)")


@dataclass(frozen=True)
class BrokenRule:
    """How many candidates broke a rule; a candidate is counted once, at the first rule tried that it breaks."""

    name: str
    field: str
    text: str
    count: int


@dataclass(frozen=True)
class SweepResult:
    """Counts and best layouts of one sweep.

    ``tried`` = ``legal`` + all counts of ``broken``, which are in the order in which rules are tried; ``legal`` = the
    sum of ``verdicts``. ``values`` has the parameters that all layouts share. ``best`` are the best layouts that
    fit, ``best_by_recompute`` the best one for every recompute mode with a fit, and ``smallest`` the legal layout of
    least memory, whether it fits or not (None if none is legal). ``ranking`` says in words what is best, and
    ``time_unknown`` why no time is known of layouts that are for this reason ranked by memory.
    """

    model: Model
    gpu: Gpu
    implementation: str
    values: Mapping[str, int]
    tried: int
    legal: int
    broken: tuple[BrokenRule, ...]
    verdicts: Mapping[str, int]
    best: tuple[Layout, ...]
    best_by_recompute: Mapping[str, Layout]
    smallest: Layout | None
    ranking: str
    time_unknown: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "model": self.model.model_dump(),
            "gpu": self.gpu.model_dump(),
            "implementation": self.implementation,
            "values": dict(self.values),
            "tried": self.tried,
            "legal": self.legal,
            "broken": [asdict(rule) for rule in self.broken],
            "verdicts": dict(self.verdicts),
            "ranking": self.ranking,
            "time_unknown": self.time_unknown,
            "best": [asdict(item) for item in self.best],
            "best_by_recompute": {mode: asdict(item) for mode, item in self.best_by_recompute.items()},
            "smallest": None if self.smallest is None else asdict(self.smallest),
        }


def result_of(space: Space, nest: Nest, answer: Answer, time_unknown: str = "") -> SweepResult:
    """What the nest of the standard space found.

    Raises InputError if a layout needs so many bytes that they are not exact.
    """
    assert isinstance(space.model, Model)
    assert isinstance(space.cluster, Cluster)
    found = {question.name: list(_found(nest, question, item))
             for question, item in zip(nest.questions, answer.questions, strict=True)}
    if any(-item.keys["-peak"] >= EXACT for item in found["largest"]):
        rule = "must need less than 512 TiB on a GPU, for exact arithmetic"
        raise InputError("model", space.model.name, rule)
    layouts = {name: tuple(map(layout_of, items)) for name, items in found.items()}
    values = {name: value for name, value in nest.part.fixed.items() if name != "pipeline_rank"}
    verdicts = {name: int(count) for (name, _), count in zip(VERDICTS, answer.verdicts, strict=True)}
    return SweepResult(
        space.model, space.cluster.gpu, nest.part.evaluator.name, values, nest.size, sum(verdicts.values()),
        tuple(_broken(nest, answer.broken)), verdicts, layouts["best"],
        {item.recompute: item for item in layouts["best_by_recompute"]}, next(iter(layouts["smallest"]), None),
        RULES["time" if nest.part.timed else "memory"], time_unknown,
    )


def _found(nest: Nest, question: object, answer: object) -> Iterator[Configuration]:
    assert isinstance(question, Best)
    assert isinstance(answer, BestAnswer)
    for keys, numbers in zip(answer.keys, answer.numbers, strict=True):
        yield from configurations(nest.part, question, keys, numbers)


def _broken(nest: Nest, counts: NDArray[np.int64]) -> Iterator[BrokenRule]:
    said = {name: (field, text) for name, field, text in nest.part.evaluator.terms.RULES}
    for constraint in nest.part.constraints:
        divides = _DIVIDES.fullmatch(constraint.text)
        said[constraint.name] = (
            (divides[2], f"must be a multiple of {divides[1]}") if divides
            else (constraint.name, f"must meet {constraint.text}")
        )
    for place in nest.module.TRIED:
        name = nest.conditions[place]
        yield BrokenRule(name, *said[name], int(counts[place]))
