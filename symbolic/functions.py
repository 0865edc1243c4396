"""The few functions that the formulas need and SymPy does not print for every target, or compares for too long.

Each is exact on integers. Each is a function of its own, so that a printer decides how to write
it and no rewriting turns an exact division under a ceiling into a rounded reciprocal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, cmp_to_key
from math import lcm
from typing import Any

from sympy import Basic, Eq, Expr, Function, Gt, Integer, Le, Mul, Piecewise, Rational, cacheit, ordered, sympify
from sympy.core.function import Application
from sympy.core.logic import fuzzy_and, fuzzy_or
from sympy.core.operations import LatticeOp
from sympy.logic.boolalg import Boolean, BooleanFalse, BooleanTrue

from .splits import Number, ratio

#: Numbers of a sum by what they multiply.
_Sum = Mapping[Expr, Number]


class CeilDiv(Function):  # type: ignore[misc]
    """The least integer that is not below ``numerator / denominator``."""

    nargs = (2,)
    is_integer = True

    @classmethod
    def eval(cls, numerator: Expr, denominator: Expr) -> Expr | None:
        """Evaluate on numbers; a division by 1 of an integer is the integer."""
        if denominator == 1 and numerator.is_integer:
            return numerator
        if numerator.is_Rational and denominator.is_Rational:
            quotient = Rational(numerator) / Rational(denominator)
            return Integer(-((-quotient.p) // quotient.q))
        return None

    def _eval_is_positive(self) -> bool | None:
        numerator, denominator = self.args
        return True if numerator.is_positive and denominator.is_positive else None

    def _eval_is_nonnegative(self) -> bool | None:
        numerator, denominator = self.args
        return True if numerator.is_nonnegative and denominator.is_positive else None


class FloorDiv(Function):  # type: ignore[misc]
    """The largest integer that is not above ``numerator / denominator``."""

    nargs = (2,)
    is_integer = True

    @classmethod
    def eval(cls, numerator: Expr, denominator: Expr) -> Expr | None:
        """Evaluate on numbers; a division by 1 of an integer is the integer."""
        if denominator == 1 and numerator.is_integer:
            return numerator
        if numerator.is_Rational and denominator.is_Rational:
            quotient = Rational(numerator) / Rational(denominator)
            return Integer(quotient.p // quotient.q)
        return None

    def _eval_is_nonnegative(self) -> bool | None:
        numerator, denominator = self.args
        return True if numerator.is_nonnegative and denominator.is_positive else None


class LeastCommonMultiple(Function):  # type: ignore[misc]
    """The least common multiple of two positive integers."""

    nargs = (2,)
    is_integer = True
    is_positive = True

    @classmethod
    def eval(cls, left: Expr, right: Expr) -> Expr | None:
        """Evaluate on integers."""
        if left.is_Integer and right.is_Integer:
            return Integer(lcm(int(left), int(right)))
        return None


def power_of_two_from(number: Expr, bits: int = 23) -> Expr:
    """Return the smallest power of two that is not below a positive integer of at most 2^bits."""
    return Integer(1) + sum((2**bit * Iverson(number > 2**bit) for bit in range(bits)), Integer(0))


def _solved(condition: Boolean) -> Boolean:
    """Return an equation of one symbol and a number, written with the symbol alone on the left."""
    if isinstance(condition, Eq):
        number, rest = (condition.lhs - condition.rhs).as_coeff_Add()
        if rest.is_Symbol:
            return Eq(rest, -number)
        if (-rest).is_Symbol:
            return Eq(-rest, number)
    return condition


class Iverson(Function):  # type: ignore[misc]
    """Iverson's bracket: 1 where the condition holds and 0 elsewhere."""

    nargs = (1,)
    is_integer = True
    is_nonnegative = True

    @classmethod
    def eval(cls, condition: Boolean) -> Expr | None:
        """Evaluate where the condition is decided."""
        if isinstance(condition, BooleanTrue):
            return Integer(1)
        if isinstance(condition, BooleanFalse):
            return Integer(0)
        if isinstance(condition, Le):
            return 1 - cls(Gt(*condition.args))  # one bracket for a condition and its opposite
        solved = _solved(condition)
        return None if solved == condition else cls(solved)

    def doit(self, **_: Any) -> Expr:
        """Return the bracket as it is: its condition was evaluated when it was made."""
        return self


def cases(*pairs: tuple[Expr, Boolean]) -> Expr:
    """Return the value of the first condition that holds, unevaluated: SymPy would rewrite the pairs."""
    return Piecewise(*pairs, evaluate=False)


class Divides(Application, Boolean):  # type: ignore[misc]
    """The condition that ``divisor`` divides ``dividend`` without remainder."""

    nargs = (2,)

    @classmethod
    def eval(cls, divisor: Any, dividend: Any) -> Boolean | None:
        """Evaluate on integers."""
        if divisor.is_Integer and dividend.is_Integer:
            return BooleanTrue() if int(dividend) % int(divisor) == 0 else BooleanFalse()
        if divisor == 1:
            return BooleanTrue()
        return None


class _Extreme(Expr, LatticeOp, Application):  # type: ignore[misc]
    """The largest or smallest argument: flat, each argument once, in SymPy's order.

    SymPy's own ``Max`` and ``Min`` try to factor the difference of every pair, whenever a symbol inside is replaced.
    Here an argument goes where bounds of what stands in a difference say that another one is never behind it.
    """

    is_real = True
    _sign: Callable[[Iterable[bool | None]], bool | None]
    _beats: Callable[[_Sum, _Sum], bool]

    def __new__(cls, *args: Expr | int, evaluate: bool = True) -> Expr:
        """Keep what no other argument makes superfluous; a single one is the answer. There is no unevaluated form."""
        parts = [part for arg in map(sympify, args) for part in (arg.args if isinstance(arg, cls) else (arg,))]
        kept = cls._needed(frozenset(parts))
        return kept[0] if len(kept) == 1 else Expr.__new__(cls, *kept)

    @classmethod
    @cacheit  # type: ignore[untyped-decorator]
    def _needed(cls, parts: frozenset[Expr]) -> tuple[Expr, ...]:
        kept: dict[Expr, _Sum] = {}
        for part in ordered(sorted(parts, key=cmp_to_key(Basic.compare))):  # ordered leaves ties as they come
            own = _summands(part)
            if not any(cls._beats(other, own) for other in kept.values()):
                kept = {**{known: other for known, other in kept.items() if not cls._beats(own, other)}, part: own}
        return tuple(kept)

    def _eval_is_integer(self) -> bool | None:
        return True if all(part.is_integer for part in self.args) else None

    def _eval_is_positive(self) -> bool | None:
        return self._sign(part.is_positive for part in self.args)

    def _eval_is_nonnegative(self) -> bool | None:
        return self._sign(part.is_nonnegative for part in self.args)


class Max(_Extreme):
    """The largest of its arguments."""

    _sign = staticmethod(fuzzy_or)

    @staticmethod
    def _beats(argument: _Sum, other: _Sum) -> bool:
        return _is_never_below(argument, other)


class Min(_Extreme):
    """The smallest of its arguments."""

    _sign = staticmethod(fuzzy_and)

    @staticmethod
    def _beats(argument: _Sum, other: _Sum) -> bool:
        return _is_never_below(other, argument)


@cache
def _summands(expression: Expr) -> _Sum:
    """Return the numbers in a sum by what they multiply: equal products are added, the number alone multiplies 1."""
    if expression.is_Mul:
        expression = Mul(*expression.args)
    if expression.is_Add:
        numbers: dict[Expr, Number] = {}
        for part in expression.args:
            for factor, number in _summands(part).items():
                numbers[factor] = numbers.get(factor, 0) + number
        return numbers
    number, factor = expression.as_coeff_Mul(rational=True)
    return {factor: ratio(int(number.p), int(number.q))}


def _is_never_below(high: _Sum, low: _Sum) -> bool:
    """Return True if the bounds of what stands in the difference say so."""
    least = _least_difference(high, low)
    return least is not None and least >= 0


def _least_difference(high: _Sum, low: _Sum) -> Number | None:
    """Return a number that the difference of two sums is never below; None if one of its summands has no bound."""
    least: Number = 0
    for factor in (*low, *(factor for factor in high if factor not in low)):
        number = high.get(factor, 0) - low.get(factor, 0)
        if number:
            bound = _bounds(factor)[number < 0]
            if bound is None:
                return None
            least += number * bound
    return least


@cache
def _bounds(expression: Expr) -> tuple[Number | None, Number | None]:
    """Return a number that an expression is never below, and one that it is never above; None where none is known.

    SymPy says the signs of what is neither a sum nor a product: of these it would compute many other properties.
    """
    if expression.is_Rational:
        value = ratio(int(expression.p), int(expression.q))
        return value, value
    if expression.is_Add:
        summands, most = _summands(expression), _least_difference({}, _summands(expression))
        return _least_difference(summands, {}), None if most is None else -most
    if expression.is_Mul:
        size: Number = 1
        is_negative = False
        for below, above in map(_bounds, expression.args):
            if below is not None and below >= 0:
                size *= below
            elif above is not None and above <= 0:
                size, is_negative = size * -above, not is_negative
            else:
                return None, None
        return (None, -size) if is_negative else (size, None)
    least = 1 if expression.is_positive and expression.is_integer else 0 if expression.is_nonnegative else None
    return least, 0 if expression.is_nonpositive else None


def pad_to(size: Expr, multiple: Expr) -> Expr:
    """Return ``size`` rounded up to a multiple of ``multiple``."""
    return CeilDiv(size, multiple) * multiple


#: The functions that are SymPy's neither in name nor in what it does with them.
OWN = (CeilDiv, FloorDiv, Iverson, LeastCommonMultiple, Max, Min)


def outermost(expression: Expr) -> Iterator[Expr]:
    """Yield the functions of this module in an expression that are not inside of others."""
    if isinstance(expression, OWN):
        yield expression
        return
    for part in expression.args:
        yield from outermost(part)
