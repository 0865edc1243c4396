"""Operations on columns of intervals: the least and the largest value of a node from those of its arguments.

A condition has two truths in place of two numbers: whether it surely holds, and whether it may hold. Where both ends of
all arguments are equal, so are those of the result, and they are what the operation gives for that one value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, TypeAlias

import numpy as np

from shardmath.compiler.expressions import ops
from shardmath.compiler.expressions.graph import Node

#: Columns of least and of largest values.
Interval: TypeAlias = tuple[Any, Any]
_Rule: TypeAlias = Callable[[Sequence[Interval], Sequence[float]], Interval]


def ranged(node: Node, args: Sequence[Interval], least: Sequence[float]) -> Interval:
    """Return the interval of an operation, where its arguments are nowhere below ``least``.

    Raises KeyError for an operation that spaces do not have.
    """
    return _RULES[node.op](args, least)


def _sum(args: Sequence[Interval], _: Sequence[float]) -> Interval:
    return reduce(np.add, (low for low, _ in args)), reduce(np.add, (high for _, high in args))


def _product(args: Sequence[Interval], least: Sequence[float]) -> Interval:
    if min(least) >= 0:
        return reduce(np.multiply, (low for low, _ in args)), reduce(np.multiply, (high for _, high in args))
    return reduce(_times if min(least) > -np.inf else _times_unbounded, args)


def _times(left: Interval, right: Interval) -> Interval:
    corners = [end * other for end in left for other in right]
    return reduce(np.minimum, corners), reduce(np.maximum, corners)


def _times_unbounded(left: Interval, right: Interval) -> Interval:
    """Multiply where an end may be infinite, though no value is: 0 times it is 0."""
    corners = [np.where((end == 0) | (other == 0), 0.0, end * other) for end in left for other in right]
    return reduce(np.minimum, corners), reduce(np.maximum, corners)


def _quotient(args: Sequence[Interval], smallest: Sequence[float]) -> Interval:
    """Return bounds of a quotient by something positive; none where it may be 0 or less."""
    (low, high), (least, most) = args
    if smallest[0] == -np.inf:  # nothing is known of the quotient of an infinite end
        low, high = (np.where(np.isfinite(low) & np.isfinite(high), end, sign * np.inf)
                     for sign, end in ((-1, low), (1, high)))
    if smallest[0] >= 0:
        below, above = low / most, high / least
    else:
        below, above = np.fmin(low / most, low / least), np.fmax(high / least, high / most)
    if smallest[1] > 0:
        return below, above
    single = (least == most) & (least != 0)  # a single value, even below 0
    return (np.where(single, np.fmin(low / least, high / least), np.where(least > 0, below, -np.inf)),
            np.where(single, np.fmax(low / least, high / least), np.where(least > 0, above, np.inf)))


def _rounded(rounding: np.ufunc) -> _Rule:
    def rule(args: Sequence[Interval], least: Sequence[float]) -> Interval:
        low, high = _quotient(args, least)
        return rounding(low), rounding(high)

    return rule


def _ends(choose: np.ufunc) -> _Rule:
    return lambda args, _: (reduce(choose, (low for low, _ in args)), reduce(choose, (high for _, high in args)))


def _selected(args: Sequence[Interval], _: Sequence[float]) -> Interval:
    (surely, maybe), (low, high), (other_low, other_high) = args
    never = np.logical_not(maybe)
    return (np.where(surely, low, np.where(never, other_low, np.minimum(low, other_low))),
            np.where(surely, high, np.where(never, other_high, np.maximum(high, other_high))))


def _equal(args: Sequence[Interval], _: Sequence[float]) -> Interval:
    (low, high), (least, most) = args
    return (low == high) & (least == most) & (low == least), np.logical_not((low > most) | (least > high))


def _multiple(args: Sequence[Interval], _: Sequence[float]) -> Interval:
    (low, high), (least, most) = args
    single = (low == high) & (least == most)
    exact = np.lcm(np.asarray(low).astype(np.int64), np.asarray(least).astype(np.int64)).astype(np.float64)
    return np.where(single, exact, np.maximum(low, least)), np.where(single, exact, high * most)


def _divides(args: Sequence[Interval], _: Sequence[float]) -> Interval:
    (low, high), (least, most) = args
    single, quotient = (low == high) & (least == most), least / low
    whole = np.floor(quotient) == quotient
    return single & whole, np.logical_not(single) | whole


_RULES: Mapping[str, _Rule] = {
    ops.ADD: _sum, ops.MUL: _product, ops.DIV: _quotient, ops.CEIL_DIV: _rounded(np.ceil),
    ops.FLOOR_DIV: _rounded(np.floor), ops.MAX: _ends(np.maximum), ops.MIN: _ends(np.minimum),
    ops.SELECT: _selected, ops.LCM: _multiple, ops.EQ: _equal, ops.DIVIDES: _divides,
    ops.LE: lambda args, _: (args[0][1] <= args[1][0], np.logical_not(args[0][0] > args[1][1])),
    ops.LT: lambda args, _: (args[0][1] < args[1][0], np.logical_not(args[0][0] >= args[1][1])),
    ops.AND: _ends(np.logical_and), ops.OR: _ends(np.logical_or),
    ops.NOT: lambda args, _: (np.logical_not(args[0][1]), np.logical_not(args[0][0])),
}
