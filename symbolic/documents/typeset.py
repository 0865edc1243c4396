"""Formulas for the page: the letter, form, used terms and sources of every term of any one rank, in MathML."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from sympy import Expr

from ..accounts import build
from ..accounts.peak import CANDIDATES, OF_EXPERTS
from ..implementations import Implementation
from ..parallel.legality import fixed_values
from ..printers.mathml import MathmlPrinter
from ..simplify import derivation
from ..terms import TermSet
from ..timing import build_times, is_timed

#: Owners of terms that repeat those of any rank.
_COPIES = (*CANDIDATES, *OF_EXPERTS, "model", "whole", "alone")


def typeset(implementation: Implementation) -> dict[str, dict[str, Any]]:
    """Return symbol, form, used terms and sources of every term of any one rank, by name.

    A form is cut before its summands. Forms of memory are simplified, those of time as written. A term of several
    ranks has its symbol alone.
    """
    memory, fixed = build(implementation), fixed_values(implementation)
    terms = dict(_records(memory, lambda name: derivation(memory, name, fixed)[-1].expression))
    if is_timed(implementation):
        times = build_times(implementation)
        terms |= {name: record for name, record in _records(times, lambda name: times[name].expression)
                  if name not in memory}
    return terms


def _records(terms: TermSet, form_of: Callable[[str], Expr]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the terms of any one rank with their data."""
    printer = MathmlPrinter(terms.terms.values())
    for name, term in terms.terms.items():
        if term.owner in _COPIES:
            continue
        form = form_of(name)
        uses = [terms.by_symbol[symbol] for symbol in form.free_symbols & terms.by_symbol.keys()]
        of_one_rank = not any(other.owner in _COPIES for other in uses)  # else as the peak over all ranks
        yield name, {
            "symbol": printer.doprint(term.symbol), "form": printer.pieces(form) if of_one_rank else [],
            "uses": sorted(other.name for other in uses) if of_one_rank else [],
            "sources": sorted({row.tensor.source for row in term.rows}),
        }
