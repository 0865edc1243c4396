"""Data for the formulas of a plan: one Python function for each term, and a section of the supplement."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sympy import Rational, Symbol

from ..planning import plan_terms
from ..planning.letters import QUANTITIES, Quantity
from ..planning.optimal import FITS
from ..printers.latex import LatexPrinter
from ..printers.python import RealPrinter
from ..terms import Term
from .forms import published_form
from .tex import cite, code, escape, lines

_BY_SYMBOL: dict[Symbol, Quantity] = {item.symbol: item for item in QUANTITIES}


#: Letters of terms by unit.
_LETTER_OF_UNIT = {
    "GPUs": "N", "tokens/s": "X", "s": "T", "share": r"\eta", "days": "T", "interruptions": "n", "GPU-hours": "H",
    "currency": "C", "kWh": "E", "kg": "M", "tokens/J": r"\Gamma", "FLOP": "F", "nats": "L", "1": "G",
    "elements": r"\Psi", "tokens": "T",
}


class _Printer(LatexPrinter):
    """Prints quantities of a plan by their letters, and its terms by a letter for their unit."""

    def __init__(self, terms: Collection[Term]) -> None:
        super().__init__(terms)
        self._terms = {
            term.symbol: rf"{_LETTER_OF_UNIT[term.unit]}_{{\text{{{term.kind.replace('_', ' ')}}}}}" for term in terms
        }

    def _print_Symbol(self, expr: Symbol, style: str = "plain") -> str:
        return _BY_SYMBOL[expr].latex if expr in _BY_SYMBOL else self._terms[expr]


def functions() -> dict[str, Any]:
    """Data of ``plan.py.jinja``: arguments and source of every term."""
    terms = plan_terms().terms.values()
    names = {**{item.symbol: item.name for item in QUANTITIES}, **{term.symbol: term.kind for term in terms}}
    return {
        "functions": [_function(term, names) for term in terms],
        "fits": [{"source": fit.source, "where": fit.where,
                  "values": {names[letter]: _decimal(value) for letter, value in fit.values.items()}}
                 for fit in FITS],
    }


def _function(term: Term, names: dict[Symbol, str]) -> dict[str, str]:
    return {
        "name": term.kind, "arguments": ", ".join(["*", *sorted(f"{names[part]}: float" for part in term.symbols)]),
        "meaning": f"{term.meaning[0].upper()}{term.meaning[1:]}", "unit": term.unit,
        "source": RealPrinter(names).doprint(term.expression),
    }


def _decimal(value: Rational) -> str:
    """Write a decimal fraction as it was printed."""
    return str(float(value))


def planned() -> dict[str, Any]:
    """Data of the section: quantities, terms, and fitted losses."""
    terms = plan_terms().terms.values()
    printer = _Printer(terms)
    return {
        "quantities": [
            {"letter": f"${item.latex}$", "unit": escape(item.unit), "meaning": escape(item.meaning)}
            for item in QUANTITIES
        ],
        "plan_terms": [
            {"name": code(term.name), "lines": lines(printer, published_form(term)), "meaning": escape(term.meaning),
             "unit": escape(term.unit)}
            for term in terms
        ],
        "plan_fits": [
            {"source": cite(fit.source), "where": escape(fit.where),
             "values": "$" + r",\ ".join(f"{_BY_SYMBOL[letter].latex} = {_decimal(value)}"
                                          for letter, value in fit.values.items()) + "$"}
            for fit in FITS
        ],
    }
