"""The columns of a table: which are parameters, and their values as checked numbers."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from shardmath.commands.evaluate.grouped import (
    GROUPING,
    IMPLEMENTATION,
    SCHEDULE,
    Alike,
    Grouped,
    Kind,
    Names,
    RowNumbers,
    Work,
    kinds_of,
)
from shardmath.commands.evaluate.sources import Source, alike, source
from shardmath.configuration.settings import SELECTIVE, recompute_switches
from shardmath.errors import InputError
from shardmath.generated.definitions import ABSENT_DEGREES, PARAMETERS, RECOMPUTE_MODES, SHORT
from shardmath.input.parameters import UNEVEN, checked, limits, nearest_parameter
from shardmath.search.layout import schedules
from shardmath.search.legal import RESULTS

#: The column with names of recompute modes, and the switches that it stands for.
RECOMPUTE = "recompute"
SWITCHES = tuple(next(iter(RECOMPUTE_MODES.values())))
#: Keys of a schema's metadata, with names one a line: columns that are no parameters, and results that were left out.
PASSED_THROUGH, LEFT_OUT = b"passed through", b"left out"
#: The column with chunks of layers on a rank: more than one ask for other formulas.
CHUNKS = "virtual_pipeline"
#: Settings with a single value for the whole table.
_ARGUMENTS = ("model", "gpu", "kernels", "gradients", "zero_stage", "pipeline_layout")
#: Short names of the command line, which are no parameters.
_SHORT = {short.lower(): name for name, short in SHORT.items()}
_TWICE = "must not be given both as a column and as a value"
#: How alike a column's name and a parameter's are if one is most likely the other misspelt; 1 is equal.
_ALIKE = 0.85
_KNOWN = tuple(name for name, (*_, kind, _) in PARAMETERS.items() if kind != "derived")


def parameters_among(names: Iterable[str], reserved: Collection[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the columns that are parameters, ``recompute`` among them, and those that are passed through.

    Columns of implementations and schedules are passed through: they group rows. ``reserved`` are names of computed
    columns. Raises InputError for a column that is named like one of these, that is named twice, that no table can
    vary, and that looks like a misspelt parameter.
    """
    parameters: list[str] = []
    passed: list[str] = []
    for name in names:
        if name in parameters or name in passed:
            raise InputError("column", name, "must be there once")
        if name in reserved:
            raise InputError("column", name, "must have another name: a column of that name is computed")
        if name in _ARGUMENTS:
            raise InputError("column", name, "must not be a column: one value of it holds for the whole table")
        if name in _KNOWN or name == RECOMPUTE:
            parameters.append(name)
        elif name in GROUPING:
            passed.append(name)
        elif name in PARAMETERS:
            raise InputError("column", name, "must not be a column: it follows from other parameters")
        else:
            _refuse_misspelt(name)
            passed.append(name)
    switches = [name for name in SWITCHES if name in parameters]
    if RECOMPUTE in parameters and switches:
        raise InputError("column", RECOMPUTE, f"must not be there beside {switches[0]}")
    return tuple(parameters), tuple(passed)


def _refuse_misspelt(name: str) -> None:
    plain = re.sub(r"[\W_]+", "_", name.lower()).strip("_")
    alike = difflib.get_close_matches(_SHORT.get(plain, plain), [*_KNOWN, RECOMPUTE], n=1, cutoff=_ALIKE)
    if alike:
        rule = "must be named like a parameter, or not resemble one"
        raise InputError("column", name, rule, alike[0])


def numbers(name: str, column: pa.Array, rows: RowNumbers, only: int | None = None) -> NDArray[np.float64]:
    """Return the values of the parameter ``name``; ``rows`` are the numbers of its rows in the table, from 0.

    ``only`` is the one legal value of a parameter that changes nothing. Raises InputError with the row of the first
    value that is missing, not whole or out of range.
    """
    minimum, largest = limits(name) if only is None else (only, only)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.null_count:
        raise _wrong(name, None, rows[_first_null(column)], only)
    if pa.types.is_boolean(column.type) and limits(name) == (0, 1):
        column = column.cast(pa.uint8())
    if len(column) and not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise _wrong(name, _shown(column), rows[0], only)
    values = column.to_numpy(zero_copy_only=False)
    whole = values.dtype.kind != "f" or bool((np.floor(values) == values).all())
    if values.size and not (whole and minimum <= values.min() and values.max() <= largest):
        row = int(((values >= minimum) & (values <= largest) & (np.floor(values) == values)).argmin())
        raise _wrong(name, values[row].item(), rows[row], only)
    exact: NDArray[np.float64] = values.astype(np.float64, copy=False)
    return exact


def _shown(column: pa.Array) -> Any:
    """Return the first value of a column, or its type if Python has no such value: a date in the year 10,000."""
    try:
        return column[0].as_py()
    except (ValueError, OverflowError, pa.ArrowException):
        return str(column.type)


def _wrong(name: str, value: Any, row: int, only: int | None) -> InputError:
    """Return the error of ``checked`` for an illegal value, with its row."""
    if only is not None:
        return InputError(name, value, f"must be {only}: it changes nothing (row {row})", str(only))
    try:
        checked(name, value)
    except InputError as error:
        return InputError(name, value, f"{error.rule} (row {row})", error.nearest)
    return InputError(name, value, f"must be in a column of integers (row {row})")


def _first_null(column: pa.Array) -> int:
    return int(pc.is_null(column).to_numpy(zero_copy_only=False).argmax())


def modes(column: pa.Array, rows: RowNumbers) -> dict[str, NDArray[np.float64]]:
    """Get the switches of a column of recompute modes. Raises InputError with the row of the first that is not one."""
    if column.null_count:
        raise InputError(RECOMPUTE, None, f"must be the name of a mode (row {rows[_first_null(column)]})")
    if not pa.types.is_dictionary(column.type):
        try:
            column = pc.dictionary_encode(column.cast(pa.string()))
        except pa.ArrowException:
            raise InputError(RECOMPUTE, str(column.type), "must be a column of names of modes") from None
    indices = column.indices.to_numpy()
    table = np.zeros((len(column.dictionary), len(SWITCHES)))
    for number in np.unique(indices):
        mode, row = column.dictionary[int(number)].as_py(), rows[int((indices == number).argmax())]
        if mode == SELECTIVE:
            raise InputError(RECOMPUTE, mode, f"must be given for the whole table (row {row})")
        try:
            switches = recompute_switches(str(mode))
        except InputError as error:
            raise InputError(RECOMPUTE, mode, f"{error.rule} (row {row})", error.nearest) from None
        table[number] = [switches[name] for name in SWITCHES]
    return dict(zip(SWITCHES, table[indices].T, strict=True))


@dataclass(frozen=True)
class Columns:
    """A table without its results: its columns that are parameters, those passed through, and the results it had.

    ``usual`` has the values of parameters with which they ask for no formulas of their own, and ``rows`` what rows with
    the same names share, of a table that can be read twice.
    """

    stream: Source
    parameters: tuple[str, ...]
    passed: tuple[str, ...]
    results: tuple[str, ...]
    usual: Mapping[str, int]
    rows: Mapping[Names, Alike]

    def by_kind(self, implementation: str | None, kernels: Mapping[str, str] | None) -> dict[Kind, Columns]:
        """Return the columns of the rows of each kind. See ``kinds_of``."""
        names: dict[Kind, list[Names]] = {}
        for own, kind in kinds_of(self.rows, self._grouping, implementation, kernels).items():
            names.setdefault(kind, []).append(own)
        return {kind: self._only(own) for kind, own in names.items()}

    def grouped(self, of_kinds: Mapping[Kind, Columns], works: Mapping[Kind, Work]) -> Grouped:
        """Return the function on all rows of the table that sends those of each kind to its work."""
        return Grouped(self._grouping, {names: kind for kind, own in of_kinds.items() for names in own.rows}, works)

    @property
    def _grouping(self) -> tuple[str, ...]:
        """The columns of names that group rows."""
        return tuple(name for name in GROUPING if name in self.passed)

    def numbers_of(
        self, batch: pa.RecordBatch, rows: RowNumbers, only: Mapping[str, int],
    ) -> dict[str, NDArray[np.float64]]:
        """Return the numbers of some rows that follow from the parameters; ``rows`` are their places in the table.

        ``only`` has the one legal value of parameters that change nothing. Raises InputError with the row of the first
        value that is not legal.
        """
        columns: dict[str, NDArray[np.float64]] = {}
        for name in self.parameters:
            values = batch.column(name)
            columns |= modes(values, rows) if name == RECOMPUTE else {name: numbers(name, values, rows, only.get(name))}
        return columns

    def _only(self, names: Iterable[Names]) -> Columns:
        """Return the columns of rows with some names: what is usual in all of them is no parameter."""
        rows = {own: self.rows[own] for own in names if own in self.rows}
        single = _usual_in(rows.values())
        return replace(self, parameters=tuple(name for name in self.parameters if name not in single), rows=rows)

    @property
    def numeric(self) -> tuple[str, ...]:
        """The columns of numbers that follow from the parameters."""
        return tuple(name for column in self.parameters for name in (SWITCHES if column == RECOMPUTE else (column,)))

    def with_values(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values for all rows, chunks of a rank among them. Raises InputError for one that is a column too."""
        for name in self.usual.keys() & values.keys():
            raise InputError(name, values[name], _TWICE)
        single = CHUNKS in self.usual and CHUNKS not in self.parameters
        return {**values, **({CHUNKS: self.usual[CHUNKS]} if single else {})}


def columns_of(table: Any, reserved: Collection[str] = ()) -> Columns:
    """Return the columns of a table; those that are 1 or 0 throughout ask for no formulas. See ``parameters_among``.

    Raises InputError for a column of implementations in a stream, which is read once.
    """
    whole = source(table)
    results = _results(whole.schema)
    stream = whole.without(results)
    parameters, others = parameters_among(stream.schema.names, reserved)
    usual = {**dict.fromkeys((CHUNKS, *ABSENT_DEGREES), 1), **dict.fromkeys(UNEVEN, 0)}
    usual = {name: value for name, value in usual.items() if name in parameters}
    rows = alike(table, [name for name in GROUPING if name in others], usual)
    if IMPLEMENTATION in others and not rows:
        rule = "must be in a table that has rows and can be read twice, not a stream"
        raise InputError("column", IMPLEMENTATION, rule)
    single = _usual_in(rows.values())
    passed = tuple(name for name in stream.schema.names if name in others or name in single)
    return Columns(stream, parameters, passed, results, usual, rows)


def _usual_in(rows: Collection[Alike]) -> frozenset[str]:
    """Return the columns that have their usual values in all rows; none where rows are not known."""
    return frozenset.intersection(*(each.usual for each in rows)) if rows else frozenset()


def _results(table: pa.Schema) -> tuple[str, ...]:
    """Return the columns that a sweep wrote as results, and in what ``evaluate`` wrote all that it computed."""
    metadata = table.metadata or {}
    copied = metadata.get(PASSED_THROUGH, b"").decode().split("\n")
    kept = {*_KNOWN, RECOMPUTE, *copied} if PASSED_THROUGH in metadata else set(table.names)
    return tuple(name for name in table.names if name in RESULTS or name not in kept)


def refuse_other_schedule(column: pa.Array, own: str, chunks: ArrayLike, rows: RowNumbers) -> None:
    """Raise InputError for the first row with another schedule than that of the formulas, for ``chunks`` on a rank."""
    counted = np.broadcast_to(schedules(own, chunks), len(column))
    named = np.asarray(column.cast(pa.string()).to_pylist(), dtype=object)
    other = np.flatnonzero(named != counted)
    if len(other):
        row = int(other[0])
        rule = f"must be {counted[row]} as the formulas have it, or stand in a table of its own (row {rows[row]})"
        raise InputError(SCHEDULE, named[row], rule, f"--kernel schedule={named[row]}")


def refuse_value(name: str, value: object, columns: Collection[str]) -> None:
    """Raise InputError unless ``name`` is a parameter that can be given, and no column."""
    if name not in _KNOWN:
        raise InputError("parameter", name, "must be a parameter of the job", nearest_parameter(name, _KNOWN))
    if name in columns:
        raise InputError(name, value, _TWICE)
