"""The legal layouts of the same GPUs and the same batch around one configuration, with memory and time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardmath.advice.timed import AXES, Timed, timed
from shardmath.configured import Configuration
from shardmath.divisors import divisors
from shardmath.errors import InputError
from shardmath.generated.definitions import CHOICES, IMPLEMENTATIONS, RECOMPUTE_MODES, RECOMPUTE_REGIONS
from shardmath.jobs import without_effect
from shardmath.moving.variants import Variant
from shardmath.settings import SELECTIVE, recompute_switches
from shardmath.spaces import Space
from shardmath.spaces.standard import layouts, ranked
from shardmath.symbolic.nests.standard import BY_MEMORY, BY_TIME

#: Numbers of chunks that a pipeline is tried with: so many of the smallest that divide the layers, besides its own.
_CHUNKS = 8
#: Arguments of ``explain`` that the axes say, that they need not know, or that are given apart.
_LAYOUT = (*AXES, "data_parallel", "num_gpus", "global_batch_size", "pipeline_layout", "anchor", "network", "node_size",
           *RECOMPUTE_REGIONS.values())


@dataclass(frozen=True)
class Replaced:
    """One thing that changes: ``name`` was ``before`` and is ``after``."""

    name: str
    before: int | str
    after: int | str


@dataclass(frozen=True)
class Move:
    """Changes of a configuration that together give another legal one, on the same GPUs with the same batch.

    ``layout`` has all sizes by name, ``peak_bytes`` and ``seconds`` what it then needs; seconds are None where the time
    of a step is not known. ``arguments`` are those of ``explain`` that describe it.
    """

    changes: tuple[Replaced, ...]
    layout: Mapping[str, int | str]
    peak_bytes: int
    seconds: float | None
    arguments: Mapping[str, Any] = field(repr=False)

    @property
    def key(self) -> frozenset[tuple[str, int | str]]:
        """What changes into what: the same for the same move."""
        return frozenset((change.name, change.after) for change in self.changes)


class Rows:
    """All layouts that were looked at with some variants: which are legal, and what each changes."""

    def __init__(self, around: Around, made: Sequence[Variant], own: Mapping[str, int | str], found: Timed) -> None:
        self._around, self._made, self._own, self.found = around, tuple(made), own, found
        self.peaks: NDArray[np.int64] = found.columns["peak"]
        self.seconds: NDArray[np.float64] = found.columns["seconds"]
        self._changed = {name: found.columns[name] != self._usual(name) for name in AXES}
        #: How many things each layout changes.
        self.counts: NDArray[np.int64] = len(self._made) + np.sum(list(self._changed.values()), axis=0)

    def _usual(self, name: str) -> Any:
        """What an axis is while nobody changes it: what depends on other sizes follows them."""
        columns, own = self.found.columns, self._own[name]
        if name == "sequence_parallel":
            on = int(self._around.sequence_parallel) if self._own["tensor_parallel"] == 1 else int(own)
            return np.where(columns["tensor_parallel"] > 1, on, 0)
        if name == "virtual_pipeline":
            return np.where(columns["pipeline_parallel"] > 1, own, 1)
        return own

    def move(self, row: int) -> Move:
        """One layout as a move."""
        layout: dict[str, int | str] = {name: self.found.columns[name][row].item() for name in AXES}
        changes = [Replaced(item.name, item.before, item.after) for item in self._made]
        changes += [Replaced(name, self._own[name], layout[name]) for name in AXES if self._changed[name][row]]
        seconds = float(self.seconds[row])
        return Move(tuple(changes), layout, int(self.peaks[row]), None if np.isnan(seconds) else seconds,
                    self._around.arguments_of(self._made, layout))


@dataclass(frozen=True)
class Around:
    """A configuration with the ``arguments`` of ``explain`` that describe it, as a place among all layouts."""

    configuration: Configuration
    arguments: Mapping[str, Any]
    timed: bool

    def rows(self, made: Sequence[Variant] = (), most: int | None = None) -> Rows | None:
        """All legal layouts with some variants, or those that change at most so many sizes; None if there are none.

        A variant that does not go with the rest gives no layout.
        """
        own = {**self.own, **{item.name: item.after for item in made if item.name in AXES}}
        try:
            spaces = tuple(self._spaces(made, own))
            # What follows other sizes may change with them: it is left out here, and counted where it does not.
            near = {name: value for name, value in own.items() if name not in ("sequence_parallel", "virtual_pipeline")}
            found = timed(spaces) if most is None else timed(spaces, near, most)
        except InputError:
            if not made:
                raise
            return None
        return Rows(self, made, own, found) if len(found) else None

    @cached_property
    def own(self) -> dict[str, int | str]:
        """The configuration's own place on every axis."""
        job = self.configuration.job
        return {name: job.recompute if name == "recompute" else job.values[name] for name in AXES}

    @property
    def sequence_parallel(self) -> bool:
        """Whether sequence parallelism comes with tensor parallelism."""
        asked = self.arguments.get("sequence_parallel")
        return bool(self.configuration.job.evaluator.defaults["sequence_parallel"]) if asked is None else bool(asked)

    def arguments_of(self, made: Sequence[Variant], layout: Mapping[str, int | str]) -> dict[str, Any]:
        """The arguments of ``explain`` for a layout with some variants."""
        values = self.configuration.job.values
        gone = ("data_parallel", "pipeline_layout", *RECOMPUTE_REGIONS.values())
        found = {name: value for name, value in self.arguments.items() if name not in gone}
        for item in made:
            found = item.applied(found)
        sizes = {name: bool(value) if name == "sequence_parallel" else value for name, value in layout.items()}
        return {**found, **sizes, "num_gpus": values["num_gpus"], "global_batch_size": values["global_batch_size"]}

    def _spaces(self, made: Sequence[Variant], own: Mapping[str, int | str]) -> Iterator[Space]:
        job = self.configuration.job
        arguments = {name: value for name, value in self.arguments.items() if name not in _LAYOUT}
        for item in made:
            arguments = {name: value for name, value in item.applied(arguments).items() if name not in AXES}
        for pipelines, chunks in self._pipelines(arguments, own):
            space = layouts(
                job.model, self.configuration.cluster, job.values["num_gpus"],
                node_size=self.arguments.get("node_size"), global_batch_size=job.values["global_batch_size"],
                tensor_parallel=self._degrees("tensor_parallel"), context_parallel=self._degrees("context_parallel"),
                pipeline_parallel=pipelines, virtual_pipeline=chunks, recompute=self._modes(made, own),
                **({} if job.model.num_experts else {"expert_parallel": (1,)}), **arguments,
            )
            yield ranked(space, BY_TIME if self.timed else BY_MEMORY)

    def _degrees(self, name: str) -> tuple[int, ...]:
        job = self.configuration.job
        fixed = job.evaluator.fixed.get(name)
        return divisors(job.values["num_gpus"]) if fixed is None else (fixed,)

    def _pipelines(
        self, arguments: Mapping[str, Any], own: Mapping[str, int | str],
    ) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Numbers of stages with numbers of chunks that the same formulas serve."""
        job, chunks = self.configuration.job, int(own["virtual_pipeline"])
        stages = tuple(size for size in self._degrees("pipeline_parallel") if size <= job.values["num_layers"])
        several = tuple(size for size in stages if size > 1)
        kernels = arguments.get("kernels") or {}
        schedule = arguments.get("schedule") or kernels.get("schedule")
        if schedule is not None and schedule not in ("interleaved", "zero_bubble"):
            yield stages, (chunks,)
            return
        allowed = IMPLEMENTATIONS[job.evaluator.implementation]["allowed"].get("schedule", CHOICES["schedule"][1])
        more = {*divisors(job.values["num_layers"])[1:_CHUNKS + 1], *((chunks,) if chunks > 1 else ())}
        if schedule is None and job.evaluator.implementation == "torchtitan":
            yield (1,), (1,)
            if several:
                yield several, (1,)
        elif schedule is None or chunks == 1:
            yield stages, (1,)
        if "interleaved" in allowed and several:
            yield several, tuple(sorted(more))

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
