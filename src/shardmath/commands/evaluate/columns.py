"""The columns of a table: which are parameters, and their values as checked numbers."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from shardmath.configuration.settings import SELECTIVE, recompute_switches
from shardmath.errors import InputError
from shardmath.generated.definitions import PARAMETERS, RECOMPUTE_MODES, SHORT
from shardmath.input.parameters import checked, limits, nearest_parameter

#: The column with names of recompute modes, and the switches that it stands for.
RECOMPUTE = "recompute"
SWITCHES = tuple(next(iter(RECOMPUTE_MODES.values())))
#: Settings with a single value for the whole table.
_ARGUMENTS = ("model", "gpu", "implementation", "kernels", "schedule", "gradients", "zero_stage", "pipeline_layout")
#: Short names of the command line, which are no parameters.
_SHORT = {short.lower(): name for name, short in SHORT.items()}
#: How alike a column's name and a parameter's are if one is most likely the other misspelt; 1 is equal.
_ALIKE = 0.85
_KNOWN = tuple(name for name, (*_, kind, _) in PARAMETERS.items() if kind != "derived")


def parameters_among(names: Iterable[str], reserved: Collection[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the columns that are parameters, ``recompute`` among them, and those that are passed through.

    ``reserved`` are names of computed columns. Raises InputError for a column that is named like one of these, that is
    named twice, that no table can vary, and that looks like a misspelt parameter.
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


def numbers(name: str, column: pa.Array, first_row: int, only: int | None = None) -> NDArray[np.float64]:
    """Return the values of the parameter ``name``; ``first_row`` is the row number of the first, counted from 0.

    ``only`` is the one legal value of a parameter that changes nothing. Raises InputError with the row of the first
    value that is missing, not whole or out of range.
    """
    minimum, largest = limits(name) if only is None else (only, only)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.null_count:
        raise _wrong(name, None, first_row + _first_null(column), only)
    if pa.types.is_boolean(column.type) and limits(name) == (0, 1):
        column = column.cast(pa.uint8())
    if len(column) and not (pa.types.is_integer(column.type) or pa.types.is_floating(column.type)):
        raise _wrong(name, _shown(column), first_row, only)
    values = column.to_numpy(zero_copy_only=False)
    whole = values.dtype.kind != "f" or bool((np.floor(values) == values).all())
    if values.size and not (whole and minimum <= values.min() and values.max() <= largest):
        row = int(((values >= minimum) & (values <= largest) & (np.floor(values) == values)).argmin())
        raise _wrong(name, values[row].item(), first_row + row, only)
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


def modes(column: pa.Array, first_row: int) -> dict[str, NDArray[np.float64]]:
    """Get the switches of a column of recompute modes. Raises InputError with the row of the first that is not one."""
    if column.null_count:
        raise InputError(RECOMPUTE, None, f"must be the name of a mode (row {first_row + _first_null(column)})")
    if not pa.types.is_dictionary(column.type):
        try:
            column = pc.dictionary_encode(column.cast(pa.string()))
        except pa.ArrowException:
            raise InputError(RECOMPUTE, str(column.type), "must be a column of names of modes") from None
    indices = column.indices.to_numpy()
    table = np.zeros((len(column.dictionary), len(SWITCHES)))
    for number in np.unique(indices):
        mode, row = column.dictionary[int(number)].as_py(), first_row + int((indices == number).argmax())
        if mode == SELECTIVE:
            raise InputError(RECOMPUTE, mode, f"must be given for the whole table (row {row})")
        try:
            switches = recompute_switches(str(mode))
        except InputError as error:
            raise InputError(RECOMPUTE, mode, f"{error.rule} (row {row})", error.nearest) from None
        table[number] = [switches[name] for name in SWITCHES]
    return dict(zip(SWITCHES, table[indices].T, strict=True))


def known_value(name: str) -> None:
    """Raise InputError unless ``name`` is a parameter that can be given."""
    if name not in _KNOWN:
        raise InputError("parameter", name, "must be a parameter of the job", nearest_parameter(name, _KNOWN))
