"""The few layouts worth trying: the fastest ones that differ in kind, and those that trade time for memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from shardmath.advice.timed import Timed

#: Layouts that take longer than the fastest one by more than this are not worth trying: a model of time errs by less.
SLOWER = 0.15
#: By how much a layout that may not fit must be faster, and one with more room smaller, to be worth it.
FASTER, SMALLER = 0.01, 0.1
#: Layouts of another kind.
_OTHERS = 2
#: Layouts whose times and whose memory differ by less are alike.
_ALIKE = 0.02


@dataclass(frozen=True)
class Chosen:
    """A row, and why it is worth trying."""

    row: int
    role: str


def choose(found: Timed) -> list[Chosen]:
    """What to try, the first choice first; none if nothing fits or may fit."""
    first = found.best(found.are("fits"))
    chosen = [] if first is None else [Chosen(first, "the fastest that fits")]
    chosen += _uncertain(found, first)
    if first is not None:
        chosen += _others(found, first)
        chosen += _smaller(found, first)
    return list({item.row: item for item in reversed(chosen)}.values())[::-1]


def _uncertain(found: Timed, first: int | None) -> Iterator[Chosen]:
    """The fastest of those that take more than is sure to be left, if that gains something."""
    row = found.best(found.are("uncertain"))
    seconds = found.columns["seconds"]
    if row is None:
        return
    if first is None:
        yield Chosen(row, "the fastest that may fit")
    elif seconds[row] < (1 - FASTER) * seconds[first]:
        yield Chosen(row, "faster, if it fits")


def _others(found: Timed, first: int) -> Iterator[Chosen]:
    """The fastest of every other kind: other ranks have to wait for each other there."""
    kinds, rows = {_kind(found, first)}, [first]
    for row in _close(found, first):
        kind = _kind(found, row)
        if kind not in kinds and not any(_alike(found, row, other) for other in rows):
            kinds.add(kind)
            rows.append(row)
            yield Chosen(row, "the fastest of another kind")
        if len(kinds) > _OTHERS:
            return


def _smaller(found: Timed, first: int) -> Iterator[Chosen]:
    """The one of least memory among those that are hardly slower, if that is much less."""
    rows = _close(found, first)
    peaks = found.columns["peak"]
    row = rows[int(np.argmin(peaks[rows]))]
    if peaks[row] < (1 - SMALLER) * peaks[first]:
        yield Chosen(row, "the most room")


def _close(found: Timed, first: int) -> list[int]:
    """Rows that fit and are not much slower than the first choice, the fastest first."""
    enough = found.columns["seconds"] <= (1 + SLOWER) * found.columns["seconds"][first]
    return [int(row) for row in found.ascending(found.are("fits") & enough)]


def _alike(found: Timed, row: int, other: int) -> bool:
    """Whether two layouts are as fast and as large: what one does in micro-batches the other does in shards."""
    columns = (found.columns["seconds"], found.columns["peak"])
    return all(abs(float(column[row]) / float(column[other]) - 1) < _ALIKE for column in columns)


def _kind(found: Timed, row: int) -> tuple[int, ...]:
    """How far tensor parallelism goes, and which of the other kinds of parallelism there are."""
    others = ("context_parallel", "pipeline_parallel", "expert_parallel")
    return int(found.columns["tensor_parallel"][row]), *(int(found.columns[name][row] > 1) for name in others)
