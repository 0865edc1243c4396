"""Which rows a test compares: numbers of the ledger that know the rows in them, and note those that equal a count.

With ``COUNTED_ROWS=1`` in the environment ``ledger``, ``evaluated``, ``account_of`` and ``explained`` return such
numbers, and the run writes the rows of each file of tests into ``tests/data/counted_rows.toml``. A row is in a number
if it has bytes for the values at hand and the number would be another without it: of a maximum only the larger side
counts, and a difference has none of what is on both sides. It is compared when the number, or what sums and differences
made of it, equals something else; where a test allows a difference, only rows of more bytes are.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import tomli_w
from counted import inline, value
from sympy import Basic, Expr, Integer, Mul, Piecewise, Rational, Symbol

from shardmath.account.accounting import Explanation, RankAccount, explanation
from shardmath.account.configured import Configuration
from shardmath.compiler.evaluators import Evaluator, terms_at
from shardmath.symbolic.accounts import build, kept_rows
from shardmath.symbolic.exact import evaluate, holds, number
from shardmath.symbolic.functions import Max, Min
from shardmath.symbolic.implementations import IMPLEMENTATIONS, Implementation
from shardmath.symbolic.parameters import BY_NAME, symbol
from shardmath.symbolic.terms import Contribution, TermSet

FILE = Path(__file__).resolve().parents[2] / "data" / "counted_rows.toml"
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

    def _times(self, own: int, other: object, others: int) -> Traced:
        """Return ``own`` times the number and ``others`` times the other, without rows that are as large in both."""
        added = other.rows if isinstance(other, Traced) else {}
        rows = {row: own * self.rows.get(row, 0) + others * added.get(row, 0) for row in {**self.rows, **added}}
        value = own * int(self) + others * (int(other) if isinstance(other, int) else 0)
        return Traced.of(value, self.framework, {row: size for row, size in rows.items() if size})

    def __add__(self, other: int) -> Traced:
        return self._times(1, other, 1)

    def __sub__(self, other: int) -> Traced:
        return self._times(1, other, -1)

    def __rsub__(self, other: int) -> Traced:
        return self._times(-1, other, 1)

    def __neg__(self) -> Traced:
        return self._times(-1, 0, 0)

    def __mul__(self, other: object) -> Any:
        plain = isinstance(other, int) and not isinstance(other, Traced)
        return self._times(int(other), 0, 0) if plain else int(self) * other

    def __abs__(self) -> Traced:
        return self if int(self) >= 0 else -self

    __radd__, __rmul__ = __add__, __mul__

    def __eq__(self, other: object) -> bool:
        equal = bool(int(self) == other)
        if equal and not isinstance(other, Traced):
            self._note(getattr(other, "tolerance", 0))
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

    def _note(self, allowed: float) -> None:
        file = os.environ["PYTEST_CURRENT_TEST"].partition("::")[0]
        rows = noted.setdefault(self.framework, {}).setdefault(file, {})
        for row, size in self.rows.items():
            if abs(size) > allowed:
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


def summed(
    implementation: Implementation, rows: Iterable[Contribution], letters: Mapping[str, int],
    own: tuple[str, ...] = ("v",),
) -> int:
    """Return the bytes of some rows together, which know them where a run notes them; of weights the elements.

    ``own``: derived letters that have values of their own.
    """
    sizes = {f"{row.component.name}.{row.tensor.name}": int(value(inline(implementation, row.expression, own), letters))
             for row in rows}
    whole = sum(sizes.values())
    kept = {row: size for row, size in sizes.items() if size}
    return Traced.of(whole, implementation.framework, kept) if ON else whole


def summed_rows(implementation: Implementation, names: Iterable[str], letters: Mapping[str, int]) -> int:
    """Return the bytes of the rows of these names together, as far as the implementation has them."""
    wanted = set(names)
    return summed(implementation, [row for row in kept_rows(implementation)
                                   if f"{row.component.name}.{row.tensor.name}" in wanted], letters)


class Account(dict[str, Any]):
    """Values of all terms of an evaluator at one point, which know their rows as they are read."""

    def __init__(self, evaluator: Evaluator, values: Mapping[str, int]) -> None:
        super().__init__(terms_at(evaluator.terms, values))
        self._implementation = IMPLEMENTATIONS[evaluator.implementation].with_choices(**evaluator.choices)
        terms = build(self._implementation)
        known = {symbol(BY_NAME[name].letter): Integer(value) for name, value in values.items() if name in BY_NAME}
        known |= {terms[name].symbol: Rational(value) for name, value in self.items() if name in terms}
        self._walk = _Walk(terms, known)

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        if value != int(value):
            return value
        return Traced.of(int(value), self._implementation.framework, self._walk.rows(name))


def account_of(evaluator: Evaluator, values: Mapping[str, int]) -> dict[str, Any]:
    """Return every term of an evaluator by name, as ``terms_at``; they know their rows where a run notes them."""
    return Account(evaluator, values) if ON else terms_at(evaluator.terms, values)


def explained(configuration: Configuration) -> Explanation:
    """Return the account of a configuration, whose peak, lines and moments know their rows where a run notes them."""
    plain = explanation(configuration)
    if not ON:
        return plain
    job = configuration.job
    ranks = tuple(_traced_rank(rank, Account(job.evaluator, job.on_rank(rank.rank))) for rank in plain.ranks)
    return replace(plain, ranks=ranks, peak_bytes=ranks[plain.peak_rank].total)


def _traced_rank(rank: RankAccount, account: Account) -> RankAccount:
    lines = tuple(replace(line, bytes=account[line.term]) for line in rank.lines)
    by_role = {role: sum(line.bytes for line in lines if line.role == role) for role in rank.by_role}
    moments = {site: account[f"stage.{site}.all"] for site in rank.moments}
    return replace(rank, lines=lines, by_role=by_role, moments=moments, total=account["stage.total"])


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
