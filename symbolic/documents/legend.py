"""The letters of a section of the appendix with their meanings, without those that sections before it explain."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sympy import Expr

from ..parameters import BY_LETTER
from ..printers.latex import LatexPrinter
from .tex import escape


def letters_in(forms: Iterable[Expr]) -> set[str]:
    """Return the letters of parameters in expressions."""
    return {str(part) for form in forms for part in form.free_symbols} & BY_LETTER.keys()


def legend(letters: Collection[str]) -> list[dict[str, str]]:
    """Prepare letters with their meanings, in the order of all parameters."""
    printer = LatexPrinter()
    return [{"letter": printer.doprint(item.symbol), "meaning": escape(item.meaning)}
            for letter, item in BY_LETTER.items() if letter in letters]
