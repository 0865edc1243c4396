"""Formulas as Unicode text for a terminal, and as one line of plain letters."""

from __future__ import annotations

from collections.abc import Iterable

from sympy import Add, Expr, Mul, Piecewise, Pow, Symbol, true
from sympy.logic.boolalg import Boolean
from sympy.printing.pretty.pretty import PrettyPrinter
from sympy.printing.pretty.pretty_symbology import pretty_use_unicode
from sympy.printing.pretty.stringpict import prettyForm
from sympy.printing.str import StrPrinter

from .letters import PRINTED
from .order import cases_in_words, in_reading_order, needs_brackets, numbers_last, over_and_under, quotient, signed

_SIGNS = {"==": "=", "<=": "≤", ">=": "≥", "!=": "≠"}


class UnicodePrinter(PrettyPrinter):  # type: ignore[misc]
    """Two-dimensional Unicode formulas."""

    def __init__(self, columns: int = 100) -> None:
        super().__init__({"use_unicode": True, "wrap_line": True, "num_columns": columns, "order": "none"})

    def doprint(self, expr: Expr) -> str:
        """Print the formula on several lines, in Unicode whatever SymPy has seen of the terminal."""
        before = pretty_use_unicode(True)
        try:
            return str(super().doprint(in_reading_order(expr)))
        finally:
            pretty_use_unicode(before)

    def _print_Symbol(self, e: Symbol, bold_name: bool = False) -> prettyForm:
        return prettyForm(letter(e))

    def _print_Add(self, expr: Add, order: str | None = None) -> prettyForm:
        parts: list[prettyForm | str] = []
        for summand in expr.args:
            negative, size = signed(summand)
            if parts:
                parts += [" - " if negative else " + ", self._factor(size) if negative else self._print(size)]
            else:
                parts.append(self._print(summand))
        return prettyForm(*prettyForm.next(*parts), binding=prettyForm.ADD)

    def _print_Mul(self, expr: Mul) -> prettyForm:
        negative, size = signed(expr)
        if negative:
            form = self._factor(size)
            return prettyForm(*form.left("- " if form.height() > 1 else "-"), binding=prettyForm.NEG)
        return self._ratio(*over_and_under(size))

    def _ratio(self, over: list[Expr], under: list[Expr]) -> prettyForm:
        return self._product(over) / self._product(under) if under else self._product(over)

    def _product(self, factors: list[Expr]) -> prettyForm:
        """Print factors with dots between them; a single one needs no brackets."""
        if len(factors) < 2:
            return self._print(factors[0]) if factors else prettyForm("1")
        first, *more = map(self._factor, factors)
        dotted = (part for factor in more for part in ("⋅", factor))
        return prettyForm(*prettyForm.next(first, *dotted), binding=prettyForm.MUL)

    def _print_Pow(self, power: Pow) -> prettyForm:
        below = power.exp.is_Integer and power.exp.is_negative
        return self._ratio(*over_and_under(power)) if below else super()._print_Pow(power)

    def _factor(self, factor: Expr) -> prettyForm:
        form = self._print(factor)
        return prettyForm(*form.parens()) if needs_brackets(factor) else form

    def _print_Iverson(self, expr: Expr) -> prettyForm:
        form = self._print(expr.args[0])
        return prettyForm(*form.parens("[", "]"))

    def _print_Piecewise(self, expr: Piecewise) -> prettyForm:
        parts = (part for value, words, condition in cases_in_words(expr) for part in (
            self._print(value), words, *(() if condition == true else (self._print(condition), "; "))))
        return prettyForm(*prettyForm(*prettyForm.next(*parts)).parens("{", "}"))

    def _print_CeilDiv(self, expr: Expr) -> prettyForm:
        return prettyForm(*self._divided(expr).parens("lceil", "rceil"))

    def _print_FloorDiv(self, expr: Expr) -> prettyForm:
        return prettyForm(*self._divided(expr).parens("lfloor", "rfloor"))

    def _divided(self, division: Expr) -> prettyForm:
        over, under = quotient(*division.args)
        return self._ratio(list(Mul.make_args(over)), list(Mul.make_args(under)))

    def _print_Max(self, expr: Expr) -> prettyForm:
        return self._helper_print_function(None, numbers_last(expr.args), func_name="max")

    def _print_Min(self, expr: Expr) -> prettyForm:
        return self._helper_print_function(None, numbers_last(expr.args), func_name="min")

    def _print_LeastCommonMultiple(self, expr: Expr) -> prettyForm:
        return self._print_Function(expr, func_name="lcm")

    def _print_Divides(self, expr: Boolean) -> prettyForm:
        left, right = (self._print(part) for part in expr.args)
        return prettyForm(*left.right(" ∣ ", right))


class LinePrinter(StrPrinter):  # type: ignore[misc]
    """One line, with the letters of the papers: ``2*s*b*h/(c*tₛ)``."""

    def __init__(self) -> None:
        super().__init__({"order": "none"})

    def doprint(self, expr: Expr) -> str:
        """Print the formula on one line."""
        return str(self._print(in_reading_order(expr)))

    def _print_Symbol(self, expr: Symbol) -> str:
        return letter(expr)

    def _print_Add(self, expr: Add, order: str | None = None) -> str:
        text = ""
        for summand in expr.args:
            negative, size = signed(summand)
            sign = ("-" if negative else "") if not text else " - " if negative else " + "
            text += sign + (self._factor(size) if negative else self._print(size))
        return text

    def _print_Mul(self, expr: Mul) -> str:
        negative, size = signed(expr)
        return f"-{self._factor(size)}" if negative else self._ratio(*over_and_under(size))

    def _print_Pow(self, expr: Pow, rational: bool = False) -> str:
        below = expr.exp.is_Integer and expr.exp.is_negative
        return self._ratio(*over_and_under(expr)) if below else str(super()._print_Pow(expr, rational))

    def _ratio(self, over: list[Expr], under: list[Expr]) -> str:
        """Print factors over factors, with brackets around sums and around a denominator of several factors."""
        text = "*".join(self._factor(factor) for factor in over) or "1"
        if not under:
            return text
        below = "*".join(self._factor(factor) for factor in under)
        return f"{text}/({below})" if len(under) > 1 else f"{text}/{below}"

    def _factor(self, factor: Expr) -> str:
        return f"({self._print(factor)})" if needs_brackets(factor) else str(self._print(factor))

    def _print_Iverson(self, expr: Expr) -> str:
        return f"[{self._print(expr.args[0])}]"

    def _print_Relational(self, expr: Boolean) -> str:
        return f"{self._print(expr.lhs)} {_SIGNS.get(expr.rel_op, expr.rel_op)} {self._print(expr.rhs)}"

    def _print_Piecewise(self, expr: Piecewise) -> str:
        texts = (
            self._print(value) + words + ("" if condition == true else f"{self._print(condition)}; ")
            for value, words, condition in cases_in_words(expr)
        )
        return f"{{{''.join(texts)}}}"

    def _print_CeilDiv(self, expr: Expr) -> str:
        return f"⌈{self._divided(expr)}⌉"

    def _print_FloorDiv(self, expr: Expr) -> str:
        return f"⌊{self._divided(expr)}⌋"

    def _divided(self, division: Expr) -> str:
        over, under = quotient(*division.args)
        return self._ratio(list(Mul.make_args(over)), list(Mul.make_args(under)))

    def _print_Max(self, expr: Expr) -> str:
        return f"max({self._list(numbers_last(expr.args))})"

    def _print_Min(self, expr: Expr) -> str:
        return f"min({self._list(numbers_last(expr.args))})"

    def _print_LeastCommonMultiple(self, expr: Expr) -> str:
        return f"lcm({self._list(expr.args)})"

    def _list(self, parts: Iterable[Expr]) -> str:
        return ", ".join(self._print(part) for part in parts)

    def _print_Divides(self, expr: Boolean) -> str:
        return f"{self._factor(expr.args[0])} ∣ {self._factor(expr.args[1])}"

    def _print_And(self, expr: Boolean) -> str:
        return self._connected(expr, " and ")

    def _print_Or(self, expr: Boolean) -> str:
        return self._connected(expr, " or ")

    def _print_Not(self, expr: Boolean) -> str:
        return f"not ({self._print(expr.args[0])})"

    def _connected(self, expr: Boolean, word: str) -> str:
        """Join conditions in SymPy's order of printing; connected ones are put in brackets."""
        parts = sorted(expr.args, key=lambda part: part.sort_key())
        texts = [(part, str(self._print(part))) for part in parts]
        return word.join(f"({text})" if part.func.__name__ in ("And", "Or") else text for part, text in texts)


def letter(symbol: Symbol) -> str:
    """Name a symbol in text: by the letter of the papers, or by the name of the term."""
    return PRINTED.get(symbol.name, str(symbol.name))
