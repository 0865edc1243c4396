"""A case of the ledger: letters with a value and conditions that hold, and the terms written out under them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from sympy import Add, Eq, Expr, Integer, Ne, Symbol, factor_terms
from sympy.logic.boolalg import Boolean

from ..accounts import build
from ..algebra.assumed import KEPT, Assumed, assumed
from ..algebra.assumptions import Assumptions
from ..implementations import Implementation
from ..parallel.legality import fixed_values, rules_for
from ..parameters import BY_LETTER, symbol
from ..printers.order import over_and_under
from ..recompute import REGIONS
from ..simplify import name_products
from ..terms import TermSet
from ..timing import build_times

#: Switches of models and of what few people set, which a case has off unless it says so.
OFF = ("bias", "lbias", "qkn", "tied", "drop", "adrop", "fcopy", "eemb", "eloss", *(item.switch for item in REGIONS))


@dataclass(frozen=True, eq=False)
class Case:
    """An implementation, ``values`` of letters beside switches that are off, and ``conditions`` that hold.

    No two matrices of a layer have the same shape.
    """

    implementation: Implementation
    values: Mapping[str, int] = field(default_factory=dict)
    conditions: tuple[Boolean, ...] = ()
    timed: bool = False

    @cached_property
    def terms(self) -> TermSet:
        """The terms of the implementation: of memory, or of time and memory."""
        return (build_times if self.timed else build)(self.implementation)

    @cached_property
    def letters(self) -> dict[Symbol, Expr]:
        """The letters that have a value in the case."""
        known = {**dict.fromkeys(OFF, 0), **fixed_values(self.implementation), **self.values}
        return {symbol(letter): Integer(value) for letter, value in known.items() if symbol(letter) not in KEPT}

    def written_out(self, name: str, kept: Collection[str] = (), **values: Expr | int) -> Expr:
        """Return a term over the letters and the terms ``kept``, with more ``values``, as a sum of groups."""
        return grouped(self._formulas(kept, values).expanded(name))

    def decided(self, expression: Expr) -> Expr:
        """Return an expression with the conditions, maxima and minima decided that the case decides."""
        return self._formulas((), {}).of(expression, expand=False)

    def _formulas(self, kept: Collection[str], values: Mapping[str, Expr | int]) -> Assumed:
        assumptions = self._assumptions if not values else self._assuming(values)
        return Assumed(self.terms, assumptions, {*KEPT, *(self.terms[name].symbol for name in kept)})

    @cached_property
    def _assumptions(self) -> Assumptions:
        return self._assuming({})

    def _assuming(self, values: Mapping[str, Expr | int]) -> Assumptions:
        known = self.letters | {symbol(letter): Integer(0) + value for letter, value in values.items()}
        rules = [rule.condition for rule in rules_for(self.implementation)]
        return assumed(self.terms, known, (*self.conditions, *self._different), rules).assumptions

    @cached_property
    def _different(self) -> tuple[Boolean, ...]:
        """No two matrices of a layer have the same shape, wherever a term asks for that."""
        asked = {part for term in self.terms.terms.values() for part in term.expression.atoms(Eq)}
        return tuple(Ne(*part.args) for part in sorted(asked, key=str)
                     if not part.free_symbols - _SHAPES and part.free_symbols & _WIDTHS)


_SHAPES = frozenset(BY_LETTER[letter].symbol for letter in "hAKadkfvutg")
_WIDTHS = frozenset(BY_LETTER[letter].symbol for letter in "hAKfv")


def grouped(expression: Expr) -> Expr:
    """Return a sum of groups, one for every denominator, each with what its summands share in front."""
    groups: dict[tuple[Expr, ...], list[Expr]] = {}
    for summand in Add.make_args(name_products(expression.expand())):
        under = [part for part in over_and_under(summand)[1] if not part.is_Number]
        groups.setdefault(tuple(sorted(under, key=str)), []).append(summand)
    return Add(*(factor_terms(Add(*summands)) for summands in groups.values()))
