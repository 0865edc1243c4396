"""Every legal layout of a sweep as CSV or Parquet, written chunk by chunk in bounded memory."""

from __future__ import annotations

import csv as csv_format
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from shardmath.errors import InputError
from shardmath.generated.definitions import VERDICTS
from shardmath.reports.files import whole_file
from shardmath.sweeps.engine import Evaluated

Sink = Callable[[dict[str, Any]], None]

_COUNTS = ("tensor_parallel", "context_parallel", "pipeline_parallel", "data_parallel", "micro_batch_size",
           "sequence_parallel", "virtual_pipeline", "expert_parallel")
_NAMES = (*_COUNTS, "recompute", "first_stage_bytes", "last_stage_bytes", "peak_bytes", "verdict")


@contextmanager
def writers(csv: str | None, parquet: str | None) -> Iterator[Callable[[Evaluated, tuple[str, ...]], None] | None]:
    """A function that writes the legal rows of a chunk to the files asked for, or None without any."""
    with ExitStack() as stack:
        sinks: list[Sink] = []
        if csv is not None:
            sinks.append(stack.enter_context(_csv(csv)))
        if parquet is not None:
            sinks.append(stack.enter_context(_parquet(parquet)))

        def on_chunk(chunk: Evaluated, modes: tuple[str, ...]) -> None:
            columns = legal_columns(chunk, modes)
            for sink in sinks:
                sink(columns)

        yield on_chunk if sinks else None


def legal_columns(chunk: Evaluated, modes: tuple[str, ...]) -> dict[str, Any]:
    """The legal rows of a chunk as columns; sizes are int64 bytes, recompute and verdict are names."""
    legal = chunk.rule == 0
    ones = np.ones(int(legal.sum()), np.int64)
    columns: dict[str, Any] = {
        name: chunk.columns[name][legal].astype(np.int64) if name in chunk.columns else ones for name in _COUNTS
    }
    columns["recompute"] = np.asarray(modes)[chunk.columns["recompute"][legal].astype(np.intp)]
    for name, sizes in (("first_stage", chunk.first), ("last_stage", chunk.last), ("peak", chunk.peak)):
        columns[f"{name}_bytes"] = sizes[legal].astype(np.int64)
    columns["verdict"] = np.asarray([name for name, _ in VERDICTS])[chunk.verdict[legal]]
    return columns


@contextmanager
def _csv(path: str) -> Iterator[Sink]:
    with whole_file("csv", path) as file:
        writer = csv_format.writer(file)  # type: ignore[arg-type]
        writer.writerow(_NAMES)
        yield lambda columns: writer.writerows(zip(*(columns[name].tolist() for name in _NAMES), strict=True))


@contextmanager
def _parquet(path: str) -> Iterator[Sink]:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise InputError("parquet", path, "needs pyarrow: install shardmath[parquet]") from None
    schema = pa.schema([
        (name, pa.string() if name in ("recompute", "verdict") else pa.int64()) for name in _NAMES
    ])
    with whole_file("parquet", path, "wb") as file, parquet.ParquetWriter(file, schema) as writer:
        yield lambda columns: writer.write_table(pa.table({name: columns[name] for name in _NAMES}, schema=schema))
