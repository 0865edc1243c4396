"""Numbers that a publication prints for its own formula, and the ledger's counterparts of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from shardmath.answers import Amount, Answer, Exact


@dataclass(frozen=True)
class SourceNumber(Answer):
    """A number that a publication prints for its own formula."""

    values: Mapping[str, Exact]
    """Inputs by letter, as formulas print it; also those that only the ledger needs."""
    unit: str
    """Unit of the three numbers."""
    printed: str
    """Digits of the publication."""
    formula: Amount
    """Number that its formula gives."""
    counted: Amount | None
    """Number of the ledger, where these inputs suffice for it."""
    where: str
    """Place in the publication."""
    remark: str
    """Reason of a disagreement between formula and number; else empty."""


@dataclass(frozen=True)
class CountedTerms(Answer):
    """Terms of the ledger that mean the same as a published one."""

    implementation: str
    """Framework and kernels of the ledger."""
    counted: str
    """Terms of the ledger, as they are compared."""
    meaning: str
    """Meaning of both."""
    assumed: Mapping[str, str]
    """Values of letters that both sides take, without recompute, dropout and biases, which both leave out."""
    difference: str | None
    """Published minus counted; none where that is no short expression."""
    remark: str
    """Why they differ."""


def source_numbers(records: Sequence[Mapping[str, Any]]) -> tuple[SourceNumber, ...]:
    """Return the numbers of a record of a term, which has exact ones as text."""
    return tuple(SourceNumber(**{
        **record, "values": {letter: _exact(size) for letter, size in record["values"].items()},
        "formula": _exact(record["formula"]),
        "counted": None if record["counted"] is None else _exact(record["counted"]),
    }) for record in records)


def _exact(text: str) -> int | Fraction:
    number = Fraction(text)
    return int(number) if number.denominator == 1 else number
