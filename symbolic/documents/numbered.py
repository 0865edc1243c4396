"""The case of one configuration: all conditions, maxima and ceilings are decided by its numbers, sizes stay letters."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from sympy import Expr, Integer, Rational, Symbol

from ..accounts.lines import lines
from ..accounts.peak import CANDIDATES, OF_EXPERTS
from ..algebra.assumed import KEPT
from ..exact import number
from ..functions import CeilDiv, FloorDiv, Iverson, Max, Min
from ..implementations import Implementation
from ..parameters import BY_LETTER, BY_NAME, symbol
from .case import Case, grouped

#: Owners of terms that are no part of what a rank keeps at its peak.
_OTHERS = ("", "local", "model", "process", *CANDIDATES, *OF_EXPERTS)
#: Ends of names of terms that lay parameters out in buffers.
_LAID_OUT = ("aligned", "elements", "padded", "bucket_parameters")


@dataclass(frozen=True, eq=False)
class Numbered(Case):
    """A case with the value of every letter and term; only switches and what is 0 have theirs in forms."""

    known: Mapping[Symbol, Rational] = field(default_factory=dict)

    @classmethod
    def of(
        cls, implementation: Implementation, values: Mapping[str, int], terms: Mapping[str, int | Fraction],
    ) -> Numbered:
        """Return the case of a rank, with parameters by name and its terms."""
        letters = {BY_NAME[name].letter: value for name, value in values.items()}
        known = {symbol(letter): Rational(value) for letter, value in letters.items()}
        case = cls(implementation, {
            letter: value for letter, value in letters.items() if BY_LETTER[letter].is_switch or not value
        })
        known |= {case.terms[name].symbol: Rational(value) for name, value in terms.items() if name in case.terms}
        return cls(implementation, case.values, known=known)

    def written_out(self, name: str, kept: Collection[str] = (), **values: Expr | int) -> Expr:
        """Return a term over the letters and the terms ``kept``, with more ``values``, as a sum of groups."""
        forms = self.letters | {symbol(letter): Integer(0) + value for letter, value in values.items()}
        for term in self.terms.closure([name], kept):
            if term.name not in kept and term.symbol not in forms and term.symbol not in KEPT:
                forms[term.symbol] = self.decided(term.expression.xreplace(forms).doit())
        return grouped(forms[self.terms[name].symbol])

    def _of_numbers(self, node: Expr) -> Expr:
        if node.free_symbols - self.known.keys():
            return node
        if isinstance(node, Iverson):
            return number(node, self.known)
        if isinstance(node, CeilDiv | FloorDiv):
            over, under = node.args
            return over / under if number(over / under, self.known) == number(node, self.known) else node
        value = number(node, self.known)
        return next(part for part in node.args if number(part, self.known) == value)

    def decided(self, expression: Expr) -> Expr:
        """Return an expression with all conditions, maxima, minima and whole quotients decided by the numbers."""
        return expression.replace(
            lambda node: isinstance(node, Iverson | Max | Min | CeilDiv | FloorDiv), self._of_numbers
        )


def shown_forms(case: Numbered) -> dict[str, Expr]:
    """Return the terms that make up a rank's total, over letters and each other; none is 0 or only another name."""
    of_tables = lines()
    every = {
        name for name, term in case.terms.terms.items()
        if term.owner not in _OTHERS and name not in of_tables and case.known.get(term.symbol)
        and not name.endswith(_LAID_OUT)
    }
    first = {name: case.written_out(name, every - {name}) for name in every}
    names = {name for name, form in first.items() if not isinstance(form, Symbol) and not form.is_Number}
    forms = {name: _without_zeros(case, case.written_out(name, names - {name})) for name in names}
    used, pending = {"stage.total"}, ["stage.total"]
    while pending:
        parts = forms[pending.pop()].free_symbols & case.terms.by_symbol.keys()
        new = {case.terms.by_symbol[part].name for part in parts} & names - used
        used |= new
        pending += new
    return {name: forms[name] for name in case.terms.terms if name in used}


def _without_zeros(case: Numbered, form: Expr) -> Expr:
    """Return a form without terms that are 0 in the configuration."""
    own = case.terms.by_symbol
    zeros = {part: Integer(0) for part in form.free_symbols if part in own and case.known.get(part) == 0}
    return form.xreplace(zeros) if zeros else form
