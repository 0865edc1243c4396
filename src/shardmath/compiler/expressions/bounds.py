"""Bounds of expressions from the bounds of their names, on exact fractions; and the powers of names in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from itertools import product
from math import ceil, floor

from . import ops
from .graph import Node, ordered

Bounds = tuple[Fraction, Fraction]


def bounds(roots: Iterable[Node], names: Mapping[str, tuple[int | Fraction, int | Fraction]]) -> dict[Node, Bounds]:
    """Return the smallest and the largest value of every number below ``roots`` that is known to have them.

    They may be wider than what occurs: a name that occurs twice counts as two. Left out is what depends on a name
    without bounds, and a quotient whose divisor may be 0.
    """
    bounds_of: dict[Node, Bounds] = {}
    for node in ordered(roots):
        if node.op == ops.NUMBER:
            bounds_of[node] = (Fraction(node.value), Fraction(node.value))  # type: ignore[arg-type]
        elif node.op == ops.NAME:
            if node.value in names:
                low, high = names[str(node.value)]
                bounds_of[node] = (Fraction(low), Fraction(high))
        elif node.op in _RULES:
            args = node.args[1:] if node.op == ops.SELECT else node.args
            known = [bounds_of[arg] for arg in args if arg in bounds_of]
            if len(known) == len(args) and (within := _RULES[node.op](*known)) is not None:
                bounds_of[node] = within
    return bounds_of


def degree(root: Node, names: Mapping[str, int]) -> int:
    """Return the highest power of a name in ``root``; ``names`` has the powers of names that stand for formulas."""
    degrees: dict[Node, int] = {}
    for node in ordered([root]):
        inside = [degrees[arg] for arg in node.args]
        if node.op == ops.NAME:
            degrees[node] = names.get(str(node.value), 1)
        else:
            degrees[node] = sum(inside) if node.op in (ops.MUL, ops.DIV) else max(inside, default=0)
    return degrees[root]


def _sum(*args: Bounds) -> Bounds:
    return sum((low for low, _ in args), Fraction(0)), sum((high for _, high in args), Fraction(0))


def _product(*args: Bounds) -> Bounds:
    low = high = Fraction(1)
    for other in args:
        ends = [left * right for left, right in product((low, high), other)]
        low, high = min(ends), max(ends)
    return low, high


def _quotient(over: Bounds, under: Bounds) -> Bounds | None:
    if under[0] <= 0 <= under[1]:
        return None
    return _product(over, (1 / under[1], 1 / under[0]))


def _rounded(rounding: Callable[[Fraction], int]) -> Callable[[Bounds, Bounds], Bounds | None]:
    def within(over: Bounds, under: Bounds) -> Bounds | None:
        exact = _quotient(over, under)
        return None if exact is None else (Fraction(rounding(exact[0])), Fraction(rounding(exact[1])))

    return within


def _multiple(left: Bounds, right: Bounds) -> Bounds | None:
    return (max(left[0], right[0]), left[1] * right[1]) if left[0] > 0 and right[0] > 0 else None


def _largest(*args: Bounds) -> Bounds:
    return max(low for low, _ in args), max(high for _, high in args)


def _smallest(*args: Bounds) -> Bounds:
    return min(low for low, _ in args), min(high for _, high in args)


def _either(*args: Bounds) -> Bounds:
    return min(low for low, _ in args), max(high for _, high in args)


_RULES: dict[str, Callable[..., Bounds | None]] = {
    ops.ADD: _sum, ops.MUL: _product, ops.DIV: _quotient, ops.CEIL_DIV: _rounded(ceil),
    ops.FLOOR_DIV: _rounded(floor), ops.LCM: _multiple, ops.MAX: _largest, ops.MIN: _smallest, ops.SELECT: _either,
}
