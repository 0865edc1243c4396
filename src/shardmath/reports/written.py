"""Summary of a table that was written: known without the library that writes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardmath.answers import Answer


@dataclass(frozen=True)
class Written(Answer):
    """Summary of a written table."""

    output: str
    """Path of the Parquet file."""
    rows: int
    """Rows of the table."""
    counts: Mapping[str, int]
    """Rows by verdict, and ``illegal`` ones that break a rule."""
    passed_through: tuple[str, ...]
    """Columns that are no parameters, and were copied."""
    left_out: tuple[str, ...]
    """Columns of results of the table, which were left out: results are computed anew."""
    risk: float | None
    """Probability of running out of memory below which a row is said to fit; null where a column says it."""
