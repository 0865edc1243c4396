"""JavaScript source for evaluators: doubles, whose every step is checked to be exact.

A number of JavaScript is a double, exact for integers up to 2^53. As in Python a product has one division at its
end; here it goes through ``ratio``, which notes a numerator beyond that, so that no rounded number passes for exact.
"""

from __future__ import annotations

from collections.abc import Iterable

from sympy import Expr, Mul, Pow

from .python import EvaluatorPrinter, RealPrinter, ordered

_OPERATORS = {"==": "===", "!=": "!=="}


class JavascriptPrinter(EvaluatorPrinter):
    """Prints terms over the helper functions that ``evaluator.js.jinja`` defines; names are those of Python."""

    def _print_Mul(self, expr: Mul) -> str:
        """Divide last where an integer multiplies a sum with a quotient: a rounded share times 12 is off by more."""
        count, rest = expr.as_coeff_Mul()
        if count.is_Integer and rest.is_Add and any(_is_quotient(term) for term in rest.args):
            over, under = rest.together().as_numer_denom()
            return self._quotient([count, over], [under])
        return str(super()._print_Mul(expr))

    def _print_Iverson(self, expr: Expr) -> str:
        return f"({self._print(expr.args[0])} ? 1 : 0)"

    def _print_Relational(self, expr: Expr) -> str:
        lhs, rhs = (self._print(side) for side in expr.args)
        return f"({lhs} {_OPERATORS.get(expr.rel_op, expr.rel_op)} {rhs})"

    def _print_Divides(self, expr: Expr) -> str:
        divisor, dividend = (self._print(part) for part in expr.args)
        return f"divides({divisor}, {dividend})"

    def _print_Max(self, expr: Expr) -> str:
        return f"Math.max({self._listed(expr.args)})"

    def _print_Min(self, expr: Expr) -> str:
        return f"Math.min({self._listed(expr.args)})"

    def _print_And(self, expr: Expr) -> str:
        return f"({' && '.join(map(self._print, ordered(expr.args)))})"

    def _print_Or(self, expr: Expr) -> str:
        return f"({' || '.join(map(self._print, ordered(expr.args)))})"

    def _print_Not(self, expr: Expr) -> str:
        return f"!({self._print(expr.args[0])})"

    def _print_BooleanTrue(self, expr: Expr) -> str:
        return "true"

    def _listed(self, parts: Iterable[Expr]) -> str:
        return ", ".join(map(self._print, ordered(parts)))


class RealJavascriptPrinter(RealPrinter):
    """Prints formulas of real numbers, as doubles compute them."""

    def _print_Pow(self, expr: Pow, rational: bool = False) -> str:
        return f"Math.pow({', '.join(map(self._print, expr.args))})"  # -x**6 is no expression of JavaScript

    def _print_exp(self, expr: Expr) -> str:
        return f"Math.exp({self._print(expr.args[0])})"

    def _print_log(self, expr: Expr) -> str:
        return f"Math.log({self._print(expr.args[0])})"


def _is_quotient(term: Expr) -> bool:
    """Return True for a product with a divisor that is no number."""
    return any(factor.is_Pow and factor.exp.is_negative for factor in Mul.make_args(term))
