"""Ledger rows behind each line of an account, with sizes that add up to the byte."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

from shardmath.account.accounting import Line, RankAccount
from shardmath.compiler.evaluators import in_ledger, terms_at
from shardmath.configuration.job import Job

if TYPE_CHECKING:
    from sympy import Expr, Symbol

    from shardmath.symbolic.implementations import Implementation
    from shardmath.symbolic.ledger import Component, Tensor
    from shardmath.symbolic.terms import Term, TermSet


@dataclass(frozen=True)
class Part:
    """One tensor in a line of an account, or what the line has that is no single tensor.

    ``line`` is the term of the line. ``bytes`` are those of the rank, for all layers, micro-batches and states that
    the line counts; ``expression`` is their formula. ``tensor`` is the ledger row with its ``owner``; both are None
    for padding and for sums of other terms.
    """

    line: str
    component: str
    role: str
    name: str
    bytes: int | Fraction
    meaning: str
    expression: Expr
    tensor: Tensor | None = None
    owner: Component | None = None


class Rank:
    """One pipeline rank of a job, with the formulas and the values behind its account."""

    def __init__(self, job: Job, account: RankAccount) -> None:
        self.job = job
        self.account = account

    @cached_property
    def implementation(self) -> Implementation:
        """The implementation with the choices of the job."""
        evaluator = self.job.evaluator
        return in_ledger(evaluator.implementation, evaluator.choices)

    @cached_property
    def terms(self) -> TermSet:
        """The terms of the implementation."""
        from shardmath.symbolic.accounts import build

        return build(self.implementation)

    @cached_property
    def known(self) -> Mapping[Symbol, Expr]:
        """The value of every symbol on this rank: parameters, and terms as the generated evaluator has them."""
        from sympy import Rational

        from shardmath.symbolic.parameters import BY_NAME

        values = self.job.on_rank(self.account.rank)
        numbers = terms_at(self.job.evaluator.terms, values)
        values_by_symbol: dict[Symbol, Any] = {BY_NAME[name].symbol: Rational(value) for name, value in values.items()}
        return values_by_symbol | {self.terms[name].symbol: Rational(value) for name, value in numbers.items()}

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The parts of all lines, in the order of the account; those of a line add up to its bytes."""
        return tuple(part for line in self.account.lines for part in self._parts(line))

    def value(self, expression: Expr) -> int | Fraction:
        """Return the exact value of a formula on this rank."""
        from shardmath.symbolic.exact import number

        exact = number(expression, self.known)
        return int(exact) if exact.is_Integer else Fraction(int(exact.p), int(exact.q))

    def text(self, expression: Expr) -> str:
        """Return a formula on one line, with local sizes spelled out."""
        from shardmath.symbolic.parallel.legality import fixed_values
        from shardmath.symbolic.printers.text import LinePrinter
        from shardmath.symbolic.simplify import spelled_out

        return LinePrinter().doprint(spelled_out(self.terms, expression, fixed_values(self.implementation)))

    def _parts(self, line: Line) -> Iterator[Part]:
        """Yield the rows of a line that is a sum of terms with rows, and what is left of it.

        A line that is no sum, such as the largest of several transients, is one part: its rows do not give its bytes.
        """
        from sympy import Integer

        from shardmath.symbolic.terms import in_place

        whole = self._unfolded(self.terms[line.term].expression)
        used = [self.terms.by_symbol[symbol] for symbol in whole.free_symbols & self.terms.by_symbol.keys()]
        units = sorted((term for term in used if term.rows), key=lambda term: self._places[term.name])
        none = dict.fromkeys((unit.symbol for unit in units), Integer(0))
        rest = self._rest(line, in_place(whole, none))
        parts = [
            self._part(line, name, meaning, in_place(whole, {**none, unit.symbol: size}), *row)
            for unit in units for name, meaning, size, *row in self._rows(unit)
        ]
        if sum(part.bytes for part in parts) + rest.bytes != line.bytes:
            parts, rest = [], self._rest(line, whole)
        yield from (part for part in (*parts, rest) if part.bytes)

    def _part(self, line: Line, name: str, meaning: str, expression: Expr, *row: Any) -> Part:
        return Part(line.term, line.component, line.role, name, self.value(expression), meaning, expression, *row)

    def _rows(self, unit: Term) -> list[tuple[Any, ...]]:
        """Name, meaning, size, row and owner of every row; a state counted by the shapes of several rows is one."""
        if sum(self.value(row.expression) for row in unit.rows) != self.value(unit.symbol):
            return [(unit.kind, unit.meaning, unit.symbol)]
        return [(row.tensor.name, row.tensor.meaning, row.expression, row.tensor, row.component) for row in unit.rows]

    def _rest(self, line: Line, expression: Expr) -> Part:
        """Return the part without a row: called like its line, or ``moved`` if it waits on the host."""
        moved = f"{line.component}.moved"
        waits = moved in self.terms and self.terms[moved].symbol in expression.free_symbols
        return self._part(line, "moved" if waits else line.component, self.terms[line.term].meaning, expression)

    @cached_property
    def _places(self) -> Mapping[str, int]:
        return {name: place for place, name in enumerate(self.terms.terms)}

    def _unfolded(self, expression: Expr) -> Expr:
        """Get the definition of a term that is only another name, such as that of a transient at one of its moments."""
        while expression.is_Symbol and expression in self.terms.by_symbol:
            term = self.terms.by_symbol[expression]
            if term.rows:
                break
            expression = term.expression
        return expression
