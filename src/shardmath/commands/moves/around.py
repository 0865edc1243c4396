"""The legal layouts of the same GPUs and the same batch around one configuration, with memory and time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardmath.account.configured import Configuration, configured
from shardmath.answers import Answer, Hidden, Label
from shardmath.commands.moves.listed import columns_of, layouts_near
from shardmath.commands.moves.variants import Variant
from shardmath.configuration.choosing import following
from shardmath.configuration.job import without_effect
from shardmath.configuration.settings import SELECTIVE, recompute_switches
from shardmath.divisors import divisors
from shardmath.errors import InputError
from shardmath.generated.definitions import LIMITS, RECOMPUTE_MODES, RECOMPUTE_REGIONS
from shardmath.search.answered import Answered, answered
from shardmath.search.layout import USUAL_SCHEDULES
from shardmath.search.modes import named_alike
from shardmath.search.nests.configurations import Configuration as Swept
from shardmath.search.offered import offered
from shardmath.search.sizes import AXES as _AXES
from shardmath.search.sizes import as_arguments_of_explain, sizes_of
from shardmath.search.spaces import Space
from shardmath.search.stages import ACCOUNTED
from shardmath.search.timed import timed
from shardmath.search.untried import Untried, untried

#: Sizes that can change one by one.
AXES = (*_AXES, *ACCOUNTED)
#: Derived symbols.
_FOLLOWING = "last_stage_layers"
#: Arguments of ``explain`` that the axes say, or that are given apart.
_LAYOUT = (*AXES, "data_parallel", "num_gpus", "global_batch_size", "pipeline_layout", "anchor", "network", "node_size",
           *RECOMPUTE_REGIONS.values())

#: Sizes that follow others while nobody changes them.
_FOLLOWERS = ("sequence_parallel", "virtual_pipeline", "expert_tensor_parallel", *ACCOUNTED)

Columns = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Replaced(Answer):
    """One thing that changes."""

    name: str
    """Parameter, or ``recompute``."""
    before: Label
    """Its value before."""
    after: Label
    """Its value after."""


@dataclass(frozen=True)
class Move(Answer):
    """Changes that together give another legal configuration on the same GPUs with the same batch."""

    changes: tuple[Replaced, ...]
    """The changes."""
    layout: Mapping[str, Label]
    """All sizes of the layout after them."""
    peak_bytes: int
    """Bytes of the peak after them."""
    change_bytes: int
    """Bytes that the peak grows by, or shrinks by where it is negative."""
    margin_bytes: int
    """Memory that they leave below what fits."""
    seconds: float | None
    """Time of a step; null where it is not known."""
    ratio: float | None
    """The time of a step over that of now; null where it is not known."""
    arguments: Hidden[Mapping[str, Any]] = field(repr=False)
    """Arguments of ``explain`` that describe it."""

    @property
    def fits(self) -> bool:
        """True if it fits."""
        return self.margin_bytes >= 0

    @property
    def key(self) -> frozenset[tuple[str, int | str]]:
        """Return the key of a change: equal for equal moves."""
        return frozenset((change.name, change.after) for change in self.changes)


class Rows:
    """Legal layouts with some variants, and what each changes; ``columns`` are those of ``advice.timed.Timed``."""

    def __init__(
        self, around: Around, made: Sequence[Variant], own: Mapping[str, int | str], columns: Columns,
    ) -> None:
        self._around, self._made, self._own, self._columns = around, tuple(made), own, columns
        self.peaks: NDArray[np.int64] = columns["peak"]
        #: Bytes up to which each fits.
        self.limits: NDArray[np.int64] = columns["limit"] if around.limit_bytes is None else (
            np.full(len(self.peaks), around.limit_bytes))
        self.seconds: NDArray[np.float64] = columns["seconds"]
        usual = around.usual(own, columns["tensor_parallel"], columns["pipeline_parallel"])
        self._changed = {name: columns[name] != usual[name] for name in AXES}
        #: How many things each layout changes.
        self.counts: NDArray[np.int64] = len(self._made) + np.sum(list(self._changed.values()), axis=0)

    def move(self, row: int) -> Move:
        """Return one layout as a move."""
        names = (*AXES, _FOLLOWING) if _FOLLOWING in self._columns else AXES
        layout: dict[str, int | str] = {name: self._columns[name][row].item() for name in names}
        changes = [Replaced(item.name, item.before, item.after) for item in self._made]
        changes += [Replaced(name, self._own[name], layout[name]) for name in AXES if self._changed[name][row]]
        seconds = float(self.seconds[row])
        return self._around.move(changes, layout, int(self.peaks[row]), int(self.limits[row]),
                                 None if np.isnan(seconds) else seconds, self._around.arguments_of(self._made, layout))


@dataclass(frozen=True)
class Around:
    """A configuration with the ``arguments`` of ``explain`` that describe it, as a place among all layouts.

    Its peak is ``peak_bytes``, a step takes ``seconds`` (None if unknown). A layout fits by its own limit, or by the
    same ``limit_bytes`` for all where they are not None.
    """

    configuration: Configuration
    arguments: Mapping[str, Any]
    peak_bytes: int
    seconds: float | None
    limit_bytes: int | None
    _known: dict[object, Rows] = field(default_factory=dict, repr=False, compare=False)

    @property
    def timed(self) -> bool:
        """Tell whether the time of a step is known."""
        return self.seconds is not None

    def move(
        self, changes: Iterable[Replaced], layout: Mapping[str, int | str], peak_bytes: int, limit_bytes: int,
        seconds: float | None, arguments: Mapping[str, Any],
    ) -> Move:
        """Return the move to a layout, which fits up to ``limit_bytes``, beside the configuration as it is."""
        limit = limit_bytes if self.limit_bytes is None else self.limit_bytes
        ratio = None if seconds is None or self.seconds is None else seconds / self.seconds
        return Move(tuple(changes), layout, peak_bytes, peak_bytes - self.peak_bytes, limit - peak_bytes,
                    seconds, ratio, arguments)

    def rows(self, made: Sequence[Variant], most: int) -> Rows:
        """Return all legal layouts with some variants that change at most so many sizes; others may be among them.

        A variant that does not go with the rest gives no layout.
        """
        key = (tuple(item.name for item in made), tuple(item.after for item in made), most)
        if key not in self._known:
            self._known[key] = self._rows(made, most)
        return self._known[key]

    def best(self) -> Move | None:
        """Return the best layout that fits, of all without variants; None for an explicit list of layers."""
        return self._searched("best")

    def smallest(self) -> Move | None:
        """Return the legal layout of least memory, of all that there are without variants."""
        return self._searched("smallest")

    def untried(self) -> tuple[Untried, ...]:
        """Return layouts that no move leads to."""
        return () if self.listed else untried(self._answers.parts)

    def _searched(self, question: str) -> Move | None:
        best = None if self.listed else self._answers.first(question)
        return None if best is None else self._moved(best)

    @cached_property
    def _answers(self) -> Answered:
        """Return the rows of a sweep of the same job."""
        return answered(self._spaces((), self.own))

    def _moved(self, swept: Swept) -> Move:
        """Return a layout that a sweep found as a move."""
        sizes, own = sizes_of(swept), self.own
        layout = {name: sizes[name] for name in (*AXES, _FOLLOWING)}
        usual = self.usual(own, swept.values["tensor_parallel"], swept.values["pipeline_parallel"])
        changes = tuple(Replaced(name, own[name], layout[name]) for name in AXES if layout[name] != usual[name])
        seconds = float(swept.terms["step.time"]) if swept.part.timed else None
        return self.move(changes, layout, swept.peak_bytes, int(swept.terms[LIMITS[0]]), seconds,
                         self.arguments_of((), layout))

    @property
    def listed(self) -> bool:
        """Tell whether an explicit list of layers fixes the number of stages."""
        return self.arguments.get("pipeline_layout") is not None

    @cached_property
    def own(self) -> dict[str, int | str]:
        """The configuration's own place on every axis."""
        job = self.configuration.job
        return {name: named_alike(job.recompute) if name == "recompute" else job.values[name] for name in AXES}

    def usual(self, own: Mapping[str, int | str], tensor: Any, pipeline: Any) -> dict[str, Any]:
        """Return the unchanged value of every axis, for numbers or columns of ranks; some sizes follow others."""
        asked = self.arguments.get("sequence_parallel")
        usual = self.configuration.job.evaluator.defaults["sequence_parallel"] if asked is None else asked
        on = own["sequence_parallel"] if own["tensor_parallel"] != 1 else int(usual)
        follows = "expert_tensor_parallel" in following(self.configuration.job.evaluator, self.arguments)
        return {**own, "sequence_parallel": np.where(tensor > 1, on, 0),
                "virtual_pipeline": np.where(pipeline > 1, own["virtual_pipeline"], 1),
                **{name: np.where(pipeline > 1, own[name], 0) for name in ACCOUNTED},
                **({"expert_tensor_parallel": tensor} if follows else {})}

    def arguments_of(self, made: Sequence[Variant], layout: Mapping[str, int | str]) -> dict[str, Any]:
        """Return the arguments of ``explain`` for a layout with some variants."""
        values = self.configuration.job.values
        gone = ("data_parallel", *RECOMPUTE_REGIONS.values())
        kept = {name: value for name, value in self.arguments.items() if name not in gone}
        for item in made:
            kept = item.applied(kept)
        sizes = as_arguments_of_explain(layout)
        return {**kept, **sizes, "num_gpus": values["num_gpus"], "global_batch_size": values["global_batch_size"]}

    def _rows(self, made: Sequence[Variant], most: int) -> Rows:
        own = {**self.own, **{item.name: item.after for item in made if item.name in AXES}}
        own |= {name: value for item in made for name, value in item.brings.items()}
        try:
            listed = self.listed and not any(item.name == "pipeline_layout" for item in made)
            columns = self._listed(made, own, most) if listed else self._columns(made, own, most)
        except InputError:
            if not made:
                raise
            columns = dict.fromkeys((*AXES, "peak", "limit", "seconds"), np.empty(0))
        return Rows(self, made, own, columns)

    def _columns(self, made: Sequence[Variant], own: Mapping[str, int | str], most: int) -> Columns:
        # Followers may change with other sizes: they are left out here, and counted where they do not.
        near = {name: value for name, value in own.items() if name not in _FOLLOWERS}
        return timed(self._spaces(made, own), near, most).columns

    def _listed(self, made: Sequence[Variant], own: Mapping[str, int | str], most: int) -> Columns:
        """Return layouts that keep the explicit list of layers."""
        here = self.configuration
        configuration = configured(here.job.model, here.cluster, **self.arguments_of(made, own))
        experts, batch = here.job.values["num_experts"], here.job.values["global_batch_size"]
        candidates: dict[str, Sequence[int | str]] = {
            "tensor_parallel": self._degrees("tensor_parallel"), "context_parallel": self._degrees("context_parallel"),
            "expert_parallel": divisors(experts) if experts else (1,), "micro_batch_size": divisors(batch),
            "sequence_parallel": (0, 1), "recompute": self._modes(made, own),
        }
        stages = own["pipeline_parallel"]
        near = layouts_near(own, candidates, most, lambda t: self.usual(own, t, stages)["sequence_parallel"].item())
        return columns_of(configuration, self.arguments, near, self.timed)

    def _spaces(self, made: Sequence[Variant], own: Mapping[str, int | str]) -> tuple[Space, ...]:
        """Return the spaces of the job that everybody searches, as far as they have the order of passes."""
        job, arguments = self.configuration.job, dict(self.arguments)
        for item in made:
            arguments = item.applied(arguments)
        arguments = {name: value for name, value in arguments.items() if name not in _LAYOUT}
        if "expert_tensor_parallel" in arguments:
            arguments["expert_tensor_parallel"] = None
        if any(item.name == "recompute" for item in made):
            arguments["recompute"] = (own["recompute"],)
        spaces = offered(
            job.model, self.configuration.cluster, job.values["num_gpus"], rank_by="time" if self.timed else "memory",
            node_size=self.arguments.get("node_size"), global_batch_size=job.values["global_batch_size"], **arguments,
        )
        schedule = arguments.get("schedule") or job.evaluator.choices["schedule"]
        same = {None, schedule, *(USUAL_SCHEDULES if schedule in USUAL_SCHEDULES else ())}
        return tuple(self._with_own_mode(space, own) for space in spaces if space.schedule in same)

    def _with_own_mode(self, space: Space, own: Mapping[str, int | str]) -> Space:
        """Return the space with the configuration's own recompute mode, which may do the same as another one."""
        modes, mode = space.axes["recompute"], str(own["recompute"])
        assert isinstance(modes, tuple)
        if SELECTIVE in (mode, *modes) or mode in modes:
            return space
        return replace(space, axes={**space.axes, "recompute": (*map(str, modes), mode)})

    def _degrees(self, name: str) -> tuple[int, ...]:
        job = self.configuration.job
        fixed = job.evaluator.fixed.get(name)
        return divisors(job.values["num_gpus"]) if fixed is None else (fixed,)

    def _modes(self, made: Sequence[Variant], own: Mapping[str, int | str]) -> tuple[str, ...]:
        """Recompute modes: its own, the usual ones, and one region more or less than it has."""
        job, mode = self.configuration.job, str(own["recompute"])
        if any(item.name == "recompute" for item in made):
            return (mode,)
        if mode == SELECTIVE:
            return (mode, "none")
        without = without_effect(job.evaluator)
        regions = [name for name, switch in RECOMPUTE_REGIONS.items() if switch not in {*without, *job.evaluator.fixed}]
        has = [] if mode in ("none", "full") else mode.split("+")
        others = ["+".join(item for item in RECOMPUTE_REGIONS if (item in has) != (item == name)) or "none"
                  for name in regions]
        modes: dict[tuple[int, ...], str] = {}
        for name in (mode, *RECOMPUTE_MODES, *regions, *others):
            modes.setdefault(tuple(recompute_switches(name).values()), name)
        return tuple(modes.values())
