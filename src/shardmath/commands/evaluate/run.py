"""Evaluate a table: batches in, the same rows with rule, verdict and terms out, on all cores in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from shardmath.commands.evaluate.columns import (
    LEFT_OUT,
    PASSED_THROUGH,
    Columns,
    columns_of,
    parameters_among,
    refuse_other_schedule,
)
from shardmath.commands.evaluate.grouped import SCHEDULE, RowNumbers
from shardmath.commands.evaluate.inputs import Inputs, programs
from shardmath.commands.evaluate.sources import Progress
from shardmath.compiler.columns import branch_column
from shardmath.compiler.exactness import EXACT, products
from shardmath.compiler.placing import outputs
from shardmath.configuration.risk import PARTS, RISK, risk_of
from shardmath.errors import InputError
from shardmath.generated.definitions import RULE_80, VERDICTS, rule_80
from shardmath.input.arguments import typed
from shardmath.machines import Cluster
from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model

#: The terms that are computed unless others are asked for.
SWEEP_TERMS = ("first.total", "last.total", "peak")
#: Computed columns before the terms.
_OUTCOME = ("rule", "rule_text", "verdict", "rule_80")
#: Term that verdicts are about.
_PEAK = "peak"
#: Rows of a batch, and bytes of its numbers, at most: large enough to hide the cost of a call.
_ROWS, _BYTES = 1 << 16, 1 << 24
#: The key of the schema's metadata with the accepted risk.
ACCEPTED = b"risk"
_NAMES = pa.dictionary(pa.int8(), pa.string())


@typed
def evaluate(
    table: Any,
    model: Model | str | PathLike[str] | None = None,
    gpu: Gpu | Cluster | str | PathLike[str] | None = None,
    *,
    network: str | None = None,
    terms: Sequence[str] | str = SWEEP_TERMS,
    implementation: str | None = None,
    kernels: Mapping[str, str] | None = None,
    risk: float | str | None = None,
    progress: Progress | None = None,
    **values: int | str,
) -> pa.RecordBatchReader:
    """Compute ``terms`` for every row of ``table``, as a stream of record batches.

    ``table`` is a path (Parquet, CSV, Arrow), a mapping of NumPy columns, a structured array, an Arrow table, reader
    or dataset, or any data frame that Arrow can read (pandas, polars). Columns that are called like a parameter are
    its values, ``recompute`` has names of recompute modes, and all others are passed through. Columns
    ``implementation`` and ``schedule`` have names of the formulas of each row; a stream, which is read once, may have
    one schedule alone. Columns of results, as ``sweep`` and this function write them, are left out and computed anew. A
    parameter without a column has the value in ``values``, else that of ``model`` and ``gpu`` or the default, as in
    ``explain``. ``terms`` are names of terms, or ``"all"`` for those that every row has; those of a stage are about
    ``pipeline_rank``, which is 0 unless it is given. ``risk`` is the accepted probability of running out, as in
    ``explain``.

    The answer has the columns of the table, ``rule`` (the name of the first broken rule, or null), ``rule_text`` (its
    sentence), ``verdict``, ``rule_80`` (that of the 80 % rule), and the terms in their units: those of memory as
    int64, fractions of a byte cut off, those of time (``step.time``) as float64. They are null where a rule is
    broken. Its schema says the unit and the meaning of every term, and which columns were passed through. Rows are read
    as the answer is, and are evaluated on all cores. ``progress`` is called with the rows done and in all, None if
    these are not known.

    Raises InputError, also while the answer is read, for a value that is missing, not whole or out of range, with its
    row counted from 0; for what ``explain`` would refuse for all rows; and for numbers that are too large to be exact.

    Example:
        >>> table = {"tensor_parallel": [1, 2, 4], "num_gpus": [16, 16, 16]}
        >>> rows = shardmath.evaluate(table, "llama-3.1-8b", "h100-80gb", terms=["peak"]).read_all()
        >>> rows["peak"].to_pylist(), rows["verdict"].to_pylist()
        ([98777632768, 52521008128, 29367792640], ['out of memory', 'uncertain', 'fits'])
    """
    columns = columns_of(table)
    stream = columns.stream
    wanted = terms if isinstance(terms, str) else tuple(dict.fromkeys(terms))
    own, of_all_rows = columns.by_kind(implementation, kernels), {**values, RISK: risk}
    asked = {kind: programs(some.parameters, model, gpu, *kind.choices(kernels), some.with_values(of_all_rows), network)
             for kind, some in own.items()}
    names = _terms(asked.values()) if wanted == "all" else (wanted,) if isinstance(wanted, str) else wanted
    parameters_among(stream.schema.names, (*_OUTCOME, *names))
    work = columns.grouped(own, {kind: _Work(
        tuple((program, program.kernel((*names, *_beside(names)), own[kind].numeric)) for program in of_kind),
        own[kind], stream.schema, names,
    ) for kind, of_kind in asked.items()})

    size = 8 * (len(columns.numeric) + len(names) + 1)
    return stream.answered(work, work.schema, min(_ROWS, _BYTES // size), progress)


def _beside(names: Sequence[str]) -> tuple[str, ...]:
    """Return what has to be computed beside the terms that were asked for."""
    return () if _PEAK in names else (_PEAK,)


def _terms(asked: Iterable[Sequence[Inputs]]) -> tuple[str, ...]:
    """Return all terms of memory that every row has."""
    first, *others = (program.evaluator.terms.TERMS for of_kind in asked for program in of_kind)
    return tuple(name for name in first if all(name in terms for terms in others))


@dataclass(frozen=True)
class _Work:
    """Function on rows that ask for the same formulas, with their numbers in the table.

    ``programs`` are inputs and kernels of all rows, or of those without a pipeline and of those with one.
    """

    programs: Sequence[tuple[Inputs, ModuleType]]
    columns: Columns
    table: pa.Schema
    terms: Sequence[str]

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the table and the computed ones, each with its unit and meaning."""
        known = {name: self._first.evaluator.unit_and_meaning(name) for name in self.terms}
        computed = [pa.field(name, _NAMES) for name in _OUTCOME]
        computed += [
            pa.field(name, kind, metadata={"unit": known[name][0], "meaning": known[name][1]})
            for name, kind in zip(self.terms, self._kinds, strict=True)
        ]
        known_to_all = {**(self.table.metadata or {}), PASSED_THROUGH: "\n".join(self.columns.passed),
                        LEFT_OUT: "\n".join(self.columns.results), **self._risk}
        return pa.schema([*self.table, *computed], metadata=known_to_all)

    @property
    def _risk(self) -> dict[bytes, str]:
        """Return the accepted risk, where it is the same for all rows."""
        return {} if PARTS in self.columns.parameters else {ACCEPTED: str(risk_of(self._first.values))}

    def __call__(self, rows: RowNumbers, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns, count = self.columns.numbers_of(batch, rows, self._first.only), batch.num_rows
        values = self._first.completed(columns)
        if SCHEDULE in self.columns.passed:
            own = self.programs[-1][0].evaluator.choices[SCHEDULE]
            refuse_other_schedule(batch.column(SCHEDULE), own, values["virtual_pipeline"], rows)
        _refuse_inexact(values, rows)
        _refuse_missing_ranks(values, rows)
        rule, verdict, out = self._evaluated(columns, count)
        legal = rule == 0
        numbers = zip(self.terms, out, self._kinds, strict=False)  # the peak may be beside them
        _refuse_large({name: sizes for name, sizes, kind in numbers if kind == pa.int64()}, rows)
        rules = [rule for program, _ in self.programs for rule in program.evaluator.terms.RULES]
        names, texts = [name for name, _, _ in rules], [f"{field} {text}" for _, field, text in rules]
        peaks = out[(*self.terms, _PEAK).index(_PEAK)]
        memory = {"estimate": peaks, "gpu_memory": values["gpu_memory"]}
        by_rule = branch_column(rule_80, memory, count).astype(np.int8)
        verdicts = [name for name, _ in VERDICTS]
        valid, broken = (pa.py_buffer(np.packbits(mask, bitorder="little")) for mask in (legal, ~legal))
        computed = [
            _named(rule - 1, broken, names), _named(rule - 1, broken, texts), _named(verdict, valid, verdicts),
            _named(np.where(legal, by_rule, -1).astype(np.int8), valid, [name for name, _ in RULE_80]),
            *(_array(kind, sizes.astype(kind.to_pandas_dtype(), copy=False), valid)
              for kind, sizes in zip(self._kinds, out, strict=False)),
        ]
        return pa.RecordBatch.from_arrays([*batch.columns, *computed], schema=self.schema)

    def _evaluated(self, columns: Mapping[str, Any], count: int) -> tuple[NDArray[Any], ...]:
        """Get the broken rule of every row, counted from 1 through those of all programs, its verdict and its terms."""
        if len(self.programs) == 1:
            return self._run(0, columns, count)
        rule, verdict, out = np.zeros(count, np.int8), np.zeros(count, np.int8), self._out(count)[:, :count]
        has_pipeline, first_rule = columns["pipeline_parallel"] > 1, 0
        for number, rows in enumerate((~has_pipeline, has_pipeline)):
            some = {name: values[rows] for name, values in columns.items()}
            broken, verdict[rows], out[:, rows] = self._run(number, some, int(rows.sum()))
            rule[rows] = np.where(broken > 0, broken + first_rule, 0)
            first_rule += len(self.programs[number][0].evaluator.terms.RULES)
        return rule, verdict, out

    def _run(self, number: int, columns: Mapping[str, Any], count: int) -> tuple[NDArray[Any], ...]:
        program, kernel = self.programs[number]
        values = program.completed(columns)
        rule, verdict, out = np.empty(count, np.int8), np.empty(count, np.int8), self._out(count)
        scalars = [float(values[name]) for name in kernel.SCALARS]
        own = [_column(values[name], count) for name in kernel.COLUMNS]
        kernel.evaluate(0, count, *scalars, *own, rule, verdict, out)
        return rule, verdict, out[:, :count]

    def _out(self, count: int) -> NDArray[Any]:
        kind = np.float64 if pa.float64() in self._kinds else np.int64
        return outputs(len(self.terms) + len(_beside(self.terms)), count, kind)

    @property
    def _first(self) -> Inputs:
        return self.programs[0][0]

    @cached_property
    def _kinds(self) -> list[pa.DataType]:
        """The type of every term's column."""
        whole = self._first.evaluator.terms.TERMS
        return [pa.int64() if name in whole else pa.float64() for name in self.terms]


def _array(kind: pa.DataType, values: NDArray[Any], valid: pa.Buffer) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(values)])


def _named(numbers_of_names: NDArray[np.int8], valid: pa.Buffer, names: Sequence[str]) -> pa.DictionaryArray:
    distinct = list(dict.fromkeys(names))
    if len(distinct) < len(names):
        places = np.array([distinct.index(name) for name in names], np.int8)
        numbers_of_names = places[numbers_of_names]
    indices = _array(pa.int8(), numbers_of_names, valid)
    return pa.DictionaryArray.from_arrays(indices, pa.array(distinct), safe=False)


def _column(value: Any, count: int) -> Any:
    if np.ndim(value):
        return np.ascontiguousarray(value, dtype=np.float64)
    return np.full(count, float(value))


def _refuse_inexact(values: Mapping[str, Any], rows: RowNumbers) -> None:
    for product in products(values):
        large = np.atleast_1d(np.asarray(product, dtype=np.float64) >= EXACT)
        if large.any():
            rule = "must have matrices and batches below 2^49 elements, for exact arithmetic"
            raise InputError("table", f"row {rows[int(large.argmax())]}", rule)


def _refuse_missing_ranks(values: Mapping[str, Any], rows: RowNumbers) -> None:
    missing = np.atleast_1d(np.asarray(values["pipeline_rank"] >= values["pipeline_parallel"]))
    if missing.any():
        row = int(missing.argmax())
        rank = int(np.broadcast_to(values["pipeline_rank"], missing.shape)[row])
        raise InputError("pipeline_rank", rank, f"must be below pipeline_parallel (row {rows[row]})")


def _refuse_large(columns: Mapping[str, NDArray[Any]], rows: RowNumbers) -> None:
    for name, sizes in columns.items():
        if sizes.size and not -EXACT < sizes.min() <= sizes.max() < EXACT:
            row = int((~((sizes > -EXACT) & (sizes < EXACT))).argmax())
            rule = f"must be below 2^49 for exact arithmetic (row {rows[row]})"
            raise InputError(name, int(sizes[row]), rule)
