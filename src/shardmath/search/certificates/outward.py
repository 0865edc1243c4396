"""Interval arithmetic with outward rounding on columns: what a certificate is checked with.

An interval is the least value with its sign changed, and the largest; a condition is whether it surely holds, and
whether it may. All of it is meant for ``rounded_upward``. Every value is finite; an infinite end says that nothing is
known on its side, and 0 times it is 0. What is not a number closes no box.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import reduce
from math import isfinite
from typing import Any, TypeAlias

import numpy as np

from shardmath.compiler.expressions import ops
from shardmath.compiler.expressions.graph import Node

#: Columns of the least value with its sign changed, and of the largest; or two truths.
Outward: TypeAlias = tuple[Any, Any]
#: Signs of intervals: nowhere below 0, nowhere above, any, or any with ends that may be infinite.
POSITIVE, NEGATIVE, ANY, UNBOUNDED = "positive", "negative", "any", "unbounded"
#: Operations that take less time where signs are known.
SIGNED = {ops.MUL, ops.DIV, ops.CEIL_DIV, ops.FLOOR_DIV}


def constant(node: Node) -> Outward:
    """Return the interval of a number or a truth; its ends are beside it where no float has it."""
    if node.op == ops.TRUTH:
        return np.bool_(node.value), np.bool_(node.value)
    assert isinstance(node.value, Fraction)
    near = node.value.numerator / node.value.denominator
    if Fraction(near) == node.value:
        return np.float64(-near), np.float64(near)
    return -np.nextafter(near, -np.inf), np.nextafter(near, np.inf)


def sign_of(interval: Outward) -> str:
    """Return the sign of an interval of numbers."""
    less, most = interval
    greatest, least = (less.max(), most.max()), (less.min(), most.min())
    if not all(map(isfinite, (*greatest, *least))):
        return UNBOUNDED
    if greatest[0] <= 0:
        return POSITIVE
    return NEGATIVE if greatest[1] <= 0 else ANY


def enclosed(node: Node, args: Sequence[Outward], signs: Sequence[str]) -> Outward:
    """Return the interval of an operation. Raises KeyError for an operation that spaces do not have."""
    return _RULES[node.op](args, signs)


def _folded(operation: np.ufunc, columns: Iterable[Any]) -> Any:
    """Fold columns by an operation; every result but the first takes the memory of the one before."""
    first, second, *others = columns
    result = operation(first, second)
    for column in others:
        result = operation(result, column, out=result if np.ndim(result) else None)
    return result


def _sum(args: Sequence[Outward], _: Sequence[str]) -> Outward:
    return tuple(_folded(np.add, ends) for ends in zip(*args, strict=True))


def _product(args: Sequence[Outward], signs: Sequence[str]) -> Outward:
    """Multiply factors; those of one sign come first, as they need no corners."""
    factors = list(zip(args, signs, strict=True))
    if ANY in signs:
        factors.sort(key=lambda factor: factor[1] == ANY)
    (product, sign), *others = factors
    for factor, own in others:
        product, sign = _times(product, factor, sign, own), _sign_of_product(sign, own)
    return product


def _sign_of_product(left: str, right: str) -> str:
    for sign in (UNBOUNDED, ANY):
        if sign in (left, right):
            return sign
    return POSITIVE if left == right else NEGATIVE


def _times(left: Outward, right: Outward, sign: str, own: str) -> Outward:
    (less, most), (other_less, other_most) = left, right
    if UNBOUNDED in (sign, own):
        return _corners(left, right, _finite_times)
    if (sign, own) == (POSITIVE, POSITIVE):
        least = -other_less
        least *= less
        return least, most * other_most
    if (sign, own) == (NEGATIVE, POSITIVE):
        return less * other_most, most * -other_less
    if (sign, own) == (POSITIVE, NEGATIVE):
        return _times(right, left, own, sign)
    if own == POSITIVE:
        ends = -other_less, other_most
        return tuple(_folded(np.maximum, (end * other for other in ends)) for end in left)
    if sign == POSITIVE:
        return _times(right, left, own, sign)
    return _corners(left, right, np.multiply)


def _corners(left: Outward, right: Outward, times: Callable[[Any, Any], Any]) -> Outward:
    (less, most), (other_less, other_most) = left, right
    low, other_ends = -less, (-other_less, other_most)
    return (reduce(np.maximum, (times(end, other) for end in (less, -most) for other in other_ends)),
            reduce(np.maximum, (times(end, other) for end in (low, most) for other in other_ends)))


def _finite_times(left: Any, right: Any) -> Any:
    """Multiply ends of finite values, which may be infinite."""
    return np.where((left == 0) | (right == 0), 0.0, left * right)


def _quotient(args: Sequence[Outward], signs: Sequence[str]) -> Outward:
    (less, most), (other_less, greatest) = args
    least = -other_less
    if UNBOUNDED in signs:
        ends = _quotient(args, [ANY, ANY])
        return tuple(np.where(np.isnan(end), np.inf, end) for end in ends)  # type: ignore[return-value]
    with_sign = _QUOTIENTS[signs[0]]
    if np.all(least > 0):
        return with_sign(less, most, least, greatest)
    above = with_sign(less, most, least, greatest)
    below = _any_over(most, less, -greatest, -least)
    return tuple(np.where(least > 0, end, np.where(greatest < 0, other, np.inf))
                 for end, other in zip(above, below, strict=True))  # type: ignore[return-value]


def _any_over(less: Any, most: Any, least: Any, greatest: Any) -> Outward:
    return np.maximum(less / least, less / greatest), np.maximum(most / least, most / greatest)


_QUOTIENTS: Mapping[str, Callable[[Any, Any, Any, Any], Outward]] = {
    POSITIVE: lambda less, most, least, greatest: (less / greatest, most / least),
    NEGATIVE: lambda less, most, least, greatest: (less / least, most / greatest),
    ANY: _any_over,
}


def _ceiling(args: Sequence[Outward], signs: Sequence[str]) -> Outward:
    less, most = _quotient(args, signs)
    return np.floor(less), np.ceil(most)


def _floor(args: Sequence[Outward], signs: Sequence[str]) -> Outward:
    less, most = _quotient(args, signs)
    return np.ceil(less), np.floor(most)


def _largest(args: Sequence[Outward], _: Sequence[str]) -> Outward:
    return _folded(np.minimum, (less for less, _ in args)), _folded(np.maximum, (most for _, most in args))


def _smallest(args: Sequence[Outward], _: Sequence[str]) -> Outward:
    return _folded(np.maximum, (less for less, _ in args)), _folded(np.minimum, (most for _, most in args))


def _chosen(args: Sequence[Outward], _: Sequence[str]) -> Outward:
    (surely, maybe), *both = args
    less, most = (np.where(surely, yes, np.where(maybe, np.maximum(yes, no), no))
                  for yes, no in zip(*both, strict=True))
    return less, most


def _multiple(args: Sequence[Outward], _: Sequence[str]) -> Outward:
    """Return the least common multiple of numbers above 0: no less than either, no more than the product."""
    (less, most), (other_less, other_most) = args
    point = (less == -most) & (other_less == -other_most)
    exact = np.lcm(*(np.where(point, end, 1).astype(np.int64) for end in (most, other_most))).astype(np.float64)
    return np.where(point, -exact, np.minimum(less, other_less)), np.where(point, exact, most * other_most)


def _equal(args: Sequence[Outward], _: Sequence[str]) -> Outward:
    (less, most), (other_less, other_most) = args
    surely = (less == -most) & (other_less == -other_most) & (most == other_most)
    return surely, np.logical_not((-less > other_most) | (-other_less > most))


def _divides(args: Sequence[Outward], _: Sequence[str]) -> Outward:
    (less, most), (other_less, other_most) = args
    point, rest = (less == -most) & (other_less == -other_most), np.fmod(other_most, most)
    return point & (rest == 0), np.logical_not(point & (np.abs(rest) > 0))


_RULES: Mapping[str, Callable[[Sequence[Outward], Sequence[str]], Outward]] = {
    ops.ADD: _sum, ops.MUL: _product, ops.DIV: _quotient, ops.CEIL_DIV: _ceiling, ops.FLOOR_DIV: _floor,
    ops.MAX: _largest, ops.MIN: _smallest, ops.SELECT: _chosen, ops.LCM: _multiple, ops.EQ: _equal,
    ops.DIVIDES: _divides,
    ops.LE: lambda args, _: (args[0][1] <= -args[1][0], np.logical_not(-args[0][0] > args[1][1])),
    ops.LT: lambda args, _: (args[0][1] < -args[1][0], np.logical_not(-args[0][0] >= args[1][1])),
    ops.AND: lambda args, _: tuple(reduce(np.logical_and, ends) for ends in zip(*args, strict=True)),
    ops.OR: lambda args, _: tuple(reduce(np.logical_or, ends) for ends in zip(*args, strict=True)),
    ops.NOT: lambda args, _: (np.logical_not(args[0][1]), np.logical_not(args[0][0])),
}
