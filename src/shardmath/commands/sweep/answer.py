"""The answer of a sweep: what was tried, what broke which rule, what fits, and the best layouts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from shardmath.account.time import as_fast
from shardmath.answers import Answer, Drawn, Hidden
from shardmath.commands.sweep.gathered import Gathered
from shardmath.commands.sweep.placing import are_fastest, placed_layouts
from shardmath.compiler.exactness import EXACT
from shardmath.configuration.risk import risk_of
from shardmath.configuration.stages import ANY
from shardmath.errors import InputError
from shardmath.generated.definitions import VERDICTS
from shardmath.machines import Cluster
from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model
from shardmath.search.answered import Answered
from shardmath.search.further import simplest_of
from shardmath.search.layout import RULES, Layout, layout_of
from shardmath.search.offered import VARIED
from shardmath.search.refusals import refusal
from shardmath.search.spaces import Space
from shardmath.search.switches import Switch
from shardmath.search.untried import Untried, untried

#: Values that are those of one stage.
_OF_STAGES = ("pipeline_rank", *ANY)
#: Divisor and dividend of a condition such as ``divides(tensor_parallel, num_gpus)``.
_DIVIDES = re.compile(r"divides\((.+), (\w+)\)")


@dataclass(frozen=True)
class BrokenRule(Answer):
    """Candidates that broke a rule; each is counted under the first rule that it violates."""

    name: str
    """Name of the rule."""
    field: str
    """Parameter that the rule is about."""
    text: str
    """The rule, in words."""
    count: int
    """Candidates."""


@dataclass(frozen=True)
class GpusOfKind(Answer):
    """GPUs of one kind in a cluster of several."""

    gpus: int
    """How many there are."""
    gpu: Gpu
    """Figures of one."""


@dataclass(frozen=True)
class SweepResult(Drawn, room="sweep", table="best"):
    """Counts of all layouts of a model on a cluster, and the best that fit.

    Sizes are in bytes, times in seconds. ``plot`` sweeps the layouts once more, as it draws them all.

    Raises FrozenInstanceError where a field is set.

    Example:
        >>> result = shardmath.sweep("llama-3.1-8b", "h100-80gb", 16, global_batch_size=128, recompute=["none"])
        >>> result.tried == result.legal + sum(rule.count for rule in result.broken)
        True
        >>> result.best[0].verdict
        'fits'
    """

    model: Model
    """Dimensions of the model."""
    gpu: Gpu
    """Figures of the GPU."""
    implementation: str
    """Framework, with the kernel choices that differ from its own."""
    values: Mapping[str, int]
    """Parameters that all layouts share."""
    tried: int
    """Layouts that were tried: the legal ones and all that broke a rule."""
    legal: int | None
    """Layouts that break no rule; null where bounds answered, which count none, or the search was stopped."""
    broken: tuple[BrokenRule, ...]
    """Layouts by the first rule that they break, in the order in which rules are tried; none without counts."""
    verdicts: Mapping[str, int]
    """Legal layouts by verdict; none without counts."""
    risk: float
    """Probability of running out of memory below which a layout is said to fit."""
    ranking: str
    """How layouts are ranked, in words."""
    time_unknown: str
    """Why no time is known of layouts that are therefore ranked by memory; empty otherwise."""
    untried: tuple[Untried, ...]
    """Layouts that were left out, with the option that tries them."""
    best: tuple[Layout, ...]
    """The best layouts that fit."""
    best_by_recompute: Mapping[str, Layout]
    """The best one of every recompute mode with one that fits."""
    smallest: Layout | None
    """The legal layout of least memory; null if none is legal, or the search was stopped."""
    cluster: Hidden[Cluster]
    """GPUs, servers and network."""
    kinds: tuple[GpusOfKind, ...] = ()
    """Kinds of GPUs in the order of the stages; none where all GPUs are alike."""
    refusal: str = ""
    """Rules broken by the layout that breaks fewest, where none is legal; empty elsewhere."""
    switches: tuple[Switch, ...] | None = None
    """Where nothing fits, changes after which something fits or may fit, one of each kind, the smallest first: single
    ones, or else up to three together; an empty list if none does it. Null where a layout fits, and on clusters of
    measured links or of unlike GPUs, where no changes are tried."""

    error: float | None = None
    """Share of the predicted time that nine of ten measured steps on such GPUs were within; null where unknown."""
    are_fastest: Hidden[bool] = False
    """True where nodes are placed and no other layout that fits is faster than one of the best."""
    equally_fast: int = 0
    """How many of the best are as fast as the first, itself among them: less than 3 % slower. 0 without times."""
    complete: bool = True
    """False where the search was stopped: then layouts are the best so far, without counts and switches."""
    gap: float | None = 0.0
    """Share of the first one's step time that another layout that fits may save at most: 0 where the search is
    complete; null where it was stopped before anything was found that fits, or before all programs had bounds."""
    gathered: Hidden[Callable[[], Gathered]] = field(default=Gathered, repr=False, compare=False)
    """Function that gathers all legal layouts for a picture."""

    @property
    def machines(self) -> list[tuple[int, Gpu]]:
        """GPUs of the job: how many there are of each kind."""
        return self.cluster.machines(self.values["num_gpus"])


def result_of(space: Space, answered: Answered, top: int, time_unknown: str = "") -> SweepResult:
    """Return the answers of the spaces of a job, of which ``space`` is the first, with the ``top`` best.

    Raises InputError if a layout needs so many bytes that they are not exact.
    """
    assert isinstance(space.model, Model)
    assert isinstance(space.cluster, Cluster)
    parts = answered.parts
    best = {question.name: simplest_of(answered.best(question.name)) for question in answered.questions[0]}
    if any(-item.keys["-peak"] >= EXACT for item in best["largest"]):
        rule = "must need less than 512 TiB on a GPU, for exact arithmetic"
        raise InputError("model", space.model.name, rule)
    layouts = {name: tuple(map(layout_of, items)) for name, items in best.items()}
    if space.cluster.links is not None:
        modes = dict.fromkeys(item.recompute for item in layouts["best_by_recompute"])
        layouts["best"] = placed_layouts(best["best"], space.cluster, top)
        layouts["best_by_recompute"] = tuple(sorted((
            layout for mode in modes for layout in placed_layouts(
                [item for item in best["best_by_recompute"] if layout_of(item).recompute == mode], space.cluster, 1)
        ), key=lambda layout: layout.placed_seconds or 0.0))
    shared = set.intersection(*({*part.fixed.items()} for part in parts))
    values = {name: value for name, value in parts[0].fixed.items()
              if (name, value) in shared and name not in _OF_STAGES}
    verdicts = {name: int(count) for (name, _), count in zip(VERDICTS, answered.verdicts, strict=True)
                if answered.counted}
    machines = space.cluster.machines(values["num_gpus"])
    title = ", ".join(part.evaluator.title((*VARIED, *part.labels)) for part in answered.programs)
    return SweepResult(
        space.model, space.cluster.gpu, title, values, answered.size,
        answered.legal, _broken(answered), verdicts, risk_of(parts[0].fixed),
        RULES["time" if parts[0].timed else "memory"], time_unknown, untried(answered.parts),
        layouts["best"], {item.recompute: item for item in layouts["best_by_recompute"]},
        next(iter(layouts["smallest"]), None) if answered.complete else None, space.cluster,
        tuple(GpusOfKind(*item) for item in machines) if len(machines) > 1 else (), str(refusal(answered) or ""),
        error=space.cluster.error(bool(space.model.num_experts)) if parts[0].timed else None,
        equally_fast=_equally_fast(layouts["best"]),
        are_fastest=bool(layouts["best"]) and space.cluster.links is not None and are_fastest(
            layouts["best"], best["best"][-1], verdicts.get("fits", answered.size), len(best["best"])),
        complete=answered.complete, gap=answered.gap(),
    )


def _equally_fast(best: Sequence[Layout]) -> int:
    """Count the layouts that are as fast as the first."""
    times = [item.step_seconds if item.placed_seconds is None else item.placed_seconds for item in best]
    known = [seconds for seconds in times if seconds is not None]
    return sum(as_fast(seconds, known[0]) for seconds in known)


def _broken(answered: Answered) -> tuple[BrokenRule, ...]:
    """Return the rules of all nests, in the order in which the first one that has them tries them."""
    counts: dict[tuple[str, str, str], int] = {}
    for nest, answer in answered.looped:
        said = {name: (field, text) for name, field, text in nest.part.evaluator.terms.RULES}
        for constraint in nest.part.constraints:
            divides = _DIVIDES.fullmatch(constraint.text)
            said[constraint.name] = (
                (divides[2], f"must be a multiple of {divides[1]}") if divides
                else constraint.said or (constraint.name, f"must meet {constraint.text}")
            )
        for place in nest.tried:
            rule = (nest.conditions[place], *said[nest.conditions[place]])
            counts[rule] = counts.get(rule, 0) + int(answer.broken[place])
    return tuple(BrokenRule(*rule, count) for rule, count in counts.items())
