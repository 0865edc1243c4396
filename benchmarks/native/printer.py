"""C source in float64 for what the compiled evaluators compute, over the helper functions of the template."""

from __future__ import annotations

from functools import reduce

from sympy import Expr, Integer, Mul, Not, Pow
from sympy.printing.precedence import PRECEDENCE

from shardmath.symbolic.printers.python import KernelPrinter


class CPrinter(KernelPrinter):
    """Prints every number as a double, so that no division is one of integers, and choices as ``? :``."""

    def _print_Integer(self, expr: Integer) -> str:
        return f"{int(expr)}.0"

    def _print_Pow(self, expr: Pow, rational: bool = False) -> str:
        if expr.exp.is_Integer and expr.exp.is_positive:
            return "*".join([str(self.parenthesize(expr.base, PRECEDENCE["Pow"]))] * int(expr.exp))
        return super()._print_Pow(expr, rational)

    def _print_Mul(self, expr: Mul) -> str:
        # With choices in place of factors gcc makes branches under -ffast-math, and works on one row at a time.
        return str(super(KernelPrinter, self)._print_Mul(expr))

    def _print_Iverson(self, expr: Expr) -> str:
        return f"({self._print(expr.args[0])} ? 1.0 : 0.0)"

    def _print_Not(self, expr: Not) -> str:
        return f"(!{self._print(expr.args[0])})"

    def _print_Max(self, expr: Expr) -> str:
        return self._chosen("larger", expr)

    def _print_Min(self, expr: Expr) -> str:
        return self._chosen("smaller", expr)

    def _chosen(self, function: str, expr: Expr) -> str:
        parts = (str(self._print(part)) for part in sorted(expr.args, key=lambda part: part.sort_key()))
        return reduce(lambda left, right: f"{function}({left}, {right})", parts)
