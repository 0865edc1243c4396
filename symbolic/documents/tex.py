"""Pieces of LaTeX: escaped text, names that may break, citations, numbers, formulas over several lines."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from sympy import Basic, Rational

from ..printers.latex import LatexPrinter
from ..printers.narrow import narrow
from .forms import Form

GIB = 2**30

_ESCAPES = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "%": r"\%", "#": r"\#",
    "_": r"\_\allowbreak ", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "²": "$^2$", "³": "$^3$", "×": r"$\times$", "·": r"$\cdot$", "→": r"$\to$", "≤": r"$\le$", "≥": r"$\ge$",
    "\N{EN DASH}": "--",
}
#: Characters that some fonts lack, or that some languages give a meaning.
_OF_FONTS = {
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': r"\symbol{34}", "'": r"\symbol{39}",
    "`": r"\symbol{96}",
}
#: Accents that every font has, by their combining characters.
_ACCENTS = {
    "\N{COMBINING GRAVE ACCENT}": "`", "\N{COMBINING ACUTE ACCENT}": "'", "\N{COMBINING CIRCUMFLEX ACCENT}": "^",
    "\N{COMBINING TILDE}": "~", "\N{COMBINING DIAERESIS}": '"', "\N{COMBINING CARON}": "v",
    "\N{COMBINING CEDILLA}": "c",
}
#: Beyond this code the font has no letters.
_LATIN = 0x180
_NO_VALUE = "--"


def escape(text: str) -> str:
    """Make plain text safe for LaTeX; long names with underscores may break, and the dashes of a flag stay two.

    Raises ValueError for a character that the font does not have.
    """
    parts = ("".join(_ESCAPES.get(character, character) for character in part) for part in text.split("--"))
    escaped = "-{}-".join(parts)
    missing = sorted({character for character in escaped if ord(character) >= _LATIN})
    if missing:
        raise ValueError(f"no letter for {missing} in {text!r}")
    return escaped


def named(text: str) -> str:
    """Set a name or a text that somebody else has made: characters that not every font has are set as their numbers."""
    return "".join(_sign(character) for character in text)


def _sign(character: str) -> str:
    if character in _ESCAPES or character in _OF_FONTS:
        return (_OF_FONTS | _ESCAPES)[character]
    plain, *marks = list(unicodedata.normalize("NFD", character))
    if plain.isascii() and plain.isprintable() and all(mark in _ACCENTS for mark in marks):
        return "".join(rf"\{_ACCENTS[mark]}{{" for mark in marks) + escape(plain) + "}" * len(marks)
    return rf"\textless{{}}U+{ord(character):04X}\textgreater{{}}"


def comment(text: str) -> str:
    """Make a text safe for a comment of one line."""
    return "".join(character if character.isascii() and character.isprintable() else "?" for character in text)


def code(name: str) -> str:
    """Set a name in typewriter letters; it may break after dots, underscores and slashes."""
    text = escape(name).replace(".", r".\allowbreak ").replace("/", r"/\allowbreak ")
    return rf"\texttt{{{text}}}"


def cite(*keys: str) -> str:
    """Cite sources."""
    return rf"\cite{{{','.join(keys)}}}"


def math(expression: Basic, printer: LatexPrinter | None = None) -> str:
    """Set one expression as a formula that does not break."""
    return f"${(printer or LatexPrinter()).doprint(expression)}$"


def digits(number: Rational) -> str:
    """Group the digits of an integer by three; a fraction stays a fraction."""
    if not number.is_Integer:
        return rf"{digits(Rational(number.p))}/{digits(Rational(number.q))}"
    return f"{int(number):,}".replace("-", "$-$").replace(",", r"\,")


def gib(number: Rational, places: int = 3) -> str:
    """Write bytes in GiB, rounded to the nearest decimal."""
    return fixed_point(number / GIB, places)


def fixed_point(number: Rational, places: int) -> str:
    """Write a rational with a fixed number of decimals, halves rounded up, without floating point."""
    scaled = int((abs(number) * 10**places + Rational(1, 2)) // 1)
    whole, rest = divmod(scaled, 10**places)
    sign = "$-$" if number < 0 and scaled else ""
    return f"{sign}{whole}.{rest:0{places}d}" if places else f"{sign}{whole}"


def lines(printer: LatexPrinter, form: Form) -> str:
    """Set a term as ``symbol = as written`` and, where it differs, a second line ``= simplified``."""
    text = broken(f"{printer.doprint(form.term.symbol)} =", printer.pieces(form.written))
    if form.simplified is not None:
        text += broken("=", printer.pieces(form.simplified), inner=True)
    return text


def broken(start: str, pieces: Iterable[str], inner: bool = False) -> str:
    """Set a formula as a paragraph that breaks between ``pieces``; the rest of it hangs."""
    macro = r"\innerform" if inner else r"\form"
    every = (*narrow(start), *pieces) if start else pieces
    return macro + "{" + " ".join(rf"\piece{{{piece}}}" for piece in every) + "}"


def cell(expression: Basic, room: float) -> str:
    """Set one expression in a column that has ``room`` for as many letters."""
    return broken("", LatexPrinter().pieces(expression, room))


def operations(form: Form) -> str:
    """Count operations, before and after simplification."""
    before, after = form.operations
    return rf"${before} \to {after}$" if form.simplified is not None and before != after else str(before)


def or_dash(text: str) -> str:
    """Put a dash where there is nothing to show."""
    return text or _NO_VALUE


def phrases(*parts: str) -> str:
    """Join the parts that are there by semicolons."""
    return "; ".join(part for part in parts if part)
