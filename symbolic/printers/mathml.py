"""MathML for pages: letters and brackets as in the appendix, long sums cut where a line may break."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from sympy import Add, Expr, Integer, Mul, Piecewise, Pow, Rational, Symbol, true
from sympy.logic.boolalg import Boolean
from sympy.printing.printer import Printer

from ..parameters import BY_LETTER
from ..terms import Term
from .latex import is_plain, term_parts
from .order import (
    cases_in_words,
    in_reading_order,
    needs_brackets,
    numbers_last,
    over_and_under,
    power_of_ten,
    quotient,
    signed,
)

_SIGNS = {"==": "=", "<=": "≤", ">=": "≥", "!=": "≠", "<": "&lt;", ">": "&gt;"}
_THIN = '<mspace width="0.17em"/>'
#: Between numbers, which would be read as one.
_DOT = "<mo>⋅</mo>"
_MINUS = "<mo>−</mo>"
#: Between summands, with space on both sides also where a line begins.
_PLUS, _LESS = '<mo form="infix">+</mo>', '<mo form="infix">−</mo>'
#: A letter of a parameter as it is written in LaTeX: perhaps Greek, perhaps with an index.
_LETTER = re.compile(r"(?P<greek>\\)?(?P<name>\w+?)(_\{(?P<index>.+)\})?")
#: Where LaTeX and HTML mean another form of a letter by the same name.
_ENTITIES = {"varphi": "phi"}


class MathmlPrinter(Printer):  # type: ignore[misc]
    """Prints expressions over the parameters and the given terms, each as the inside of a ``math`` element."""

    def __init__(self, terms: Iterable[Term] = ()) -> None:
        super().__init__()
        self._units = {term.symbol: term.unit for term in terms}

    def doprint(self, expr: Expr) -> str:
        """Print one expression."""
        return str(self._print(in_reading_order(expr)))

    def pieces(self, expr: Expr) -> list[str]:
        """Print an expression cut before its summands."""
        units = ((symbol, self._units[symbol]) for symbol in expr.free_symbols & self._units.keys())
        return [*_pieces(expr, frozenset(units))]

    def emptyPrinter(self, expr: Expr) -> str:
        """Refuse what has no form here."""
        raise ValueError(f"no MathML for {expr.func.__name__}")

    def _summands(self, expr: Expr) -> list[str]:
        pieces: list[str] = []
        for summand in Add.make_args(expr):
            negative, size = signed(summand)
            between, first = (_LESS, _MINUS) if negative else (_PLUS, "")
            sign = between if pieces else first
            pieces.append(sign + (self._factor(size) if negative else self._print(size)))
        return pieces

    def _print_Add(self, expr: Add) -> str:
        return f"<mrow>{''.join(self._summands(expr))}</mrow>"

    def _print_Mul(self, expr: Mul) -> str:
        """Print one fraction of plain factors; switches, sums, brackets and functions beside it, not inside it."""
        negative, size = signed(expr)
        if negative:
            return f"<mrow>{_MINUS}{self._factor(size)}</mrow>"
        return f"<mrow>{self._ratio(*over_and_under(size))}</mrow>"

    def _ratio(self, over: list[Expr], under: list[Expr]) -> str:
        if not under:
            return self._product(over)
        plain = [factor for factor in over if is_plain(factor)]
        beside = [factor for factor in over if not is_plain(factor)] if plain else []
        text = _fraction(self._product(plain or over), self._product(under))
        return _THIN.join([text, *map(self._factor, beside)])

    def _product(self, factors: list[Expr]) -> str:
        if len(factors) == 1:
            return str(self._print(factors[0]))
        text = "".join((_DOT if factor.is_Number else _THIN) + self._factor(factor) for factor in factors)
        return f"<mrow>{text.removeprefix(_DOT).removeprefix(_THIN)}</mrow>" if factors else "<mn>1</mn>"

    def _factor(self, factor: Expr) -> str:
        text = str(self._print(factor))
        return _enclosed("(", text, ")") if needs_brackets(factor) else text

    def _print_Pow(self, expr: Pow) -> str:
        if expr.exp.is_Integer and expr.exp.is_negative:
            return self._ratio(*over_and_under(expr))
        base = self._print(expr.base)
        if not expr.base.is_Symbol:
            base = _enclosed("(", base, ")")
        return f"<msup>{base}{self._print(expr.exp)}</msup>"

    def _print_Integer(self, expr: Integer) -> str:
        lead, zeros = power_of_ten(abs(int(expr)))
        text = f"<mn>{lead}</mn>"
        if zeros:
            power = f"<msup><mn>10</mn><mn>{zeros}</mn></msup>"
            text = power if lead == 1 else f"<mrow>{text}{_DOT}{power}</mrow>"
        return text if expr >= 0 else f"<mrow>{_MINUS}{text}</mrow>"

    def _print_Rational(self, expr: Rational) -> str:
        negative, size = signed(expr)
        text = _fraction(self._print(Integer(size.p)), self._print(Integer(size.q)))
        return f"<mrow>{_MINUS}{text}</mrow>" if negative else text

    def _print_Symbol(self, expr: Symbol) -> str:
        name = str(expr.name)
        if name in BY_LETTER:
            return _letter(BY_LETTER[name].latex or name)
        letter, above, ranks, words = term_parts(name, self._units.get(expr, "bytes"))
        below = "<mo>,</mo>".join([*map(_index, ranks), *(f"<mtext>{word}</mtext>" for word in words)])
        base, low = _letter(letter), f"<mrow>{below}</mrow>"
        return f"<msubsup>{base}{low}<mtext>{above}</mtext></msubsup>" if above else f"<msub>{base}{low}</msub>"

    def _print_Iverson(self, expr: Expr) -> str:
        return _enclosed("[", self._print(expr.args[0]), "]")

    def _print_Piecewise(self, expr: Piecewise) -> str:
        rows = (
            f"<mtr><mtd>{self._print(value)}</mtd><mtd><mtext>{words.lstrip()}</mtext>"
            f"{'' if condition == true else self._print(condition)}</mtd></mtr>"
            for value, words, condition in cases_in_words(expr)
        )
        return f"<mrow><mo>{{</mo><mtable columnalign=\"left\">{''.join(rows)}</mtable></mrow>"

    def _print_CeilDiv(self, expr: Expr) -> str:
        return _enclosed("⌈", self._divided(expr), "⌉")

    def _print_FloorDiv(self, expr: Expr) -> str:
        return _enclosed("⌊", self._divided(expr), "⌋")

    def _divided(self, division: Expr) -> str:
        over, under = quotient(*division.args)
        return _fraction(self._product(list(Mul.make_args(over))), self._print(under))

    def _print_LeastCommonMultiple(self, expr: Expr) -> str:
        return self._function("lcm", expr.args)

    def _print_Max(self, expr: Expr) -> str:
        return self._function("max", numbers_last(expr.args))

    def _print_Min(self, expr: Expr) -> str:
        return self._function("min", numbers_last(expr.args))

    def _function(self, name: str, arguments: Iterable[Expr]) -> str:
        inside = _enclosed("(", "<mo>,</mo>".join(map(self._print, arguments)), ")")
        return f"<mrow><mi>{name}</mi>{inside}</mrow>"

    def _print_Relational(self, expr: Boolean) -> str:
        return f"{self._print(expr.lhs)}<mo>{_SIGNS[expr.rel_op]}</mo>{self._print(expr.rhs)}"

    def _print_Divides(self, expr: Boolean) -> str:
        return f"{self._factor(expr.args[0])}<mo>∣</mo>{self._factor(expr.args[1])}"

    def _print_And(self, expr: Boolean) -> str:
        return self._connected(expr, "and")

    def _print_Or(self, expr: Boolean) -> str:
        return self._connected(expr, "or")

    def _print_Not(self, expr: Boolean) -> str:
        return "<mtext>not </mtext>" + _enclosed("(", self._print(expr.args[0]), ")")

    def _connected(self, expr: Boolean, word: str) -> str:
        """Join conditions in SymPy's order of printing; connected ones are put in brackets."""
        texts = [
            _enclosed("(", self._print(part), ")") if part.func.__name__ in ("And", "Or") else self._print(part)
            for part in sorted(expr.args, key=lambda part: part.sort_key())
        ]
        return f"<mtext> {word} </mtext>".join(texts)


@cache
def _pieces(expr: Expr, units: frozenset[tuple[Symbol, str]]) -> tuple[str, ...]:
    """Print an expression over terms with these units once: sets of terms share most of their formulas."""
    printer = MathmlPrinter()
    printer._units = dict(units)
    return tuple(printer._summands(in_reading_order(expr)))


def _letter(latex: str) -> str:
    """Return a letter of a parameter, from its LaTeX."""
    parsed = _LETTER.fullmatch(latex)
    if parsed is None:
        raise ValueError(f"no MathML for {latex}")
    name = parsed["name"]
    base = f"<mi>&{_ENTITIES.get(name, name)};</mi>" if parsed["greek"] else f"<mi>{name}</mi>"
    return f"<msub>{base}{_index(parsed['index'])}</msub>" if parsed["index"] else base


def _index(text: str) -> str:
    """Return an index such as ``e``, ``0`` or ``p-1``."""
    written = [
        f"<mn>{part}</mn>" if part.isdigit() else _MINUS if part == "-" else f"<mi>{part}</mi>"
        for part in re.findall(r"\d+|\w|-", text)
    ]
    return written[0] if len(written) == 1 else f"<mrow>{''.join(written)}</mrow>"


def _fraction(over: str, under: str) -> str:
    return f"<mfrac>{over}{under}</mfrac>"


def _enclosed(left: str, text: str, right: str) -> str:
    return f"<mrow><mo>{left}</mo>{text}<mo>{right}</mo></mrow>"
