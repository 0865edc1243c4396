"""Read cells of the tables: numbers may be written as 8.0, and a blank stands for what the table leaves out."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from validation.measured.case import GIB

DATA = Path(__file__).resolve().parents[2] / "tests" / "data"


def rows(table: str, folder: Path = DATA) -> list[dict[str, str]]:
    """Return the rows of a table by column name. Raises ValueError for a table without rows."""
    with (folder / table).open(newline="", encoding="utf-8") as file:
        records = list(csv.DictReader(file))
    if not records:
        raise ValueError(f"{table} has no rows")
    return records


def whole(cell: str, blank: int | None = None) -> int:
    """Read a whole number, or ``blank``. Raises ValueError for a fraction, and for a blank without a value."""
    if not cell.strip():
        if blank is None:
            raise ValueError("a blank cell where a number is needed")
        return blank
    number = float(cell)
    if not number.is_integer():
        raise ValueError(f"{cell!r} is not a whole number")
    return int(number)


def arguments_of(words: str) -> dict[str, Any]:
    """Read arguments of ``explain`` in a cell, ``name=value`` or ``kernels.axis=option``, with spaces between them."""
    arguments: dict[str, Any] = {"kernels": {}}
    for word in words.split():
        name, _, value = word.partition("=")
        if name.startswith("kernels."):
            arguments["kernels"][name.removeprefix("kernels.")] = value
        else:
            arguments[name] = int(value) if value.isdecimal() else value
    return arguments


def yes(cell: str) -> bool:
    """Read a truth value of a cell. Raises ValueError for anything else."""
    known = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}
    if cell.strip().lower() not in known:
        raise ValueError(f"{cell!r} is neither true nor false")
    return known[cell.strip().lower()]


def gib(cell: str) -> int:
    """Return the bytes of a number of GiB."""
    return round(float(cell) * GIB)
