"""Every legal layout of a sweep as CSV or Parquet, written chunk by chunk in bounded memory."""

from __future__ import annotations

import csv as csv_format
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from shardmath.errors import InputError
from shardmath.files.writing import whole_file
from shardmath.search.legal import NAMES, Columns, OnLayouts, plain_cells

#: Columns of text.
_TEXTS = ("recompute", "verdict", "rule_80", "schedule")
#: Endings by what is written, and those of files that are never written here.
_ENDINGS = {"csv": (".csv", ".tsv"), "parquet": (".parquet", ".pq"), "": (".xlsx", ".json", ".html", ".png", ".svg")}


@contextmanager
def writers(csv: str | None, parquet: str | None, *others: OnLayouts) -> Iterator[OnLayouts | None]:
    """Yield a function that writes layouts to the files asked for and hands them to ``others``; None without any."""
    with ExitStack() as stack:
        sinks = list(others)
        if csv is not None:
            sinks.append(stack.enter_context(_csv(csv)))
        if parquet is not None:
            sinks.append(stack.enter_context(_parquet(parquet)))

        def on_layouts(columns: Columns) -> None:
            for sink in sinks:
                sink(columns)

        yield on_layouts if sinks else None


@contextmanager
def _csv(path: str) -> Iterator[OnLayouts]:
    _refuse_another_kind("csv", path)
    with whole_file("csv", path) as file:
        writer = csv_format.writer(file)  # type: ignore[arg-type]
        writer.writerow(NAMES)
        yield lambda columns: writer.writerows(zip(*(plain_cells(columns[name]) for name in NAMES), strict=True))


@contextmanager
def _parquet(path: str) -> Iterator[OnLayouts]:
    _refuse_another_kind("parquet", path)
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise InputError("parquet", path, "needs pyarrow: pip install 'shardmath[parquet]'") from None
    schema = pa.schema([
        (name, pa.float64() if name == "step_seconds" else pa.string() if name in _TEXTS else pa.int64())
        for name in NAMES
    ])
    with whole_file("parquet", path, "wb") as file, parquet.ParquetWriter(file, schema) as writer:
        yield lambda columns: writer.write_table(
            pa.table({name: pa.array(columns[name], from_pandas=True) for name in NAMES}, schema=schema))


def _refuse_another_kind(field: str, path: str) -> None:
    """Raise InputError for a file that other programs would take for what it is not."""
    others = tuple(ending for kind, endings in _ENDINGS.items() if kind != field for ending in endings)
    if path.lower().endswith(others):
        nearest = f"{path.rpartition('.')[0]}.{field}"
        raise InputError(field, path, "must not end like a file of another kind", nearest)
