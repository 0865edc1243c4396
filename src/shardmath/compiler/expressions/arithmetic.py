"""Arithmetic on intervals: the least and the largest value of an operation from those of its arguments, exactly."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import product
from math import ceil, floor, inf, isinf
from typing import TypeAlias

from . import ops
from .differences import Rational

#: A bound: an exact number, or an infinity where there is none.
Bound: TypeAlias = "Fraction | int | float"
Interval: TypeAlias = tuple[Bound, Bound]

UNBOUNDED: Interval = (-inf, inf)


def interval_of(op: str, parts: Sequence[Interval]) -> Interval:
    """Where the result of an operation on numbers is; ``parts`` are where its arguments are."""
    if op == ops.ADD:
        return sum(low for low, _ in parts), sum(high for _, high in parts)
    if op == ops.MUL:
        return _product(parts)
    if op == ops.MAX:
        return max(low for low, _ in parts), max(high for _, high in parts)
    if op == ops.MIN:
        return min(low for low, _ in parts), min(high for _, high in parts)
    if op == ops.SELECT:
        return min(low for low, _ in parts[1:]), max(high for _, high in parts[1:])
    if op == ops.LCM:
        (left, left_high), (right, right_high) = parts
        return (max(floor(left), floor(right)), times(left_high, right_high)) if min(left, right) >= 1 else (
            UNBOUNDED)
    return _rounded(op, _quotient(*parts))


def times(left: Bound, right: Bound) -> Bound:
    """Return a product in which 0 outweighs infinity."""
    return 0 if left == 0 or right == 0 else left * right


def _product(parts: Iterable[Interval]) -> Interval:
    low: Bound = 1
    high: Bound = 1
    for part in parts:
        corners = [times(left, right) for left, right in product((low, high), part)]
        low, high = min(corners), max(corners)
    return low, high


def _quotient(over: Interval, under: Interval) -> Interval:
    """Return bounds of a quotient by something positive; none if it may be 0 or less."""
    if under[0] <= 0:
        return UNBOUNDED
    return _product((over, (0 if isinf(under[1]) else 1 / Fraction(under[1]), 1 / Fraction(under[0]))))


def _rounded(op: str, bounds: Interval) -> Interval:
    if op == ops.DIV:
        return bounds
    whole = ceil if op == ops.CEIL_DIV else floor
    low, high = (bound if isinf(bound) else whole(bound) for bound in bounds)
    return low, high


def exact_bound(bound: Bound) -> Rational:
    """Return a bound that is known to be finite."""
    assert not isinstance(bound, float)
    return bound
