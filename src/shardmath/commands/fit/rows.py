"""Solve every row of a table for one symbol: the same rows out, with the last value that fits, streamed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from os import PathLike, fspath
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet

from shardmath.commands.evaluate.columns import Columns, columns_of, refuse_other_schedule
from shardmath.commands.evaluate.grouped import SCHEDULE, RowNumbers
from shardmath.commands.evaluate.inputs import Inputs, inputs
from shardmath.commands.evaluate.sources import Progress
from shardmath.commands.fit.columns import Column, Evaluated, evaluated, largest_stepped, listed
from shardmath.commands.fit.compiled import inverse_for
from shardmath.commands.fit.run import share_of
from shardmath.configuration.risk import RISK
from shardmath.errors import ABSENT, InputError, nearest_names
from shardmath.files.writing import whole_file
from shardmath.input.parameters import limits, long_name
from shardmath.machines import Cluster
from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model

#: Symbols that rows can be solved for: those with which the peak only rises, and those that divide a batch.
SOLVED = ("micro_batch_size", "seq_length", "num_layers", "data_parallel")
PEAK = "peak"
_ROWS = 1 << 16


def fit_rows(
    table: Any,
    solve: str,
    model: Model | str | PathLike[str] | None = None,
    gpu: Gpu | Cluster | str | PathLike[str] | None = None,
    *,
    share: Fraction | int | str | None = None,
    implementation: str | None = None,
    kernels: Mapping[str, str] | None = None,
    risk: float | str | None = None,
    progress: Progress | None = None,
    **values: int | str,
) -> pa.RecordBatchReader:
    """Solve every row of ``table`` for ``solve``, as a stream of record batches.

    The largest ``micro_batch_size``, ``seq_length`` or ``num_layers``, the smallest ``data_parallel`` that fits. The
    table and the other arguments are those of ``evaluate``; ``share`` is that of ``fit``. Micro-batch sizes divide what
    ``global_batch_size`` leaves to a rank where it is given, and else the batch grows with them; data-parallel sizes
    need it. The answer has the columns of the table, the symbol (null where nothing fits), and ``peak``, the bytes
    there.

    Raises InputError for what ``evaluate`` refuses, and for a symbol that rows cannot be solved for.
    """
    solve = long_name(solve)
    if solve not in SOLVED:
        raise InputError("solve", solve, "must be a symbol that rows can be solved for", nearest_names(solve, SOLVED))
    read = columns_of(table, (solve, PEAK))
    stream = read.stream
    if solve in values:
        raise InputError(solve, values[solve], "must not be given: it is solved for")
    if solve == "data_parallel" and "global_batch_size" not in {*read.parameters, *values}:
        raise InputError("global_batch_size", ABSENT, "must be given: data_parallel divides it")
    own, of_all_rows = read.by_kind(implementation, kernels), {**values, RISK: risk}
    works = {kind: _Work(
        inputs([*some.parameters, solve], model, gpu, *kind.choices(kernels), some.with_values(of_all_rows)), solve,
        share_of(share), some, stream.schema,
    ) for kind, some in own.items()}
    for of_kind in works.values():
        of_kind.prepare()
    work = read.grouped(own, works)
    return stream.answered(work, work.schema, _ROWS, progress)


def write_answers(reader: pa.RecordBatchReader, path: str | PathLike[str]) -> tuple[int, int]:
    """Write what ``fit_rows`` answers as Parquet, whole or not at all; the numbers of rows, and of those that fit.

    Raises InputError where no file can be written, or its name does not end like a Parquet file's.
    """
    name = fspath(path)
    if not name.endswith((".parquet", ".pq")):
        raise InputError("output", name, "must end with .parquet")
    rows = solved = 0
    with whole_file("output", name, "wb") as file, parquet.ParquetWriter(file, reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch, row_group_size=batch.num_rows)
            rows, solved = rows + batch.num_rows, solved + batch.num_rows - batch.column(PEAK).null_count
    return rows, solved


@dataclass(frozen=True)
class _Work:
    """Function on one batch and the number of its first row."""

    inputs: Inputs
    solve: str
    share: Fraction | None
    columns: Columns
    table: pa.Schema

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the table, the symbol and the peak."""
        return pa.schema([*self.table, pa.field(self.solve, pa.int64()), pa.field(PEAK, pa.int64())],
                         metadata=self.table.metadata)

    def prepare(self) -> None:
        """Find the compiled evaluator, so that what is missing is said before a row is read.

        Raises InputError for that, and where something lies on the host, whose memory no row is solved for.
        """
        if self.inputs.values.get("host_memory"):
            rule = "must keep nothing on the host: rows are solved for the memory of GPUs alone, one layout for both"
            raise InputError("kernels", self.inputs.evaluator.title(), rule)
        assert self._kernel.OUTPUTS

    @cached_property
    def _along(self) -> tuple[str, ...]:
        """Return the parameters that grow with the symbol, unless the user fixed them."""
        with_it = {"micro_batch_size": ("global_batch_size",), "data_parallel": ("num_gpus",)}.get(self.solve, ())
        return tuple(name for name in with_it if name not in self.inputs.asked)

    @property
    def _divides(self) -> bool:
        """Tell whether the symbol must divide a fixed parameter."""
        return self.solve in ("micro_batch_size", "data_parallel") and "global_batch_size" in self.inputs.asked

    @cached_property
    def _kernel(self) -> ModuleType:
        if self._divides:
            return self.inputs.kernel((PEAK,), [*self.columns.numeric, self.solve])
        sample = self.inputs.completed({name: np.ones(1) for name in (*self.columns.numeric, self.solve)})
        kernel = inverse_for(self.inputs.evaluator, self.solve, self._along,
                             [name for name, value in sample.items() if np.ndim(value)])
        for name in (*kernel.SCALARS, *kernel.COLUMNS):
            if name not in sample:
                raise InputError(name, ABSENT, "must be given: as a column, as a value, or with a model or a GPU")
        return kernel

    def __call__(self, rows: RowNumbers, batch: pa.RecordBatch) -> pa.RecordBatch:
        count = batch.num_rows
        columns = self.columns.numbers_of(batch, rows, self.inputs.only)
        values = self.inputs.completed({**columns, self.solve: np.ones(count)})
        if SCHEDULE in self.table.names:
            own = self.inputs.evaluator.choices[SCHEDULE]
            refuse_other_schedule(batch.column(SCHEDULE), own, values["virtual_pipeline"], rows)
        if "gpu_memory" not in values:
            raise InputError("gpu_memory", ABSENT, "must be given: as a column, as a value, or with a GPU")
        limit = self._limit(values, count)
        run = evaluated(self._kernel, values, (self.solve, *self._along), self._complete(columns))
        answer = self._answer(run, count, limit, values)
        solved = np.flatnonzero(answer)
        peak = np.zeros(count, dtype=np.int64)
        peak[solved] = run(solved, answer[solved])[PEAK]
        missing = answer == 0
        computed = [pa.array(column.astype(np.int64), mask=missing) for column in (answer, peak)]
        return pa.RecordBatch.from_arrays([*batch.columns, *computed], schema=self.schema)

    def _limit(self, values: Mapping[str, Any], count: int) -> Column | None:
        """Return bytes that the peak of each row must not exceed; None if the verdict says it."""
        if self.share is None:
            return None
        memory = np.asarray(values["gpu_memory"], dtype=np.float64)
        return np.broadcast_to(np.floor(memory * self.share.numerator / self.share.denominator), (count,))

    def _answer(self, run: Evaluated, count: int, limit: Column | None, values: Mapping[str, Any],
                ) -> Column:
        if not self._divides:
            return largest_stepped(run, count, limit, limits(self.solve)[1])
        other = "data_parallel" if self.solve == "micro_batch_size" else "micro_batch_size"
        whole = np.broadcast_to(np.asarray(values["global_batch_size"] / values[other], dtype=float), (count,))
        return listed(run, count, limit, whole, largest=self.solve == "micro_batch_size")

    def _complete(self, columns: Mapping[str, Any]) -> Callable[[Column, NDArray[np.intp]], Mapping[str, Any]]:
        def complete(at: Column, rows: NDArray[np.intp]) -> Mapping[str, Any]:
            return self.inputs.completed({**{name: column[rows] for name, column in columns.items()}, self.solve: at})

        return complete
