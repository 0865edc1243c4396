"""Every legal layout of a job with its memory and the time of its step, as columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardmath.advice.legal import Legal, legal_rows
from shardmath.advice.pipelines import chunk_sizes, stage_counts, with_last_stage
from shardmath.errors import InputError
from shardmath.generated.definitions import IMPLEMENTATIONS, VERDICTS, verdict
from shardmath.models import Model
from shardmath.spaces import Part, Space
from shardmath.spaces.standard import layouts, ranked
from shardmath.sweeps.configurations import Configuration
from shardmath.symbolic.nests.standard import BY_TIME

#: What tells layouts apart, in the order in which people say it; ``recompute`` is the name of a mode.
AXES = ("tensor_parallel", "context_parallel", "pipeline_parallel", "virtual_pipeline", "expert_parallel",
        "micro_batch_size", "sequence_parallel", "recompute")
#: What follows from those and is shown beside them: 0 where all stages have as many layers.
FOLLOWING = ("last_stage_layers",)
#: More candidates than this are not looked at one by one.
_MANY = 2 * 10**7


@dataclass(frozen=True)
class Timed:
    """All legal layouts of some parts, one row for each; none if no layout is legal.

    ``columns`` has the sizes of ``AXES`` and ``FOLLOWING`` by name, ``seconds`` of a step (not a number where no time
    is asked for), ``peak`` bytes and ``verdict`` (its place among the verdicts); ``part`` and ``number`` say where a
    row comes from.
    """

    legal: tuple[Legal, ...]
    part: NDArray[np.int64]
    number: NDArray[np.int64]
    columns: Mapping[str, NDArray[Any]]

    def __len__(self) -> int:
        return len(self.number)

    def configuration(self, row: int) -> Configuration:
        """The layout of a row with all of its values and terms."""
        keys = {"step.time": float(self.columns["seconds"][row]), "peak": int(self.columns["peak"][row])}
        return Configuration(self.legal[self.part[row]].part, int(self.number[row]), keys)

    def value(self, name: str) -> int:
        """The value of a symbol that all layouts share."""
        return self.legal[0].part.fixed[name]

    def with_values(self, **values: int) -> Timed:
        """The same layouts on another machine: other values of symbols that change neither memory nor legality."""
        return _evaluated(tuple(rows.with_values(values) for rows in self.legal), self, values)

    def those(self, among: NDArray[np.bool_]) -> Timed:
        """Some rows alone."""
        ends = np.cumsum([len(rows) for rows in self.legal])[:-1]
        legal = tuple(rows.those(kept) for rows, kept in zip(self.legal, np.split(among, ends), strict=True))
        columns = {name: column[among] for name, column in self.columns.items()}
        return Timed(legal, self.part[among], self.number[among], columns)

    def are(self, *verdicts: str) -> NDArray[np.bool_]:
        """Which rows have one of these verdicts."""
        places = [place for place, (name, _) in enumerate(VERDICTS) if name in verdicts]
        return np.isin(self.columns["verdict"], places)

    def best(self, among: NDArray[np.bool_]) -> int | None:
        """The fastest of some rows, of equally fast ones the one of least memory; None if there is none."""
        rows = self.ascending(among)
        return int(rows[0]) if len(rows) else None

    def ascending(self, among: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Some rows from the fastest to the slowest, of equally fast ones that of least memory first."""
        rows = np.flatnonzero(among)
        found: NDArray[np.int64] = rows[np.lexsort((self.columns["peak"][rows], self.columns["seconds"][rows]))]
        return found


def spaces(model: Model, num_gpus: int, implementation: str, **arguments: Any) -> tuple[Space, ...]:
    """The spaces of a job: without and, where the implementation has them, with interleaved pipelines.

    What is named by an argument (those of ``sweep``) is not tried otherwise. Raises InputError as ``layouts`` does.
    """
    chunks = arguments.pop("virtual_pipeline", None)
    interleaved = "interleaved" in IMPLEMENTATIONS.get(implementation, {}).get("allowed", {}).get("schedule", ())
    sizes = chunks or (1, *(chunk_sizes(model) if interleaved else ()))
    several = tuple(size for size in sizes if size != 1)
    if arguments.get("schedule") is not None or not interleaved:
        groups = [tuple(sizes) if chunks else None]
    else:
        groups = [group for group in ((1,) if 1 in sizes else (), several) if group]
    found = []
    for group in groups:
        counts = stage_counts(model, num_gpus, implementation, group or (), arguments)
        space = layouts(model, num_gpus=num_gpus, implementation=implementation, virtual_pipeline=group,
                        **{**arguments, "pipeline_parallel": counts})
        found.append(ranked(with_last_stage(space, model, group or (), arguments), BY_TIME))
    return tuple(found)


def timed(asked: Iterable[Space], near: Mapping[str, int | str] | None = None, most: int = 0) -> Timed:
    """Evaluate every layout of some spaces, or those that are ``near`` one.

    Such layouts have other candidates than ``near`` on at most so many of its axes; other axes do not count. Raises
    InputError for what is wrong with the spaces.
    """
    parts = tuple(part for space in asked for part in space.parts())
    if sum(part.size for part in parts) > _MANY:
        rule = f"must leave at most {_MANY:,} layouts to look at: name the sizes to try for some axes"
        raise InputError("num_gpus", parts[0].fixed["num_gpus"], rule)
    return _evaluated(tuple(legal_rows(part, None if near is None else _near(part, near, most)) for part in parts))


def _near(part: Part, own: Mapping[str, int | str], most: int) -> NDArray[np.int64]:
    """The configurations of a part that differ from ``own`` on at most so many axes."""
    differing = np.zeros((), np.int8)
    for axis in part.axes:
        others = np.asarray([axis.name in own and label != own[axis.name] for label in axis.labels], np.int8)
        differing = np.add.outer(differing, others)
    return np.flatnonzero(differing.ravel() <= most)


def _evaluated(legal: tuple[Legal, ...], before: Timed | None = None, changed: Iterable[str] = ()) -> Timed:
    """All rows with their memory and the time of their step, or what they had ``before`` some symbols ``changed``."""
    own = [_shown(rows) for rows in legal]
    columns = {name: np.concatenate([item[name] for item in own]) for name in (*AXES, *FOLLOWING)}
    if before is None:
        columns["peak"] = np.concatenate([rows.term("peak").astype(np.int64) for rows in legal])
    else:
        columns |= {name: before.columns[name] for name in ("peak", "seconds", "verdict")}
    if before is None or any({*changed} & {*rows.part.evaluator.times.INPUTS} for rows in legal if rows.part.timed):
        columns["seconds"] = np.concatenate([
            rows.term("step.time") if rows.part.timed else np.full(len(rows), np.nan) for rows in legal])
    if before is None or "gpu_memory" in changed:
        memory = np.concatenate([rows.column("gpu_memory") for rows in legal])
        verdicts = map(verdict, columns["peak"].tolist(), memory.tolist())
        columns["verdict"] = np.fromiter(verdicts, np.int64, len(memory))
    places = np.repeat(np.arange(len(legal)), [len(rows) for rows in legal])
    return Timed(legal, places, np.concatenate([rows.numbers for rows in legal]), columns)


def _shown(rows: Legal) -> dict[str, NDArray[Any]]:
    """The candidates of ``AXES``, as people see them, and what follows."""
    part = rows.part
    places = np.unravel_index(rows.numbers, [axis.size for axis in part.axes])
    shown = {axis.name: np.asarray(axis.labels)[place] for axis, place in zip(part.axes, places, strict=True)}
    others = {name: rows.column(name).astype(np.int64) for name in (*AXES, *FOLLOWING) if name not in shown}
    return {**shown, **others}
