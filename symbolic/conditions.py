"""Brackets that are multiplied become one condition, and sums that a condition decides become cases.

A single bracket stays a factor, as papers write it, and so does a switch: ``x [r = 0]``. Cases are SymPy's
``Piecewise``, which is made as it stands: SymPy would rewrite its conditions.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from sympy import Add, And, Expr, Integer, Mul, Not, true
from sympy.logic.boolalg import Boolean

from .functions import Iverson, cases
from .polynomials import OF_SIZES, factored
from .terms import operations, times

#: A product of so many conditions is written as cases.
_MANY = 3
#: Values of a decided bracket are factored if that has to save fewer operations than these.
_HOPED = 3


@cache
def with_cases(expression: Expr) -> Expr:
    """Return the form of ``expression`` with conditions joined and decided, wherever that saves operations."""
    if not expression.has(Iverson):
        return expression
    if isinstance(expression, OF_SIZES):
        return expression.func(*map(with_cases, expression.args))
    if expression.is_Pow:
        return with_cases(expression.base) ** expression.exp
    if isinstance(expression, Mul):
        numbers = [part for part in expression.args if part.is_Number]
        joined = _joined([with_cases(part) for part in expression.args if not part.is_Number])
        return min(expression, times(Mul(*numbers), joined), key=operations)
    if isinstance(expression, Add):
        apart = Add(*map(with_cases, expression.args))
        return min([expression, apart, *_decided(expression)], key=operations)
    return expression


def _joined(factors: list[Expr]) -> Expr:
    """Return the product of factors, with one bracket for all conditions, or cases if they are many."""
    conditions = [(part, condition) for part in factors if (condition := _condition(part)) is not None]
    if len(conditions) < 2:
        return Mul(*factors)
    taken = {part for part, _ in conditions}
    all_of_them, rest = And(*(condition for _, condition in conditions)), Mul(*(p for p in factors if p not in taken))
    bracket = Iverson(all_of_them)
    if len(conditions) < _MANY or rest == 1 or not isinstance(bracket, Iverson):
        return rest * bracket
    return _either(bracket, rest, Integer(0))


def _condition(factor: Expr) -> Boolean | None:
    """Return the condition under which a factor is 1, if it is 0 otherwise."""
    if isinstance(factor, Iverson):
        return factor.args[0]
    if isinstance(factor, Add) and isinstance(opposite := 1 - factor, Iverson):
        return Not(opposite.args[0])
    return None


def _decided(expression: Expr) -> Iterator[Expr]:
    """Yield forms in which one bracket is decided: of the whole sum, and of the summands that have it."""
    limit = operations(expression) + _HOPED
    for bracket in dict.fromkeys(_brackets(expression)):
        for parts in {tuple(part for part in expression.args if part.has(bracket)): None, expression.args: None}:
            rest, whole = [part for part in expression.args if part not in parts], Add(*parts)
            values = [whole.xreplace({bracket: Integer(value)}) for value in (1, 0)]
            if 0 not in values and operations(Add(*rest, _either(bracket, *values))) < limit:
                yield Add(*rest, _either(bracket, *(with_cases(factored(value)) for value in values)))


def _brackets(expression: Expr) -> list[Expr]:
    """Return the brackets outside functions, in the order in which they stand."""
    if isinstance(expression, Iverson):
        return [expression]
    if isinstance(expression, Add | Mul):
        return [bracket for part in expression.args for bracket in _brackets(part)]
    return []


def _either(bracket: Expr, yes: Expr, no: Expr) -> Expr:
    return cases((yes, bracket.args[0]), (no, true))
