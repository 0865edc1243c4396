"""Data for the plots of a sweep, gathered from streamed layouts in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardmath.generated.definitions import VERDICTS
from shardmath.search.legal import Columns
from shardmath.search.spaces.ties import unbeaten

_NAMES = tuple(name for name, _ in VERDICTS)
#: Cells of a factor of two: layouts in the same cell are one point of a plot.
_CELLS = 16


class Gathered:
    """Takes the columns of ``sweep``'s ``on_layouts``, and keeps three things of them.

    The best layout for each TP and PP: the fastest of those that fit, or else, and where no time is known, the one of
    least memory among those with the best verdict. The fronts of all verdicts: layouts than which none with as good a
    verdict is both faster and smaller. And where the others lie, thinned to one for each cell of a logarithmic grid.
    """

    def __init__(self) -> None:
        self.count = 0
        self._best: Columns | None = None
        self._front: Columns | None = None
        self._cloud: NDArray[np.int64] = np.empty((0, 3), np.int64)

    def __call__(self, columns: Columns) -> None:
        """Take some more layouts."""
        self.count += len(columns["peak_bytes"])
        self._best = _rows(both := _joined(self._best, columns), _best_of_each(both))
        if not np.isnan(columns["step_seconds"]).all():
            self._front = _rows(both := _joined(self._front, columns), _front_of(both))
            self._cloud = np.unique(np.concatenate([self._cloud, _cells(columns)]), axis=0)

    @property
    def best(self) -> Mapping[tuple[int, int], Mapping[str, Any]]:
        """The best layout by TP and PP."""
        return {(item["tensor_parallel"], item["pipeline_parallel"]): item for item in _layouts(self._best)}

    @property
    def front(self) -> Sequence[Mapping[str, Any]]:
        """The layouts of the fronts, the best verdict first, then the fastest; none where no time is known."""
        return list(_layouts(self._front))

    def cloud(self, verdict: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Bytes and seconds of cells in which there is a layout with the verdict."""
        rows = self._cloud[self._cloud[:, 2] == _NAMES.index(verdict)]
        return 2.0 ** (rows[:, 0] / _CELLS), 2.0 ** (rows[:, 1] / _CELLS)


def _joined(before: Columns | None, more: Columns) -> Columns:
    return more if before is None else {name: np.concatenate([before[name], more[name]]) for name in more}


def _rows(columns: Columns, places: NDArray[np.int64]) -> Columns:
    return {name: column[places] for name, column in columns.items()}


def _layouts(columns: Columns | None) -> Iterator[Mapping[str, Any]]:
    if columns is not None:
        for values in zip(*(column.tolist() for column in columns.values()), strict=True):
            yield dict(zip(columns, values, strict=True))


def _verdicts(columns: Columns) -> NDArray[np.int64]:
    return np.select([columns["verdict"] == name for name in _NAMES], range(len(_NAMES)))


def _best_of_each(columns: Columns) -> NDArray[np.int64]:
    """Return the place of the best layout for each TP and PP."""
    verdict = _verdicts(columns)
    seconds, peak = columns["step_seconds"], columns["peak_bytes"]
    by_time = (verdict == 0) & ~np.isnan(seconds)
    first = np.where(by_time, np.nan_to_num(seconds), peak)
    order = np.lexsort((peak, first, verdict, columns["pipeline_parallel"], columns["tensor_parallel"]))
    sizes = np.stack([columns["tensor_parallel"][order], columns["pipeline_parallel"][order]])
    new = np.r_[True, (sizes[:, 1:] != sizes[:, :-1]).any(axis=0)]
    rows: NDArray[np.int64] = order[new]
    return rows


def _front_of(columns: Columns) -> NDArray[np.int64]:
    """Return the places of layouts than which none with as good a verdict is both at most as slow and as large."""
    known = np.flatnonzero(~np.isnan(columns["step_seconds"]))
    keys = np.stack([_verdicts(columns), columns["step_seconds"], columns["peak_bytes"]], axis=1)
    rows: NDArray[np.int64] = known[unbeaten(keys[known])]
    return rows


def _cells(columns: Columns) -> NDArray[np.int64]:
    known = ~np.isnan(columns["step_seconds"])
    seconds, peak = columns["step_seconds"][known], columns["peak_bytes"][known]
    return np.stack([
        np.rint(_CELLS * np.log2(peak)).astype(np.int64), np.rint(_CELLS * np.log2(seconds)).astype(np.int64),
        _verdicts(columns)[known],
    ], axis=1)
