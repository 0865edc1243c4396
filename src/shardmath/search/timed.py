"""Every legal layout of a job with its memory and the time of its step, as columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardmath.account.judged import LIMIT_TERMS, NAMES
from shardmath.compiler.columns import branch_column
from shardmath.errors import InputError
from shardmath.generated.definitions import verdict
from shardmath.input.parameters import UNEVEN
from shardmath.search.nests.configurations import Configuration
from shardmath.search.sizes import AXES
from shardmath.search.spaces import Part, Space
from shardmath.search.spaces.rows import Legal, legal_rows

#: More candidates than this are not looked at one by one.
_MANY = 2 * 10**7


@dataclass(frozen=True)
class Timed:
    """All legal layouts of some parts, one row for each; none if no layout is legal.

    ``columns`` has the sizes of ``AXES`` and ``UNEVEN`` by name, ``seconds`` of a step (not a number where no time
    is asked for), ``peak`` bytes, the ``limit`` up to which they fit, and ``verdict`` (its place among the verdicts);
    ``part`` and ``number`` say where a row comes from.
    """

    legal: tuple[Legal, ...]
    part: NDArray[np.int64]
    number: NDArray[np.int64]
    columns: Mapping[str, NDArray[Any]]

    def __len__(self) -> int:
        return len(self.number)

    def configuration(self, row: int) -> Configuration:
        """Return the layout of a row with all of its values and terms."""
        keys = {"step.time": float(self.columns["seconds"][row]), "peak": int(self.columns["peak"][row])}
        return Configuration(self.legal[self.part[row]].part, int(self.number[row]), keys)

    def value(self, name: str) -> int:
        """Return the value of a symbol that all layouts share."""
        return self.legal[0].part.fixed[name]

    def with_values(self, **values: int) -> Timed:
        """Get the same layouts on another machine: other values of symbols that change neither memory nor legality."""
        return _evaluated(tuple(rows.with_values(values) for rows in self.legal), self, values)

    def those(self, among: NDArray[np.bool_]) -> Timed:
        """Return some rows alone."""
        ends = np.cumsum([len(rows) for rows in self.legal])[:-1]
        legal = tuple(rows.those(kept) for rows, kept in zip(self.legal, np.split(among, ends), strict=True))
        columns = {name: column[among] for name, column in self.columns.items()}
        return Timed(legal, self.part[among], self.number[among], columns)

    def are(self, *verdicts: str) -> NDArray[np.bool_]:
        """Return the mask of rows with one of these verdicts."""
        places = [place for place, name in enumerate(NAMES) if name in verdicts]
        return np.isin(self.columns["verdict"], places)

    def best(self, among: NDArray[np.bool_]) -> int | None:
        """Return the fastest of some rows, of equally fast ones the one of least memory; None if there is none."""
        rows = self.ascending(among)
        return int(rows[0]) if len(rows) else None

    def ascending(self, among: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return some rows from the fastest to the slowest, of equally fast ones that of least memory first."""
        rows = np.flatnonzero(among)
        ordered: NDArray[np.int64] = rows[np.lexsort((self.columns["peak"][rows], self.columns["seconds"][rows]))]
        return ordered


def timed(asked: Iterable[Space], near: Mapping[str, int | str] | None = None, most: int = 0) -> Timed:
    """Evaluate every layout of some spaces, or those that are ``near`` one.

    Such layouts have other candidates than ``near`` on at most so many of its axes; other axes do not count. Raises
    InputError for what is wrong with the spaces.
    """
    parts = tuple(part for space in asked for part in space.parts())
    looked_at = [np.arange(part.size) if near is None and part.size <= _MANY else _near(part, near or {}, most)
                 for part in parts]
    return _evaluated(tuple(legal_rows(part, numbers) for part, numbers in zip(parts, looked_at, strict=True)))


def _near(part: Part, own: Mapping[str, int | str], most: int) -> NDArray[np.int64]:
    """Return the configurations of a part that differ from ``own`` on at most so many axes, in their order."""
    steps = np.cumprod([1, *(axis.size for axis in reversed(part.axes))])[-2::-1]
    counted = [axis for axis in part.axes if axis.name in own]
    groups = [np.zeros(0, np.int64)]
    for count in range(min(most, len(counted)) + 1):
        for changed in combinations([axis.name for axis in counted], count):
            numbers = np.zeros(1, np.int64)
            for axis, step in zip(part.axes, steps, strict=True):
                places = [place for place, label in enumerate(axis.labels)
                          if axis.name not in own or (label != own[axis.name]) == (axis.name in changed)]
                numbers = np.add.outer(numbers, step * np.asarray(places, np.int64)).ravel()
                if len(numbers) > _MANY:
                    rule = f"must leave at most {_MANY:,} layouts to look at: name the sizes to try for some axes"
                    raise InputError("num_gpus", part.fixed["num_gpus"], rule)
            groups.append(numbers)
    return np.sort(np.concatenate(groups))


def _evaluated(legal: tuple[Legal, ...], before: Timed | None = None, changed: Iterable[str] = ()) -> Timed:
    """Return all rows with memory and step time; ``before`` holds those of rows where only ``changed`` differ."""
    own = [_shown(rows) for rows in legal]
    columns = {name: np.concatenate([item[name] for item in own]) for name in (*AXES, *UNEVEN)}
    if before is None:
        columns["peak"] = np.concatenate([rows.term("peak").astype(np.int64) for rows in legal])
    else:
        columns |= {name: before.columns[name] for name in ("peak", "seconds", "verdict", "limit")}
    if before is None or any({*changed} & {*rows.part.evaluator.times.INPUTS} for rows in legal if rows.part.timed):
        columns["seconds"] = np.concatenate([
            rows.term("step.time") if rows.part.timed else np.full(len(rows), np.nan) for rows in legal])
    if before is None or "gpu_memory" in changed:
        limits = {word: np.concatenate([rows.term(name) for rows in legal]) for word, name in LIMIT_TERMS.items()}
        columns["verdict"] = branch_column(verdict, {"estimate": columns["peak"], **limits}, len(columns["peak"]))
        columns["limit"] = next(iter(limits.values())).astype(np.int64)
    places = np.repeat(np.arange(len(legal)), [len(rows) for rows in legal])
    return Timed(legal, places, np.concatenate([rows.numbers for rows in legal]), columns)


def _shown(rows: Legal) -> dict[str, NDArray[Any]]:
    """Return the candidates of ``AXES``, as people see them, and what follows."""
    part = rows.part
    places = np.unravel_index(rows.numbers, [axis.size for axis in part.axes])
    shown = {axis.name: np.asarray(axis.labels)[place] for axis, place in zip(part.axes, places, strict=True)}
    others = {name: rows.column(name).astype(np.int64) for name in (*AXES, *UNEVEN) if name not in shown}
    return {**shown, **others}
