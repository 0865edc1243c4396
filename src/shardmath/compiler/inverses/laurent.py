"""Laurent polynomials of one symbol with exact coefficients, and where on the integers they are positive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from math import isqrt, lcm
from typing import TypeAlias

from ..expressions.differences import Rational

#: Coefficients by exponent, none of them 0: ``{1: 2, 0: 3, -1: 5}`` is ``2 x + 3 + 5 / x``.
Laurent: TypeAlias = Mapping[int, Rational]

#: Exponents may differ by this much: quadratic inequalities have a closed form that people read.
HIGHEST = 2


class NoClosedFormError(ValueError):
    """An expression that is not piecewise a polynomial whose roots are quadratic, or not known to be."""


def constant(value: Rational) -> Laurent:
    """Return a number."""
    return {0: value} if value else {}


def combined(first: Laurent, other: Laurent, times: Rational = 1) -> Laurent:
    """Return ``one + times * other``."""
    result = dict(first)
    for exponent, count in other.items():
        result[exponent] = result.get(exponent, 0) + times * count
    return {exponent: count for exponent, count in result.items() if count}


def product(first: Laurent, other: Laurent) -> Laurent:
    """Return the product of two polynomials."""
    result: dict[int, Rational] = {}
    for left, count in first.items():
        for right, times in other.items():
            result[left + right] = result.get(left + right, 0) + count * times
    return {exponent: count for exponent, count in result.items() if count}


def inverse(polynomial: Laurent) -> Laurent:
    """Return the inverse of a monomial. Raises NoClosedFormError for a sum, and for 0."""
    if len(polynomial) != 1:
        raise NoClosedFormError("a division by a sum")
    ((exponent, count),) = polynomial.items()
    return {-exponent: 1 / Fraction(count)}


def value(polynomial: Laurent, at: int) -> Rational:
    """Return the value at a positive integer."""
    return sum((count * (at**exponent if exponent >= 0 else Fraction(1, at**-exponent))
                for exponent, count in polynomial.items()), 0)


def signs(polynomial: Laurent, low: int, high: int) -> Iterator[tuple[int, int, int]]:
    """Yield the integers from ``low``, at least 1, to ``high`` in stretches of one sign each: first, last, -1, 0 or 1.

    Raises NoClosedFormError for exponents too far apart.
    """
    ends = {low - 1, high}
    for root in _floors_of_roots(polynomial):
        ends |= {end for end in (root - 1, root) if low <= end < high}
    cuts = sorted(ends)
    start, sign = low, _sign(polynomial, low)
    for before in cuts[1:-1]:
        new = _sign(polynomial, before + 1)
        if new != sign:
            yield start, before, sign
            start, sign = before + 1, new
    yield start, high, sign


def _sign(polynomial: Laurent, at: int) -> int:
    number = value(polynomial, at)
    return (number > 0) - (number < 0)


def _floors_of_roots(polynomial: Laurent) -> list[int]:
    """Return the largest integers that are not above the positive real roots."""
    if len(polynomial) < 2:
        return []
    least = min(polynomial)
    span = max(polynomial) - least
    if span > HIGHEST:
        raise NoClosedFormError(f"a polynomial of degree {span}")
    whole = lcm(*(Fraction(count).denominator for count in polynomial.values()))
    c, b, a = (int(polynomial.get(least + power, 0) * whole) for power in range(3))
    if a == 0:
        return [-c // b]
    if a < 0:
        a, b, c = -a, -b, -c
    inside = b * b - 4 * a * c
    if inside < 0:
        return []
    root = isqrt(inside)
    above = root + (root * root < inside)
    return [(-b - above) // (2 * a), (-b + root) // (2 * a)]
