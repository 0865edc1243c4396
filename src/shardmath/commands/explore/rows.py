"""The rows of a space as one Parquet or CSV file: numbers become labels, in groups of rows that fit into memory."""

from __future__ import annotations

import csv as csv_format
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardmath.account.judged import NAMES, RULE_NAMES
from shardmath.errors import InputError
from shardmath.files.writing import whole_file
from shardmath.search.nests.nest import Nest
from shardmath.search.nests.rows import Folder, Table, regrouped

#: Rows that are decoded at a time, and that a row group of Parquet has.
GROUP = 1 << 18


@dataclass(frozen=True)
class Labels:
    """A column of texts: for each row the place of its text among ``texts``."""

    places: NDArray[np.integer[Any]]
    texts: tuple[str, ...]


Columns = Mapping[str, "NDArray[Any] | Labels"]
Sink = Callable[[Columns], None]


def refuse_unwritable(path: str) -> None:
    """Raise InputError unless rows can become a file called so."""
    _writer(path)
    if Path(path).is_dir() or not Path(path).absolute().parent.is_dir():
        raise InputError("rows", path, "must be a file in a folder that is there")


def write_rows(
    path: str, nests: Sequence[Nest], formulas: Sequence[str], folder: Folder,
    progress: Callable[[int, int], None] | None = None, total: int = 0,
) -> int:
    """Write the rows in ``folder`` as one file, part after part, each in the order of its shards; give their number.

    The columns are the number of the part and of the configuration in it, its labels, ``peak_bytes``, ``verdict``,
    ``rule_80``, and the ``formulas`` by their text. A formula that is a mere name is a column of integers.
    Raises InputError where nothing can be written, and for a name whose values are no integers.
    """
    count = 0
    if progress is not None:
        progress(count, total)
    with _writer(path)(path) as sink:
        for nest in nests:
            for table in regrouped(folder.tables(nest.part.number), GROUP):
                sink(columns_of(nest, table, formulas))
                count += len(table)
                if progress is not None:
                    progress(count, total)
        if not count:
            sink(columns_of(nests[0], Table.empty(0, 1 + len(formulas)), formulas))
    return count


def columns_of(nest: Nest, table: Table, formulas: Sequence[str]) -> Columns:
    """Return rows as columns by name."""
    part = nest.part
    places = np.unravel_index(table.numbers, [axis.size for axis in part.axes])
    columns: dict[str, NDArray[Any] | Labels] = {
        "part": np.full(len(table), part.number), "number": table.numbers,
        **{name: Labels(np.zeros(len(table), np.int64), (label,)) for name, label in part.labels.items()},
    }
    for axis, place in zip(part.axes, places, strict=True):
        if all(isinstance(label, int) for label in axis.labels):
            columns[axis.name] = np.asarray(axis.labels, np.int64)[place]
        else:
            columns[axis.name] = Labels(place, tuple(map(str, axis.labels)))
    columns["peak_bytes"] = peaks = table.values[:, 0].astype(np.int64)
    columns["verdict"] = Labels(table.verdicts, NAMES)
    columns["rule_80"] = Labels(nest.rules(table.numbers, peaks), RULE_NAMES)
    for column, text in enumerate(formulas, 1):
        values = table.values[:, column]
        columns[text] = _integers(text, values) if text.replace(".", "_").isidentifier() else values
    return columns


def _integers(text: str, values: NDArray[np.float64]) -> NDArray[np.int64]:
    integers = values.astype(np.int64)
    if (integers != values).any():
        raise InputError("term", text, "must be an integer in every row: ask for a formula, such as 1 * term")
    return integers


def _writer(path: str) -> Callable[[str], AbstractContextManager[Sink]]:
    if Path(path).suffix not in _WRITERS:
        raise InputError("rows", path, f"must be a file that ends in {' or '.join(_WRITERS)}")
    return _WRITERS[Path(path).suffix]


@contextmanager
def _csv(path: str) -> Iterator[Sink]:
    with whole_file("rows", path) as file:
        writer = csv_format.writer(file)  # type: ignore[arg-type]
        named = False

        def sink(columns: Columns) -> None:
            nonlocal named
            if not named:
                writer.writerow(columns)
                named = True
            writer.writerows(zip(*(_listed(column) for column in columns.values()), strict=True))

        yield sink


def _listed(column: NDArray[Any] | Labels) -> list[Any]:
    if isinstance(column, Labels):
        return [column.texts[place] for place in column.places.tolist()]
    cells: list[Any] = column.tolist()
    return cells


@contextmanager
def _parquet(path: str) -> Iterator[Sink]:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise InputError("rows", path, "needs pyarrow: pip install 'shardmath[parquet]'") from None

    def arrow(column: NDArray[Any] | Labels) -> Any:
        if isinstance(column, Labels):
            return pa.DictionaryArray.from_arrays(pa.array(column.places.astype(np.int32)), pa.array(column.texts))
        return pa.array(column)

    with whole_file("rows", path, "wb") as file:
        writer = None
        try:
            def sink(columns: Columns) -> None:
                nonlocal writer
                batch = pa.table({name: arrow(column) for name, column in columns.items()})
                if writer is None:
                    writer = parquet.ParquetWriter(file, batch.schema)
                writer.write_table(batch, row_group_size=GROUP)

            yield sink
        finally:
            if writer is not None:
                writer.close()


_WRITERS: dict[str, Callable[[str], AbstractContextManager[Sink]]] = {".parquet": _parquet, ".csv": _csv}
