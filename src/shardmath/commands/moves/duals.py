"""Numbers together with their first change, so that a generated evaluator gives exact derivatives of every term.

A dual number is ``value + slope * h`` for an ``h`` above 0 that is smaller than every fraction. The arithmetic of
fractions goes over to them, and so does their order; the same source that computes bytes then computes how they move.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from types import FunctionType, ModuleType
from typing import Any

Number = int | Fraction


class StepsError(ArithmeticError):
    """A function of integers alone, such as a least common multiple, was asked for between two integers."""


class Dual:
    """``value + slope * h``. Immutable; compared as numbers that lie so close to ``value``."""

    __slots__ = ("slope", "value")

    def __init__(self, value: Number, slope: Number = 0) -> None:
        self.value, self.slope = value, slope

    def _like(self, value: Number, slope: Number) -> Dual:
        return type(self)(value, slope)

    def _key(self) -> tuple[Number, ...]:
        """Return the sort key."""
        return self.value, self.slope

    def _key_of(self, other: Dual | Number) -> tuple[Number, ...]:
        return self._like(*_parts(other))._key()

    def __add__(self, other: Dual | Number) -> Dual:
        value, slope = _parts(other)
        return self._like(self.value + value, self.slope + slope)

    def __mul__(self, other: Dual | Number) -> Dual:
        value, slope = _parts(other)
        return self._like(self.value * value, self.slope * value + self.value * slope)

    def __neg__(self) -> Dual:
        return self._like(-self.value, -self.slope)

    def __sub__(self, other: Dual | Number) -> Dual:
        value, slope = _parts(other)
        return self._like(self.value - value, self.slope - slope)

    def __rsub__(self, other: Number) -> Dual:
        return -self + other

    def __truediv__(self, other: Dual | Number) -> Dual:
        value, slope = _parts(other)
        return self._like(_over(self.value, value), _over(self.slope * value - self.value * slope, value * value))

    def __rtruediv__(self, other: Number) -> Dual:
        return self._like(other, 0) / self

    def __pow__(self, exponent: int) -> Dual:
        return self._like(self.value**exponent, exponent * self.value ** (exponent - 1) * self.slope)

    def __mod__(self, other: Dual | Number) -> Dual:
        whole = (self / other)._floor()
        return self - other * whole

    def __rmod__(self, other: Number) -> Dual:
        return self._like(other, 0) % self

    __radd__, __rmul__ = __add__, __mul__

    def __lt__(self, other: Dual | Number) -> bool:
        return self._key() < self._key_of(other)

    def __le__(self, other: Dual | Number) -> bool:
        return self._key() <= self._key_of(other)

    def __gt__(self, other: Dual | Number) -> bool:
        return self._key() > self._key_of(other)

    def __ge__(self, other: Dual | Number) -> bool:
        return self._key() >= self._key_of(other)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dual | int | Fraction) and self._key() == self._key_of(other)

    def __hash__(self) -> int:
        return hash(self._key())

    def _floor(self) -> Number:
        """Return the integer below: just before an integer it is already the one before."""
        whole = math.floor(self.value)
        return whole - 1 if self.value == whole and self.slope < 0 else whole


class Frozen(Dual):
    """A dual number whose conditions are decided at the point: every choice stays as it is there."""

    __slots__ = ()

    def _key(self) -> tuple[Number, ...]:
        return (self.value,)


def _parts(number: Dual | Number) -> tuple[Number, Number]:
    return (number.value, number.slope) if isinstance(number, Dual) else (number, 0)


def _over(numerator: Number, denominator: Number) -> Number:
    """Return the exact quotient, an integer where it is whole: integers are computed with many times faster."""
    quotient = Fraction(numerator) / denominator
    return quotient.numerator if quotient.denominator == 1 else quotient


def _ratio(numerator: Dual | Number, denominator: Dual | Number) -> Dual | Number:
    """Return the helper of the evaluators, over duals as well."""
    if isinstance(numerator, Dual):
        return numerator / denominator
    return numerator / denominator if isinstance(denominator, Dual) else _over(numerator, denominator)


def terms_beside(module: ModuleType, values: Mapping[str, int], along: Mapping[str, Number]) -> dict[str, Dual]:
    """Return every term just beside ``values``, in the direction ``along``: exact limits and one-sided derivatives.

    ``module`` is a generated evaluator; ``along`` has by how much symbols move, by name. A term that jumps at once has
    another value here than at the point. Raises StepsError where a term does not exist between two integers.
    """
    return _terms(module, _EXACT, Dual, values, along)


def slopes_along(module: ModuleType, values: Mapping[str, int], along: Mapping[str, Number]) -> dict[str, Dual]:
    """Return every term with its slope along ``along``, on the branch that holds at the point, without rounding.

    A value rounded up to a multiple keeps its value and moves like its argument; of equal arguments of a maximum or
    minimum the one is taken that is the largest or smallest after the move.
    """
    return _terms(module, _SMOOTH, Frozen, values, along)


def _terms(
    module: ModuleType, functions: Mapping[str, Callable[..., Any]], kind: type[Dual], values: Mapping[str, int],
    along: Mapping[str, Number],
) -> dict[str, Dual]:
    """Run the evaluator's code over other numbers, with ``functions`` for those without arithmetic of their own."""
    code = FunctionType(module.terms.__code__, {**vars(module), **functions})
    numbers: dict[str, Any] = code(*(
        kind(values[name], along[name]) if name in along else values[name] for name in module.INPUTS
    ))
    return {name: value if isinstance(value, Dual) else kind(value) for name, value in numbers.items()}


def _floor_div(numerator: Dual | Number, denominator: Dual | Number) -> Number:
    quotient = _ratio(numerator, denominator)
    return quotient._floor() if isinstance(quotient, Dual) else math.floor(quotient)


def _ceil_div(numerator: Dual | Number, denominator: Dual | Number) -> Number:
    return -_floor_div(-numerator, denominator)


def _lcm(left: Dual | Number, right: Dual | Number) -> Number:
    if any(_parts(side)[1] for side in (left, right)):
        raise StepsError("a least common multiple exists for integers alone")
    return math.lcm(*(int(_parts(side)[0]) for side in (left, right)))


def _unrounded(rounding: Callable[[Number], int]) -> Callable[[Dual | Number, Dual | Number], Dual | Number]:
    """Return a division to an integer that moves as the quotient does."""
    def divided(numerator: Dual | Number, denominator: Dual | Number) -> Dual | Number:
        value, slope = _parts(_ratio(numerator, denominator))
        return Frozen(rounding(value), slope) if slope else rounding(value)

    return divided


def _order(number: Dual | Number) -> tuple[Number, Number]:
    return _parts(number)


_EXACT: Mapping[str, Callable[..., Any]] = {
    "ratio": _ratio, "floor_div": _floor_div, "ceil_div": _ceil_div, "lcm": _lcm,
}
_SMOOTH: Mapping[str, Callable[..., Any]] = {
    "ratio": _ratio,
    "floor_div": _unrounded(math.floor), "ceil_div": _unrounded(math.ceil),
    "lcm": lambda left, right: math.lcm(*(int(_parts(side)[0]) for side in (left, right))),
    "max": lambda *items: max(items, key=_order), "min": lambda *items: min(items, key=_order),
}
