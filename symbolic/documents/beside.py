"""Data for the appendix's table of published formulas beside the counted ledger: differences, and their reasons."""

from __future__ import annotations

from typing import Any

from ..printers.latex import LatexPrinter
from ..published import Counterpart, PublishedSet, all_published
from ..published.beside import ledger_of
from ..terms import operations
from . import dense, display, variants
from .case import grouped
from .comparison import assumed
from .legend import legend, letters_in
from .tex import broken, cite, code, escape

#: Terms of one set at most; the supplement and the documentation have all.
EACH = 2
#: Differences that need more operations are not read on a line.
_READABLE = 24
#: Letters that fit into the column of differences.
_COLUMN = 42


def beside() -> dict[str, Any]:
    """Prepare some terms of every set, those first that differ from the ledger."""
    return {
        "sets": [
            {"title": escape(item.title), "source": cite(item.source), "all": len(item.correspondence),
             "rows": [row_of(item, pair) for pair in chosen(item)]}
            for item in all_published() if chosen(item)
        ],
        "letters": legend(letters()),
    }


def letters() -> set[str]:
    """Return the letters of the differences that no section before has."""
    differences = (pair.difference for item in all_published() for pair in chosen(item))
    used = letters_in(difference for difference in differences if difference is not None)
    return used - dense.letters() - display.letters() - variants.letters()


def chosen(item: PublishedSet) -> list[Counterpart]:
    """Return the first pairs of a set with a difference in few letters, different ones before equal ones."""
    pairs: dict[str, Counterpart] = {}
    for pair in item.correspondence:
        if pair.difference is not None and operations(pair.difference) <= _READABLE:
            pairs.setdefault(pair.term, pair)
    return sorted(pairs.values(), key=lambda pair: pair.difference == 0)[:EACH]


def row_of(item: PublishedSet, pair: Counterpart) -> dict[str, str]:
    """Prepare one pair of terms: its difference in letters, the reason, and what is assumed."""
    assert pair.difference is not None
    ledger = ledger_of(item, pair)
    printer = LatexPrinter((*ledger.terms.values(), *item.terms.terms.values()), published=item.name)
    return {
        "term": code(pair.term.partition(".")[2]), "meaning": escape(pair.meaning),
        "difference": broken("", printer.pieces(grouped(pair.difference), _COLUMN)),
        "unit": escape(item.terms[pair.term].unit), "remark": escape(pair.remark), "assumed": assumed(pair),
    }
