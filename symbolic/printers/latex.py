"""LaTeX for the appendix: letters as in the papers, terms as P (elements), M (bytes) or T (seconds) with indices."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from copy import copy
from math import inf

from sympy import Add, Expr, Integer, Mul, Piecewise, Rational, Symbol, true
from sympy.logic.boolalg import Boolean
from sympy.printing.latex import LatexPrinter as SympyLatexPrinter

from ..parameters import BY_LETTER
from ..terms import Term
from .narrow import LINE, narrow, width
from .order import (
    cases_in_words,
    in_reading_order,
    is_switch,
    joined,
    needs_brackets,
    numbers_last,
    over_and_under,
    power_of_ten,
    quotient,
    signed,
)

_SPACE = r"\,"
#: Between numbers, which would be read as one.
_DOT = r" \cdot "
#: Letters of terms by their unit; kinds of terms that the letter says already need no index.
_LETTER_OF_UNIT = {
    "elements": "P", "bytes": "M", "micro-batches": "n", "s": "T", "FLOP": "F", "bytes/s": "W", "kernels": "n",
    "passes": "n", "steps": "n", "tokens": "n", "tokens/s": "R", "share": r"\eta", "J": "E", "currency": "C",
}
_SAID_BY_LETTER = ("parameters", "in flight")
#: The pipeline rank that the first part of a term's name stands for.
_RANKS = {"stage": "r", "first": "0", "last": "p-1"}
#: A sum with this many summands inside a product may be broken over lines.
_LONG_SUM = 3
#: A formula with this many visible characters fills a line; what is left out of the count is not seen.
_WIDE = 60
_UNSEEN = re.compile(r"\\[a-zA-Z]+|[{}_^\\,\s]")


class LatexPrinter(SympyLatexPrinter):  # type: ignore[misc]
    """Prints expressions over the parameters and the given terms, with ``times`` between factors.

    ``published`` is the first part of the names of terms that are written with a hat. A symbol of ``same`` is printed
    as the one that it stands for.
    """

    times = _SPACE
    _beside = False

    def __init__(
        self, terms: Iterable[Term] = (), published: str = "", same: Mapping[Symbol, Symbol] | None = None,
    ) -> None:
        super().__init__({"order": "none", "fold_short_frac": False, "mul_symbol": self.times})
        self._units = {term.symbol: term.unit for term in terms}
        self._published = published
        self._same = same or {}

    def doprint(self, expr: Expr) -> str:
        """Print one expression, without math delimiters."""
        return str(self._print(in_reading_order(expr)))

    def pieces(self, expr: Expr, room: float = LINE) -> list[str]:
        """Print an expression cut where a line may break: before the summands of its long sums, and within ``room``.

        Cases stand beside each other, as one line may end behind each of them.
        """
        printer = copy(self)
        printer._beside = True
        return [part for piece in printer._summands(in_reading_order(expr), cut=True) for part in narrow(piece, room)]

    def _summands(self, expr: Expr, cut: bool = False, longest: float = _LONG_SUM) -> list[str]:
        pieces: list[str] = []
        for summand in Add.make_args(expr):
            negative, size = signed(summand)
            text = self._factor(size) if negative else str(self._print(size))
            first, *more = self._cut(size, text, longest) if cut else [text]
            sign = "- " if negative else "+ "
            pieces += [f"{{}} {sign}{first}" if pieces else f"-{first}" if negative else first, *more]
        return pieces

    def _cut(self, expr: Expr, text: str, longest: float) -> list[str]:
        """Cut ``text`` before the summands of the last factor in brackets: of ``longest`` or more, or if it is wide."""
        *before, last = Mul.make_args(expr)
        short = len(last.args) < longest and len(_UNSEEN.sub("", text)) < _WIDE
        if not isinstance(last, Add) or short:
            return [text]
        if not over_and_under(joined(before))[0] and text.startswith(r"\frac{") and not text.startswith(r"\frac{1}"):
            return [text]  # the sum is the numerator
        inner = self._summands(last, cut=True, longest=inf)
        outer = self._factor(before[0]) if len(before) == 1 else self._print(joined(before)) if before else ""
        inner[0] = rf"{outer}{self.times if before else ''}\Bigl({inner[0]}"
        inner[-1] += r"\Bigr)"
        return inner

    def _print_Add(self, expr: Add, order: str | None = None) -> str:
        return " ".join(piece.removeprefix("{} ") for piece in self._summands(expr))

    def _print_Mul(self, expr: Mul) -> str:
        """Print one fraction of plain factors; switches, sums, brackets and functions beside it, not inside it."""
        negative, size = signed(expr)
        if negative:
            return f"-{self._factor(size)}"
        numbers = [factor for factor in Mul.make_args(size) if factor.is_Number]
        if len(numbers) > 1:
            rest = [factor for factor in size.args if not factor.is_Number]
            text = _DOT.join(self._print(number) for number in numbers)
            return text + (self.times + self._factor(joined(rest)) if rest else "")
        over, under = over_and_under(size)
        plain = [factor for factor in over if is_plain(factor)]
        beside = [factor for factor in over if not is_plain(factor)]
        if not under:
            text = self._product(over)
        elif plain or any(r"\frac" in self._print(factor) for factor in beside) or width(self._product(beside)) > LINE:
            fraction = rf"\frac{{{self._product(plain)}}}{{{self._product(under)}}}"
            text = fraction + "".join(self.times + self._factor(factor) for factor in beside)
        else:
            text = rf"\frac{{{self._product(beside)}}}{{{self._product(under)}}}"
        return text

    def _product(self, factors: list[Expr]) -> str:
        if len(factors) == 1:
            return str(self._print(factors[0]))
        text = "".join((_DOT if factor.is_Number else self.times) + self._factor(factor) for factor in factors)
        return text.removeprefix(_DOT).removeprefix(self.times) or "1"

    def _factor(self, factor: Expr) -> str:
        text = str(self._print(factor))
        return _enclosed("(", text, ")") if needs_brackets(factor) else text

    def _print_Integer(self, expr: Integer) -> str:
        lead, zeros = power_of_ten(abs(int(expr)))
        text = f"10^{{{zeros}}}" if zeros else str(lead)
        return ("-" if expr < 0 else "") + (f"{lead}{_DOT}{text}" if zeros and lead != 1 else text)

    def _print_Symbol(self, expr: Symbol, style: str = "plain") -> str:
        expr = self._same.get(expr, expr)
        name = str(expr.name)
        if name in BY_LETTER:
            return BY_LETTER[name].latex or name
        if len(name) == 1:
            return name
        return term_latex(name, self._units.get(expr, "bytes"), self._published)

    def _print_Iverson(self, expr: Expr, exp: str | None = None) -> str:
        return _power(_enclosed("[", str(self._print(expr.args[0])), "]"), exp)

    def _print_Piecewise(self, expr: Piecewise) -> str:
        between = r"\ " if self._beside else " & "
        rows = [
            rf"{self._print(value)}{between}\text{{{words.lstrip()}}}"
            + ("" if condition == true else self._print(condition))
            for value, words, condition in cases_in_words(expr)
        ]
        if self._beside:
            return _enclosed(r"\lbrace ", "; ".join(rows), r" \rbrace")
        return r"\begin{cases} " + r" \\ ".join(rows) + r" \end{cases}"

    def _print_CeilDiv(self, expr: Expr, exp: str | None = None) -> str:
        return _power(rf"\left\lceil {self._fraction(expr)} \right\rceil", exp)

    def _print_FloorDiv(self, expr: Expr, exp: str | None = None) -> str:
        return _power(rf"\left\lfloor {self._fraction(expr)} \right\rfloor", exp)

    def _fraction(self, division: Expr) -> str:
        over, under = quotient(*division.args)
        numerator, denominator = self._product(list(Mul.make_args(over))), self._print(under)
        if width(numerator) > LINE:  # a line may break beside a bar, but not above it
            return rf"\frac{{1}}{{{denominator}}}{self.times}{self._factor(over)}"
        return rf"\frac{{{numerator}}}{{{denominator}}}"

    def _print_LeastCommonMultiple(self, expr: Expr, exp: str | None = None) -> str:
        return self._function(r"\operatorname{lcm}", expr.args, exp)

    def _print_Max(self, expr: Expr, exp: str | None = None) -> str:
        return self._function(r"\max", numbers_last(expr.args), exp)

    def _print_Min(self, expr: Expr, exp: str | None = None) -> str:
        return self._function(r"\min", numbers_last(expr.args), exp)

    def _function(self, name: str, arguments: Iterable[Expr], exp: str | None) -> str:
        return _power(name, exp) + _enclosed("(", ", ".join(self._print(part) for part in arguments), ")")

    def _print_Divides(self, expr: Boolean) -> str:
        divisor, dividend = (self._print(part) for part in expr.args)
        return rf"{divisor} \mid {dividend}"

    def _print_And(self, expr: Boolean) -> str:
        return self._connected(expr, r"\ \text{and}\ ")

    def _print_Or(self, expr: Boolean) -> str:
        return self._connected(expr, r"\ \text{or}\ ")

    def _print_Not(self, expr: Boolean) -> str:
        return rf"\text{{not}}\ ({self._print(expr.args[0])})"

    def _connected(self, expr: Boolean, word: str) -> str:
        """Join conditions in SymPy's order of printing; connected ones are put in brackets."""
        parts = sorted(expr.args, key=lambda part: part.sort_key())
        texts = [(part, str(self._print(part))) for part in parts]
        return word.join(f"({text})" if part.func.__name__ in ("And", "Or") else text for part, text in texts)


class NumberPrinter(LatexPrinter):
    """Prints a formula with the values of its symbols in their places."""

    times = _DOT

    def __init__(self, values: Mapping[Symbol, Rational]) -> None:
        super().__init__()
        self._values = values

    def _print_Symbol(self, expr: Symbol, style: str = "plain") -> str:
        return str(self._print(self._values[expr]))


def term_latex(name: str, unit: str, published: str = "") -> str:
    """Print a term's symbol: what it counts, the kind above, what it belongs to and the pipeline rank below."""
    letter, above, ranks, words = term_parts(name, unit)
    if published and name.startswith(f"{published}."):
        return rf"\hat{{{letter}}}_{{\text{{{name.replace('_', ' ').rpartition('.')[2]}}}}}"
    below = ", ".join([*ranks, *(rf"\text{{{word}}}" for word in words)])
    return letter + (rf"^{{\text{{{above}}}}}" if above else "") + rf"_{{{below}}}"


def term_parts(name: str, unit: str) -> tuple[str, str, list[str], list[str]]:
    """Return the letter of a term, the kind that stands above it, and the pipeline ranks and words that stand below."""
    *owner, kind = name.replace("_", " ").split(".")
    letter = _LETTER_OF_UNIT.get(unit, "M")
    if not owner or owner == ["local"]:
        return r"\ell" if owner else letter, "", [], [kind]
    ranks = [_RANKS[part] for part in owner if part in _RANKS]
    words = [part for part in owner if part not in _RANKS]
    return letter, "" if kind in _SAID_BY_LETTER else kind, ranks, words


def is_plain(factor: Expr) -> bool:
    """Tell whether a factor is a number, a size or a power of them: what may stand over a bar."""
    base = factor.base if factor.is_Pow else factor
    return bool(base.is_Number) or (isinstance(base, Symbol) and not is_switch(base))


def _enclosed(left: str, text: str, right: str) -> str:
    """Put brackets around a text; they grow only around fractions."""
    tall = r"\frac" in text
    return rf"\left{left}{text}\right{right}" if tall else f"{left}{text}{right}"


def _power(text: str, exp: str | None) -> str:
    return text if exp is None else f"{text}^{{{exp}}}"
