"""Data for the appendix's worked example: the formulas of the first page with the numbers of one layout in them."""

from __future__ import annotations

from typing import Any

from sympy import Expr, Integer, Rational, Symbol

from ..printers.latex import LatexPrinter, NumberPrinter
from ..terms import Term
from .dense import DENSE, LAYER, PARAMETERS, at, formula, left_out
from .tex import broken, digits, escape, fixed_point, gib
from .worked import EXAMPLE, STAGED, Layout, by_rank

LAYOUT = STAGED[1]


def known(form: Expr, layout: Layout) -> dict[Symbol, Rational]:
    """Return the value of every symbol of a form; terms of the first page have that of their formula."""
    forms = formula()
    of_page = {DENSE.terms[name].symbol: at(layout, forms[name]) for name in (LAYER, PARAMETERS)}
    return {part: of_page.get(part, at(layout, part)) for part in form.free_symbols}


def numbers() -> dict[str, Any]:
    """Prepare a line for every formula, what it leaves out, and their sum, which is the ledger's."""
    printer = LatexPrinter(DENSE.terms.terms.values())
    forms = formula()
    lines = [_line(printer, DENSE.terms[name], forms[name]) for name in (LAYER, PARAMETERS, "first.total")]
    missing = [
        {"words": escape(words), **_numbers(form)} for words, form in left_out().values()
    ]
    ranks = by_rank(LAYOUT)
    return {
        "title": escape(EXAMPLE.title), "lines": lines, "left_out": missing,
        "total": digits(ranks[0]["first.total"]), "gib": gib(ranks[0]["first.total"]),
        "ranks": [
            {"rank": str(number), "in_flight": digits(rank["in_flight"]),
             "sizes": [gib(rank[f"stage.{kind}"]) for kind in KINDS], "share": _share(rank["stage.total"])}
            for number, rank in enumerate(ranks)
        ],
        "kinds": [kind.replace("_", " ") for kind in KINDS],
    }


#: The columns of the table of ranks.
KINDS = ("weight", "gradient", "optimizer", "activation", "buffer", "total")


def _share(total: Rational) -> str:
    return fixed_point(100 * total / Integer(LAYOUT.values()["M"]), 1)


def _line(printer: LatexPrinter, term: Term, form: Expr) -> dict[str, str]:
    start = f"{printer.doprint(term.symbol)} ="
    return {"form": broken(start, printer.pieces(form)), "unit": term.unit, **_numbers(form)}


def _numbers(form: Expr) -> dict[str, str]:
    values = known(form, LAYOUT)
    result = Rational(form.xreplace(values))
    return {"numbers": broken("=", NumberPrinter(values).pieces(form)), "value": digits(result), "gib": gib(result)}
