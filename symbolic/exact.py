"""Exact values of terms: rationals in, rationals out, without floating point.

An expression is computed from its leaves on, in Python's integers and fractions. To put values in and let SymPy
simplify gives the same, and takes thirty times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from math import lcm
from typing import Any

from sympy import Add, And, Basic, Eq, Expr, Ge, Gt, Le, Lt, Mul, Ne, Not, Or, Piecewise, Pow, Rational, Symbol, sympify
from sympy.logic.boolalg import Boolean

from .functions import CeilDiv, Divides, FloorDiv, Iverson, LeastCommonMultiple, Max, Min
from .parameters import symbol
from .terms import Term

#: Whole numbers are integers, also where a fraction came out whole.
_Value = int | Fraction


def evaluate(terms: Iterable[Term], values: Mapping[str, int]) -> dict[str, Rational]:
    """Return the values of ``terms``, which stand in computing order, for parameters given by letter.

    Raises ValueError if a term needs a parameter that has no value.
    """
    known = {symbol(letter): _plain(value) for letter, value in values.items()}
    results: dict[str, Rational] = {}
    for term in terms:
        value = known[term.symbol] = _number(term.expression, known)
        results[term.name] = _rational(value)
    return results


def number(expression: Expr, known: Mapping[Symbol, Expr]) -> Rational:
    """Return the rational that ``expression`` has with the values ``known``.

    Raises ValueError if a symbol has no value, and for what is no rational number.
    """
    needed = expression.free_symbols & known.keys()
    return _rational(_number(expression, {name: _plain(known[name]) for name in needed}))


def holds(condition: Boolean, known: Mapping[Symbol, Expr]) -> bool:
    """Return True if a condition holds with the values ``known``; raises ValueError as ``number`` does."""
    return bool(number(Iverson(condition), known))


def _number(expression: Expr, known: Mapping[Symbol, _Value]) -> _Value:
    try:
        return _computed(expression, known)
    except KeyError:
        missing = sorted(map(str, expression.free_symbols - known.keys()))
        raise ValueError(f"no value for {missing} in {expression}") from None
    except (ArithmeticError, TypeError) as error:
        raise ValueError(f"no rational value of {expression} with {known}") from error


def _computed(expression: Basic, known: Mapping[Symbol, _Value]) -> _Value:
    """Return the value of one node; conditions are 0 and 1. KeyError for a symbol without one."""
    if expression.is_Symbol:
        return known[expression]
    if not expression.args:
        return _plain(expression)
    if isinstance(expression, Piecewise):
        return next(_computed(value, known) for value, condition in expression.args if _computed(condition, known))
    parts = [_computed(arg, known) for arg in expression.args]
    compute = _FUNCTIONS.get(expression.func)
    return _plain(expression.func(*map(_rational, parts))) if compute is None else compute(parts)


def _sum(parts: Sequence[_Value]) -> _Value:
    return _whole(sum(parts))


def _product(parts: Sequence[_Value]) -> _Value:
    over = under = 1
    for part in parts:
        over *= part.numerator
        under *= part.denominator
    quotient, rest = divmod(over, under)
    return Fraction(over, under) if rest else quotient


def _power(parts: Sequence[_Value]) -> _Value:
    base, exponent = parts
    if not isinstance(exponent, int):
        return _plain(Pow(*map(_rational, parts)))
    return _whole(base**exponent if exponent >= 0 else Fraction(1) / base**-exponent)


def _multiple(parts: Sequence[_Value]) -> int:
    left, right = parts
    return lcm(left, right)  # type: ignore[arg-type]  # of fractions there is none


def _divides(parts: Sequence[_Value]) -> bool:
    divisor, dividend = parts
    if not (isinstance(divisor, int) and isinstance(dividend, int)):
        raise TypeError("only integers divide one another")
    return dividend % divisor == 0


_FUNCTIONS: dict[type[Basic], Callable[[Sequence[Any]], _Value]] = {
    Add: _sum, Mul: _product, Pow: _power, Max: max, Min: min, LeastCommonMultiple: _multiple,
    CeilDiv: lambda parts: -(-parts[0] // parts[1]), FloorDiv: lambda parts: parts[0] // parts[1],
    Iverson: lambda parts: int(parts[0]), Divides: _divides, Eq: lambda parts: parts[0] == parts[1],
    Ne: lambda parts: parts[0] != parts[1], Lt: lambda parts: parts[0] < parts[1],
    Le: lambda parts: parts[0] <= parts[1], Gt: lambda parts: parts[0] > parts[1],
    Ge: lambda parts: parts[0] >= parts[1], And: all, Or: any, Not: lambda parts: not parts[0],
}


def _whole(value: _Value) -> _Value:
    return value.numerator if value.denominator == 1 else value


def _plain(value: Any) -> _Value:
    """Return a number of SymPy's, or a truth value, as one of Python's; TypeError for anything else."""
    if isinstance(value, int):
        return value
    exact = sympify(value)
    if exact.is_Rational:
        return int(exact.p) if exact.q == 1 else Fraction(int(exact.p), int(exact.q))
    if isinstance(exact, Boolean):
        return bool(exact)
    raise TypeError(f"{value} is no rational number")


def _rational(value: _Value) -> Rational:
    return Rational(value.numerator, value.denominator)
