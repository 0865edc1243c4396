"""Which rows a test compares: numbers of the ledger that know the rows in them, and note those that equal a count.

With ``COUNTED_ROWS=1`` in the environment ``ledger`` and ``evaluated`` return such numbers, and the run writes the
rows of each file of tests into ``tests/data/counted_rows.toml``. A row is in a number if it has bytes for the values at
hand and the number would be another without it: of a maximum only the larger side counts. It is compared when the
number, or what sums and differences made of it, equals something else; where a test allows a difference, only rows of
more bytes are.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tomli_w
from sympy import Basic, Expr, Integer, Mul, Piecewise, Rational, Symbol

from shardmath.symbolic.accounts import build
from shardmath.symbolic.exact import evaluate, holds, number
from shardmath.symbolic.functions import Max, Min
from shardmath.symbolic.implementations import Implementation
from shardmath.symbolic.parameters import symbol
from shardmath.symbolic.terms import TermSet

FILE = Path(__file__).resolve().parents[1] / "data" / "counted_rows.toml"
ON = bool(os.environ.get("COUNTED_ROWS"))
HEADER = "# Written by `make counted` from a run of the tests; do not edit. Rows with those of the shortest sum.\n"

#: Rows that this run has compared: by framework, file of tests and row, how many rows the shortest sum had.
noted: dict[str, dict[str, dict[str, int]]] = {}


class Traced(int):
    """A number of the ledger with the bytes of each row in it."""

    framework: str
    rows: Mapping[str, int]

    @classmethod
    def of(cls, value: int, framework: str, rows: Mapping[str, int]) -> Traced:
        """Return the number with its rows."""
        made = cls(value)
        made.framework, made.rows = framework, rows
        return made

    def _with(self, value: int, other: object) -> Traced:
        return Traced.of(value, self.framework, {**(other.rows if isinstance(other, Traced) else {}), **self.rows})

    def __add__(self, other: int) -> Traced:
        return self._with(int(self) + int(other), other)

    def __sub__(self, other: int) -> Traced:
        return self._with(int(self) - int(other), other)

    def __rsub__(self, other: int) -> Traced:
        return self._with(int(other) - int(self), other)

    def __abs__(self) -> Traced:
        return self._with(abs(int(self)), None)

    __radd__ = __add__

    def __eq__(self, other: object) -> bool:
        equal = int(self) == other
        if equal:
            self._note(0)
        return equal

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __le__(self, other: int) -> bool:
        small = int(self) <= int(other)
        if small:
            self._note(int(other))
        return small

    def __lt__(self, other: int) -> bool:
        small = int(self) < int(other)
        if small:
            self._note(int(other))
        return small

    __hash__ = int.__hash__

    def _note(self, allowed: int) -> None:
        file = os.environ["PYTEST_CURRENT_TEST"].partition("::")[0]
        rows = noted.setdefault(self.framework, {}).setdefault(file, {})
        for row, size in self.rows.items():
            if size > allowed:
                rows[row] = min(rows.get(row, len(self.rows)), len(self.rows))


def traced(
    implementation: Implementation, names: Iterable[str], letters: Mapping[str, int], results: Mapping[str, Any],
) -> dict[str, Traced]:
    """Return terms with their rows, for letters and values of all terms; 0 for one that is not there."""
    terms = build(implementation)
    known = {symbol(letter): Integer(one) for letter, one in letters.items()}
    known |= {terms[name].symbol: Rational(value) for name, value in results.items() if name in terms}
    walk = _Walk(terms, known)
    return {name: Traced.of(int(results.get(name, 0)), implementation.framework, walk.rows(name)) for name in names}


def evaluated(implementation: Implementation, names: Iterable[str], letters: Mapping[str, int]) -> dict[str, Any]:
    """Return the values of terms in bytes or elements, as far as they are there, and of those that they need.

    Values of the named ones know their rows where a run notes them.
    """
    terms = build(implementation)
    there = [name for name in names if name in terms]
    results = evaluate(terms.closure(there), letters)
    return {**results, **traced(implementation, there, letters, results)} if ON else dict(results)


class _Walk:
    """Rows that a term depends on at one point, term by term."""

    def __init__(self, terms: TermSet, known: Mapping[Symbol, Expr]) -> None:
        self._terms, self._known = terms, known
        self._of_term: dict[str, dict[str, int]] = {}

    def rows(self, name: str) -> dict[str, int]:
        """Return the bytes of each row that changes a term; none for a term that is not there."""
        if name not in self._terms:
            return {}
        if name not in self._of_term:
            term = self._terms[name]
            sizes = {f"{row.component.name}.{row.tensor.name}": int(number(row.expression, self._known))
                     for row in term.rows}
            self._of_term[name] = ({row: size for row, size in sizes.items() if size} if term.rows
                                   else self._inside(term.expression))
        return self._of_term[name]

    def _inside(self, expression: Basic) -> dict[str, int]:
        if isinstance(expression, Symbol):
            term = self._terms.by_symbol.get(expression)
            return self.rows(term.name) if term is not None else {}
        if isinstance(expression, Mul) and number(expression, self._known) == 0:
            return {}
        parts: Iterable[Basic] = expression.args
        if isinstance(expression, Max | Min):
            whole = number(expression, self._known)
            parts = [part for part in parts if number(part, self._known) == whole]
        elif isinstance(expression, Piecewise):
            parts = [next(part for part, condition in expression.args if holds(condition, self._known))]
        together: dict[str, int] = {}
        for part in parts:
            together |= self._inside(part)
        return together


def write() -> None:
    """Write what this run has compared; files that it did not run, and of those that it did other rows, stay."""
    stood = read()
    for framework, files in noted.items():
        for file, rows in files.items():
            stood.setdefault(framework, {})[file] = dict(sorted(rows.items()))
    FILE.write_text(HEADER + tomli_w.dumps({
        framework: dict(sorted(files.items())) for framework, files in sorted(stood.items())}), encoding="utf-8")


def read() -> dict[str, dict[str, dict[str, int]]]:
    """Return the rows that earlier runs compared: by framework, file of tests and row, those of the shortest sum."""
    return tomllib.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {}
