"""Data for the appendix's table of moments: of which the largest, with what is always kept, is a rank's peak."""

from __future__ import annotations

from typing import Any

from sympy import Expr, Gt

from ..ledger import SITES
from ..parameters import symbol
from ..printers.latex import LatexPrinter
from .case import Case
from .dense import DENSE, LAYER, at
from .tex import broken, code, escape, gib
from .worked import STAGED

_RANKS = ("first", "last")
#: More than one micro-batch of one sequence.
CASE = Case(DENSE.implementation, {**DENSE.values, "b": 1}, (*DENSE.conditions, Gt(symbol("m"), 1)))
#: Letters that fit into a column of forms.
_COLUMN = 34


def moments() -> dict[str, Any]:
    """Prepare what is always kept, and a row for every moment."""
    printer = LatexPrinter(CASE.terms.terms.values())
    return {
        "layout": escape(STAGED[1].title),
        "static": printer.doprint(DENSE.terms["stage.total"].expression),
        "rows": [
            {"name": code(name), "meaning": escape(site.meaning), "held": site.held.value,
             "forms": [_shown(printer, form, _rest(rank)) for rank, form in forms(name).items()],
             "sizes": ["" if form == _rest(rank) else gib(at(STAGED[1], form)) for rank, form in forms(name).items()]}
            for name, site in SITES.items() if f"first.{name}.all" in CASE.terms
        ],
    }


def forms(name: str) -> dict[str, Expr]:
    """Bytes at a moment besides what is always kept, on the first and the last rank."""
    return {rank: CASE.written_out(f"{rank}.{name}.all", (LAYER, *_KEPT)) for rank in _RANKS}


_KEPT = tuple(f"{rank}.{name}" for rank in _RANKS for name in ("shard_elements", "buffer_elements"))


def _rest(rank: str) -> Expr:
    """Return bytes of a rank at a moment that it does not have."""
    return CASE.written_out(f"{rank}.inner_activations", (LAYER,))


def _shown(printer: LatexPrinter, form: Expr, rest: Expr) -> str:
    return "--" if form == rest else broken("", printer.pieces(form, _COLUMN))
