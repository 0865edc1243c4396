"""The rows of a stretch of a sweep, as a nest fills them and as files keep them until a table is written.

Rows are no answer that stays in memory: each stretch has a table of its own, which becomes a file at once.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from shardmath.errors import InputError
from shardmath.files.arrays import DamagedError, read_arrays, write_arrays
from shardmath.files.writing import PARTIAL, replacing

_SUFFIX = ".npz"
#: The names of its files, whole and not.
_OURS = re.compile(rf"(\d{{6}})-(\d{{20}})-(\d{{20}}){re.escape(_SUFFIX)}|\.\d{{6}}-.*{re.escape(PARTIAL)}")


@dataclass
class Table:
    """The first ``size`` rows count: ``numbers`` of configurations, their ``verdicts``, and ``values`` by column.

    The first column of ``values`` is the peak in bytes, the others are the formulas that were asked for.
    """

    numbers: NDArray[np.int64]
    verdicts: NDArray[np.int8]
    values: NDArray[np.float64]
    size: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))

    @classmethod
    def empty(cls, rows: int, columns: int) -> Table:
        """Room for so many rows; what is not filled costs no memory."""
        return cls(np.empty(rows, np.int64), np.empty(rows, np.int8), np.empty((rows, columns)))

    def __len__(self) -> int:
        return int(self.size[0])

    @property
    def arrays(self) -> tuple[NDArray[np.generic], ...]:
        """Return the arrays that a nest fills."""
        return (self.numbers, self.verdicts, self.values, self.size)

    def append(self, numbers: NDArray[np.int64], verdicts: NDArray[np.int64], values: NDArray[np.float64]) -> None:
        """Write more rows, for which there must be room."""
        start, stop = len(self), len(self) + len(numbers)
        self.numbers[start:stop], self.verdicts[start:stop], self.values[start:stop] = numbers, verdicts, values
        self.size[0] = stop

    def cut(self, start: int, stop: int) -> Table:
        """Return some of the rows, in arrays of their own."""
        parts = (self.numbers[start:stop].copy(), self.verdicts[start:stop].copy(), self.values[start:stop].copy())
        return Table(*parts, np.array([len(parts[0])]))


def regrouped(tables: Iterable[Table], rows: int) -> Iterator[Table]:
    """Yield the same rows in tables of exactly so many; the last one may have fewer."""
    waiting: list[Table] = []
    count = 0
    for table in tables:
        waiting.append(table)
        count += len(table)
        if count >= rows:
            whole = _joined(waiting)
            yield from (whole.cut(start, start + rows) for start in range(0, count - rows + 1, rows))
            waiting = [whole.cut(count - count % rows, count)]
            count %= rows
    if count:
        yield _joined(waiting)


def _joined(tables: list[Table]) -> Table:
    cut = [table.cut(0, len(table)) for table in tables]
    return Table(
        np.concatenate([table.numbers for table in cut]), np.concatenate([table.verdicts for table in cut]),
        np.concatenate([table.values for table in cut]), np.array([sum(map(len, cut))]),
    )


class Folder:
    """Tables of stretches as files, each whole or not there; named so that their order is that of the space."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)

    def add(self, part: int, start: int, stop: int, table: Table) -> None:
        """Keep the table of a stretch of shards; nothing if it has no row."""
        if not len(table):
            return
        whole = table.cut(0, len(table))
        with replacing(self.path / f"{part:06d}-{start:020d}-{stop:020d}{_SUFFIX}") as file:
            write_arrays(file, {"numbers": whole.numbers, "verdicts": whole.verdicts, "values": whole.values})

    def keep(self, done: Collection[Collection[tuple[int, int]]]) -> None:
        """Remove the files of stretches that no part has in ``done``. Raises InputError for files of something else."""
        for path in [*self.path.iterdir()]:
            place = _OURS.fullmatch(path.name)
            if place is None:
                rule = f"must have rows of a checkpoint alone beside it: {path.name:.60} is none of them"
                raise InputError("checkpoint", str(self.path), rule)
            if place[1] is not None:
                part, start, stop = map(int, place.groups())
                stretches = list(done)[part] if part < len(done) else ()
                if any(begin <= start and stop <= end for begin, end in stretches):
                    continue
            path.unlink()

    def tables(self, part: int) -> Iterator[Table]:
        """Yield the tables of a part, in order. Raises InputError for a damaged file."""
        for path in sorted(self.path.glob(f"{part:06d}-*{_SUFFIX}")):
            try:
                stored = read_arrays(path)
            except DamagedError:
                rule = "must be whole: begin again, with another checkpoint"
                raise InputError("checkpoint", str(path), rule) from None
            yield Table(stored["numbers"], stored["verdicts"], stored["values"], np.array([len(stored["numbers"])]))

    def remove(self) -> None:
        """Remove the files and the folder."""
        self.keep(())
        self.path.rmdir()
