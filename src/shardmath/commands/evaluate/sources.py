"""Any kind of table as a schema and a stream of record batches of bounded size."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from shardmath.commands.evaluate.grouped import Alike, Names, grouped
from shardmath.commands.evaluate.threads import in_order
from shardmath.errors import InputError

#: Is called with rows done and all, None where that is not known.
Progress = Callable[[int, int | None], None]
#: Rows that are looked at together.
_ROWS = 1 << 16
_KINDS = (
    "must be a path, a mapping of columns, a structured array, an Arrow table, reader or dataset, or a data frame"
)
_SUFFIXES = (".parquet", ".pq", ".csv", ".arrow", ".feather", ".ipc", ".arrows")


@dataclass(frozen=True)
class Source:
    """A table to be read once: its columns, its rows if they are known, and its batches.

    ``batches`` takes the most rows that a batch may have.
    """

    schema: pa.Schema
    rows: int | None
    batches: Callable[[int], Iterator[pa.RecordBatch]]

    def without(self, names: Collection[str]) -> Source:
        """Return the table without some columns. Raises InputError where none is left."""
        kept = [place for place, name in enumerate(self.schema.names) if name not in names]
        if len(kept) == len(self.schema):
            return self
        if not kept:
            rule = "must have columns of parameters beside it: results are computed anew"
            raise InputError("column", self.schema.names[0], rule)
        schema = pa.schema([self.schema.field(place) for place in kept], self.schema.metadata)
        return replace(self, schema=schema, batches=lambda rows: (batch.select(kept) for batch in self.batches(rows)))

    def answered(
        self, work: Callable[[tuple[int, pa.RecordBatch]], pa.RecordBatch], schema: pa.Schema, most: int,
        progress: Progress | None,
    ) -> pa.RecordBatchReader:
        """Return the answers of ``work`` to batches of at most ``most`` rows, each with its first row's number."""
        return pa.RecordBatchReader.from_batches(schema, self._answers(work, most, progress))

    def _answers(
        self, work: Callable[[tuple[int, pa.RecordBatch]], pa.RecordBatch], most: int, progress: Progress | None,
    ) -> Iterator[pa.RecordBatch]:
        done = 0
        for answer in in_order(work, self._numbered(most)):
            done += answer.num_rows
            if progress is not None:
                progress(done, self.rows)
            yield answer

    def _numbered(self, most: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        first = 0
        for batch in self.batches(most):
            yield first, batch
            first += batch.num_rows


def source(table: Any) -> Source:
    """Return the table as a stream. Raises InputError for an unknown kind of table and for a file that is none."""
    if isinstance(table, str | os.PathLike):
        return _file(Path(table))
    if isinstance(table, np.ndarray) and table.dtype.names is not None:
        return _arrays({name: table[name] for name in table.dtype.names})
    if isinstance(table, Mapping):
        return _arrays({str(name): np.asarray(column) for name, column in table.items()})
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if isinstance(table, pa.Table):
        return Source(table.schema, table.num_rows, lambda rows: _regrouped(table.to_batches(), table.schema, rows))
    if isinstance(table, pa.RecordBatchReader):
        return _reader(table)
    if callable(getattr(table, "scanner", None)) and isinstance(getattr(table, "schema", None), pa.Schema):
        return _dataset(table)
    if hasattr(table, "__arrow_c_stream__"):
        return _reader(pa.RecordBatchReader.from_stream(table), _length(table))
    if hasattr(table, "__dataframe__"):
        from pyarrow.interchange import from_dataframe

        return source(from_dataframe(table))
    raise InputError("table", type(table).__name__, _KINDS)


def alike(table: Any, columns: Sequence[str], usual: Mapping[str, int]) -> dict[Names, Alike]:
    """Return the names that rows have together in ``columns``, with what such rows share; none of a stream.

    ``usual`` has the values of other columns for which they are looked at.
    """
    kinds: dict[Names, Alike] = {}
    if not (columns or usual) or _is_stream(table):
        return kinds
    whole, first = source(table), 0
    whole_numbers = {name for name in usual if pa.types.is_integer(whole.schema.field(name).type)}
    for batch in whole.batches(_ROWS):
        for names, places in grouped(batch, columns):
            row, same = kinds.get(names, (first + int(places[0]), frozenset(whole_numbers)))
            own = batch.take(pa.array(places)) if same and len(places) < batch.num_rows else batch
            kinds[names] = Alike(row, frozenset(name for name in same if pc.all(
                pc.equal(own.column(name), usual[name]), skip_nulls=False).as_py()))
        first += batch.num_rows
    return kinds


def _is_stream(table: Any) -> bool:
    """Tell whether a table can be read only once."""
    return isinstance(table, pa.RecordBatchReader) or (
        hasattr(table, "__arrow_c_stream__") and not hasattr(table, "__len__"))


def _length(table: Any) -> int | None:
    return len(table) if hasattr(table, "__len__") else None


def _arrays(columns: dict[str, np.ndarray[Any, Any]]) -> Source:
    """Return columns of NumPy: they are cut before they become Arrow's, so that one on disk stays there."""
    if not columns:
        raise InputError("table", {}, "must have columns")
    lengths = {name: len(column) if column.ndim == 1 else None for name, column in columns.items()}
    count = next(iter(lengths.values()))
    for name, length in lengths.items():
        if length is None or length != count:
            rule = f"must have one dimension, and as many rows as {next(iter(columns))}: {count}"
            raise InputError(name, columns[name].shape, rule)

    held = {name: _arrow(name, column) if column.dtype == object else column for name, column in columns.items()}
    schema = pa.schema([(name, _arrow(name, column[:1]).type) for name, column in held.items()])

    def batches(rows: int) -> Iterator[pa.RecordBatch]:
        for start in range(0, int(count or 0), rows):
            parts = [_arrow(field.name, held[field.name][start : start + rows], field.type) for field in schema]
            yield pa.RecordBatch.from_arrays(parts, schema=schema)

    return Source(schema, count, batches)


def _arrow(name: str, column: Any, kind: pa.DataType | None = None) -> pa.Array:
    """Return a column for Arrow; text and other objects have the type that all of them need."""
    if isinstance(column, pa.Array):
        return column
    try:
        return pa.array(column, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise InputError(name, column.dtype.name, f"must be a column that Arrow can hold: {error}") from None


def _reader(reader: pa.RecordBatchReader, count: int | None = None) -> Source:
    return Source(reader.schema, count, lambda rows: _regrouped(reader, reader.schema, rows))


def _dataset(dataset: Any) -> Source:
    from pyarrow.dataset import ParquetFileFormat, ParquetFragmentScanOptions

    of_parquet = isinstance(getattr(dataset, "format", None), ParquetFileFormat)
    options = {"fragment_scan_options": ParquetFragmentScanOptions(pre_buffer=False)} if of_parquet else {}

    def batches(rows: int) -> Iterator[pa.RecordBatch]:
        scanner = dataset.scanner(batch_size=rows, batch_readahead=1, fragment_readahead=1, **options)
        return _regrouped(scanner.to_batches(), dataset.schema, rows)

    return Source(dataset.schema, dataset.count_rows(), batches)


def _file(path: Path) -> Source:
    with _refusing(path):
        source = _opened(path)
        names = source.schema.names  # which decodes them
    if not names:
        raise InputError("table", str(path), "must have columns")
    return Source(source.schema, source.rows, lambda rows: _guarded(path, source.batches(rows)))


def _opened(path: Path) -> Source:
    if os.path.isdir(path):
        from pyarrow import dataset

        return _dataset(dataset.dataset(path))
    if path.suffix not in _SUFFIXES:
        raise InputError("table", str(path), f"must end with {', '.join(_SUFFIXES)}")
    if os.path.exists(path) and not os.path.isfile(path):
        raise InputError("table", str(path), "must be a regular file, or a folder of Parquet files")
    if path.suffix in (".parquet", ".pq"):
        return _parquet(path)
    if path.suffix == ".csv":
        from pyarrow import csv

        return _reader(csv.open_csv(path))
    if path.suffix == ".arrows":
        stream = pa.ipc.open_stream(pa.memory_map(str(path)))
        return Source(stream.schema, None, lambda rows: _regrouped(map(_whole, stream), stream.schema, rows))
    ipc = pa.ipc.open_file(pa.memory_map(str(path)))
    stored = (ipc.get_batch(number) for number in range(ipc.num_record_batches))
    return Source(ipc.schema, None, lambda rows: _regrouped(map(_whole, stored), ipc.schema, rows))


def _parquet(path: Path) -> Source:
    from pyarrow import parquet

    file = parquet.ParquetFile(path, pre_buffer=False)  # buffers would stay until the end of the file
    schema = file.schema_arrow

    def batches(rows: int) -> Iterator[pa.RecordBatch]:
        return _regrouped(file.iter_batches(batch_size=rows), schema, rows)

    return Source(schema, file.metadata.num_rows, batches)


def _guarded(path: Path, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    with _refusing(path):
        yield from map(_whole, batches)


def _whole(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the same rows once every offset and index is known to lead into them: a file may say anything."""
    batch.validate(full=True)
    return batch


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, UnicodeError, pa.ArrowException) as error:
        reason = getattr(error, "strerror", None) or next(iter(str(error).splitlines()), type(error).__name__)
        raise InputError("table", str(path), f"must be a table that can be read: {reason}") from None


def _regrouped(batches: Iterable[pa.RecordBatch], schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches of ``rows``: large ones are cut, small ones put together."""
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        for start in range(0, batch.num_rows, rows):
            part = batch.slice(start, rows)
            if count + part.num_rows > rows:
                yield _joined(held, schema)
                held, count = [], 0
            held.append(part)
            count += part.num_rows
    if held:
        yield _joined(held, schema)


def _joined(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches(batches, schema).combine_chunks()
    (joined,) = table.to_batches()
    return joined
