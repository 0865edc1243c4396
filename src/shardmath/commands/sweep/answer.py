"""The answer of a sweep: what was tried, what broke which rule, what fits, and the best layouts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from shardmath.compiler.exactness import EXACT
from shardmath.errors import InputError
from shardmath.generated.definitions import IMPLEMENTATIONS, VERDICTS
from shardmath.machines import Cluster
from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model
from shardmath.search.answered import Answered
from shardmath.search.layout import RULES, Layout, layout_of
from shardmath.search.offered import VARIED
from shardmath.search.spaces import Part, Space
from shardmath.search.stages import ONE_STAGE
from shardmath.search.untried import Untried, untried

#: Constraints of the search, in words: the field and the rule.
_SAID = {ONE_STAGE.name: ("account_for_embedding", "and account_for_loss change nothing without a pipeline")}
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
    ``time_unknown`` why no time is known of layouts that are for this reason ranked by memory. ``untried`` says what
    was left out.
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
    untried: tuple[Untried, ...] = ()

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
            "untried": [asdict(item) for item in self.untried],
            "best": [asdict(item) for item in self.best],
            "best_by_recompute": {mode: asdict(item) for mode, item in self.best_by_recompute.items()},
            "smallest": None if self.smallest is None else asdict(self.smallest),
        }


def result_of(space: Space, answered: Answered, time_unknown: str = "") -> SweepResult:
    """The answers of the spaces of a job, of which ``space`` is the first.

    Raises InputError if a layout needs so many bytes that they are not exact.
    """
    assert isinstance(space.model, Model)
    assert isinstance(space.cluster, Cluster)
    nests = answered.nests
    found = {question.name: answered.best(question.name) for question in nests[0].questions}
    if any(-item.keys["-peak"] >= EXACT for item in found["largest"]):
        rule = "must need less than 512 TiB on a GPU, for exact arithmetic"
        raise InputError("model", space.model.name, rule)
    layouts = {name: tuple(map(layout_of, items)) for name, items in found.items()}
    shared = set.intersection(*({*nest.part.fixed.items()} for nest in nests))
    values = {name: value for name, value in nests[0].part.fixed.items()
              if (name, value) in shared and name != "pipeline_rank"}
    verdicts = {name: int(count) for (name, _), count in zip(VERDICTS, answered.verdicts, strict=True)}
    return SweepResult(
        space.model, space.cluster.gpu, _named(nests[0].part), values, answered.size,
        answered.legal, _broken(answered), verdicts, layouts["best"],
        {item.recompute: item for item in layouts["best_by_recompute"]}, next(iter(layouts["smallest"]), None),
        RULES["time" if nests[0].part.timed else "memory"], time_unknown, untried(answered.parts),
    )


def _named(part: Part) -> str:
    """The implementation with the kernels that differ from its own, without what the search varies."""
    evaluator = part.evaluator
    usual = IMPLEMENTATIONS[evaluator.implementation]["choices"]
    changed = sorted((axis, option) for axis, option in evaluator.choices.items()
                     if option != usual[axis] and axis not in VARIED)
    return "_".join([evaluator.implementation, *(f"{axis}_{option}" for axis, option in changed)])


def _broken(answered: Answered) -> tuple[BrokenRule, ...]:
    """The rules of all nests, in the order in which the first one that has them tries them."""
    counts: dict[tuple[str, str, str], int] = {}
    for nest, answer in zip(answered.nests, answered.answers, strict=True):
        said = {name: (field, text) for name, field, text in nest.part.evaluator.terms.RULES}
        for constraint in nest.part.constraints:
            divides = _DIVIDES.fullmatch(constraint.text)
            said[constraint.name] = (
                (divides[2], f"must be a multiple of {divides[1]}") if divides
                else _SAID.get(constraint.name) or (constraint.name, f"must meet {constraint.text}")
            )
        for place in nest.module.TRIED:
            rule = (nest.conditions[place], *said[nest.conditions[place]])
            counts[rule] = counts.get(rule, 0) + int(answer.broken[place])
    return tuple(BrokenRule(*rule, count) for rule, count in counts.items())
