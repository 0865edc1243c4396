"""Python source for evaluators: exact on integers and fractions.

A product is printed with one division at its end, so that integer arithmetic stays exact for as long
as possible and no ``1/2`` becomes a float on the way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sympy import Add, Expr, Float, Integer, Mul, Pow, Rational, Symbol
from sympy.printing.precedence import PRECEDENCE, precedence
from sympy.printing.pycode import PythonCodePrinter

from ..functions import Iverson
from ..parameters import BY_LETTER, BY_NAME
from .order import in_sympy_order


def identifier(symbol: Symbol) -> str:
    """Return the name of a symbol in code: a parameter's long name, or a term's with dots as underscores.

    A term that would then be called like a parameter, as ``first.dense_layers``, has one more underscore at its end.
    """
    name = str(symbol.name)
    if name in BY_LETTER:
        return BY_LETTER[name].name
    plain = name.replace(".", "_")
    return f"{plain}_" if plain in BY_NAME else plain


class PythonPrinter(PythonCodePrinter):  # type: ignore[misc]
    """Prints formulas as a person would type them, over functions such as ``ceil_div`` and ``lcm``."""

    def __init__(self) -> None:
        super().__init__({"fully_qualified_modules": False, "allow_unknown_functions": False})

    def doprint(self, expr: Expr, assign_to: str | None = None) -> str:
        """Return the source of one expression.

        Raises ValueError if the expression has a floating point number: formulas are exact.
        """
        if expr.has(Float):
            raise ValueError(f"{expr} has a floating point number")
        return str(super().doprint(expr, assign_to))

    def _as_ordered_terms(self, expr: Add, order: str | None = None) -> list[Expr]:
        return in_sympy_order(expr)

    def _print_Symbol(self, expr: Symbol) -> str:
        return identifier(expr)

    def _print_Rational(self, expr: Rational) -> str:
        raise ValueError(f"{expr} outside a product would become a float")

    def _print_Integer(self, expr: Integer) -> str:
        return str(int(expr))

    def _print_Mul(self, expr: Mul) -> str:
        over, under = _numerator_and_denominator(expr)
        if over and over[0].is_Integer and over[0].is_negative:
            rest = [] if over[0] == -1 else [-over[0]]
            return "-" + self._quotient(rest + over[1:], under)
        return self._quotient(over, under)

    def _print_Pow(self, expr: Pow, rational: bool = False) -> str:
        if not expr.exp.is_Integer:
            raise ValueError(f"{expr} is not a rational function")
        if expr.exp.is_negative:
            return self._quotient([], [expr.base ** -expr.exp])
        base = self.parenthesize(expr.base, PRECEDENCE["Pow"])
        return "*".join([base] * int(expr.exp)) if int(expr.exp) <= 3 else f"{base}**{int(expr.exp)}"

    def _quotient(self, over: list[Expr], under: list[Expr]) -> str:
        numerator = self._factors(over) or "1"
        if not under:
            return numerator
        if all(factor.is_Integer for factor in under) and all(factor.is_Integer or _counts(factor) for factor in over):
            raise ValueError(f"{numerator} over {under} would become a float")
        denominator = self._factors(under)
        return f"{numerator}/({denominator})" if len(under) > 1 or _needs_brackets(under[0]) else (
            f"{numerator}/{denominator}"
        )

    def _factors(self, factors: list[Expr]) -> str:
        return "*".join(map(self._factor, factors))

    def _factor(self, factor: Expr) -> str:
        return str(self.parenthesize(factor, PRECEDENCE["Mul"]))

    def _print_Iverson(self, expr: Expr) -> str:
        return f"(1 if {self._print(expr.args[0])} else 0)"

    def _print_CeilDiv(self, expr: Expr) -> str:
        return f"ceil_div({self._print(expr.args[0])}, {self._print(expr.args[1])})"

    def _print_FloorDiv(self, expr: Expr) -> str:
        return f"floor_div({self._print(expr.args[0])}, {self._print(expr.args[1])})"

    def _print_LeastCommonMultiple(self, expr: Expr) -> str:
        return f"lcm({self._print(expr.args[0])}, {self._print(expr.args[1])})"

    def _print_Divides(self, expr: Expr) -> str:
        divisor, dividend = (self.parenthesize(part, PRECEDENCE["Mul"] + 1) for part in expr.args)
        return f"({dividend} % {divisor} == 0)"

    def _print_Relational(self, expr: Expr) -> str:
        lhs, rhs = (self._print(side) for side in expr.args)
        return f"({lhs} {expr.rel_op} {rhs})"

    def _print_Max(self, expr: Expr) -> str:
        return f"max({', '.join(self._print(part) for part in ordered(expr.args))})"

    def _print_Min(self, expr: Expr) -> str:
        return f"min({', '.join(self._print(part) for part in ordered(expr.args))})"


class EvaluatorPrinter(PythonPrinter):
    """Prints divisions as calls of the helper ``ratio``: of whole numbers it makes no float."""

    def _quotient(self, over: list[Expr], under: list[Expr]) -> str:
        numerator = self._factors(over) or "1"
        return f"ratio({numerator}, {self._factors(under)})" if under else numerator


class RealPrinter(PythonPrinter):
    """Prints formulas of real numbers: with powers of any exponent, roots and exponentials, as floats compute them.

    ``names`` are the names of symbols in code.
    """

    def __init__(self, names: Mapping[Symbol, str]) -> None:
        super().__init__()
        self._names = names

    def _print_Symbol(self, expr: Symbol) -> str:
        return self._names[expr]

    def _print_Rational(self, expr: Rational) -> str:
        return f"({expr.p}/{expr.q})"

    def _print_Pow(self, expr: Pow, rational: bool = False) -> str:
        if expr.exp.is_Integer:
            return super()._print_Pow(expr)
        if expr.exp == Rational(1, 2):
            return f"math.sqrt({self._print(expr.base)})"
        return f"math.pow({', '.join(map(self._print, expr.args))})"

    def _print_exp(self, expr: Expr) -> str:
        return f"math.exp({self._print(expr.args[0])})"

    def _print_log(self, expr: Expr) -> str:
        return f"math.log({self._print(expr.args[0])})"


def _numerator_and_denominator(expr: Mul) -> tuple[list[Expr], list[Expr]]:
    over: list[Expr] = []
    under: list[Expr] = []
    for factor in expr.as_ordered_factors():
        if factor.is_Rational and not factor.is_Integer:
            over += [Integer(factor.p)] if factor.p != 1 else []
            under.append(Integer(factor.q))
        elif factor.is_Pow and factor.exp.is_Integer and factor.exp.is_negative:
            under.append(factor.base ** -factor.exp)
        else:
            over.append(factor)
    return over, under


def _counts(factor: Expr) -> bool:
    """Tell whether Python makes an integer of the factor even where all sizes are fractions."""
    return isinstance(factor, Iverson)


def _needs_brackets(factor: Expr) -> bool:
    return bool(precedence(factor) <= PRECEDENCE["Mul"]) or factor.is_Pow


def ordered(parts: Iterable[Expr]) -> list[Expr]:
    """Return the arguments of a function that does not care for their order, in SymPy's."""
    return sorted(parts, key=lambda part: part.sort_key())
