"""Readers of tables: CSV, Parquet and Arrow, with the rows of small sweeps as examples."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from io import BytesIO
from typing import Any

from fuzzing.files import _symbols
from fuzzing.outcome import Finding, outcome
from fuzzing.reader import Reader, in_file

_COLUMNS: dict[str, list[Any]] = {
    "tensor_parallel": [1, 2, 4], "micro_batch_size": [1, 2, 1], "pipeline_parallel": [1, 2, 1],
    "recompute": ["none", "full", "mlp"], "note": ["a", None, "ö"],
}
#: The parameters of the examples: for others a kernel of its own would be derived and compiled, which takes seconds.
_KNOWN = {"tensor_parallel", "micro_batch_size", "pipeline_parallel", "recompute"}
_QUESTION: dict[str, Any] = {"model": "llama-3.1-8b", "gpu": "h100-80gb"}
_MOST = 1 << 20


def _table(suffix: str) -> Callable[[bytes, str], str]:
    def read_one(data: bytes, folder: str) -> str:
        path = in_file(data, folder, f"table{suffix}")
        return outcome(lambda: _read(path))

    return read_one


def _read(path: str) -> None:
    import numpy as np

    from shardmath import evaluate
    from shardmath.commands.evaluate.columns import RECOMPUTE, modes, numbers, parameters_among
    from shardmath.commands.evaluate.sources import source

    stream = source(path)
    parameters, _ = parameters_among(stream.schema.names, ("rule", "verdict", "peak"))
    if {*parameters} == _KNOWN:
        peaks = evaluate(path, **_QUESTION).read_all().column("peak").drop_null().to_pylist()
        if any(peak <= 0 for peak in peaks):
            raise Finding("a peak of nothing")
        return
    row = 0
    for batch in stream.batches(1 << 16):
        rows = np.arange(row, row + batch.num_rows)
        for name in parameters:
            column = batch.column(name)
            if name == RECOMPUTE:
                modes(column, rows)
            else:
                numbers(name, column, rows)
        row += batch.num_rows
        if row > _MOST:
            return


def _table_of_columns() -> Any:
    import pyarrow as pa

    return pa.table(_COLUMNS)


def _written(write: Callable[[Any, BytesIO], object]) -> bytes:
    buffer = BytesIO()
    write(_table_of_columns(), buffer)
    return buffer.getvalue()


def _csv() -> Sequence[bytes]:
    from pyarrow import csv

    plain = b"num_gpus,tensor_parallel,run\n8,1,first\n16,2,\n"
    return [_written(csv.write_csv), plain, plain.replace(b",", b";")]


def _parquet() -> Sequence[bytes]:
    from pyarrow import parquet

    kinds: list[dict[str, Any]] = [{}, {"compression": "none", "use_dictionary": False}, {"compression": "zstd"},
                                   {"version": "1.0", "data_page_version": "2.0", "compression": "gzip"}]
    return [_written(partial(parquet.write_table, **kind)) for kind in kinds]


def _arrow(stream: bool) -> Callable[[], Sequence[bytes]]:
    def found() -> Sequence[bytes]:
        import pyarrow as pa

        def write(table: Any, file: BytesIO, options: Any = None) -> None:
            kind = pa.ipc.new_stream if stream else pa.ipc.new_file
            with contextlib.closing(kind(file, table.schema, options=options)) as writer:
                writer.write_table(table)

        packed = pa.ipc.IpcWriteOptions(compression="zstd")
        coded = _table_of_columns().set_column(3, "recompute", _table_of_columns()["recompute"].dictionary_encode())
        buffer = BytesIO()
        write(coded, buffer)
        return [_written(write), _written(lambda table, file: write(table, file, packed)), buffer.getvalue()]

    return found


READERS = (
    Reader("table-csv", _table(".csv"), _csv, _symbols),
    Reader("table-parquet", _table(".parquet"), _parquet, _symbols),
    Reader("table-arrow", _table(".arrow"), _arrow(False), _symbols),
    Reader("table-stream", _table(".arrows"), _arrow(True), _symbols),
)
