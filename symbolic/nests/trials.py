"""Values of expressions at random points within bounds: what fails there needs no proof.

Points only refute. They are floats, so nothing may follow from a comparison that holds at all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .graph import (
    ADD,
    AND,
    CEIL_DIV,
    DIV,
    DIVIDES,
    EQ,
    FLOOR_DIV,
    LCM,
    LE,
    LT,
    MAX,
    MIN,
    MUL,
    NAME,
    NOT,
    NUMBER,
    OR,
    SELECT,
    TRUTH,
    Node,
    ordered,
    ordered_without,
)
from .intervals import Bounds

Column: TypeAlias = NDArray[Any]

_POINTS = 96
#: Widths, as powers of e, of the ranges above a least value that numbers are drawn from.
_RANGES = (0.0, 1.0, 4.0, 12.0)
_LARGE = 2**40
_CLOSE = 1 + 1e-9
_OPERATIONS: dict[str, Callable[..., Column]] = {
    ADD: lambda *parts: sum(parts[1:], start=parts[0]),
    MUL: lambda *parts: np.prod(np.broadcast_arrays(*parts), axis=0),
    DIV: np.divide,
    CEIL_DIV: lambda over, under: np.ceil(over / under),
    FLOOR_DIV: np.floor_divide,
    LCM: lambda left, right: np.lcm(np.int64(left), np.int64(right)).astype(float),
    MAX: lambda *parts: np.maximum.reduce(np.broadcast_arrays(*parts)),
    MIN: lambda *parts: np.minimum.reduce(np.broadcast_arrays(*parts)),
    SELECT: np.where,
    EQ: np.equal,
    LE: np.less_equal,
    LT: np.less,
    DIVIDES: lambda divisor, dividend: np.mod(dividend, divisor) == 0,
    AND: lambda *parts: np.logical_and.reduce(np.broadcast_arrays(*parts)),
    OR: lambda *parts: np.logical_or.reduce(np.broadcast_arrays(*parts)),
    NOT: np.logical_not,
}


class Points:
    """Random values of all names within bounds, and what expressions are there."""

    def __init__(self, bounds: Bounds, roots: Iterable[Node]) -> None:
        names = {node for node in ordered((*roots, *bounds.facts)) if node.op == NAME}
        generator = np.random.default_rng(len(names))
        self._known: dict[Node, Any] = {}
        for node in sorted(names, key=lambda node: str(node.value)):
            low, high = bounds.interval(node)
            above = np.exp(generator.random(_POINTS) * generator.choice(_RANGES, _POINTS)) - 1
            self._known[node] = np.minimum(np.floor(float(max(low, -_LARGE)) + above), float(high))
        met = np.ones(_POINTS, bool)
        for fact in bounds.facts:
            met &= self.values(fact) >= 0
        self._known = {node: self._known[node][met] for node in names}
        self._count = int(met.sum())

    def values(self, node: Node) -> Column:
        """The value of a number at every point."""
        known = self._known
        if node not in known:
            with np.errstate(all="ignore"):
                for inner in ordered_without([node], known):
                    if inner.op == NUMBER:
                        known[inner] = float(inner.value)  # type: ignore[arg-type]
                    elif inner.op == TRUTH:
                        known[inner] = inner.value
                    else:
                        known[inner] = _OPERATIONS[inner.op](*(known[arg] for arg in inner.args))
        return known[node]  # type: ignore[no-any-return]

    def refute(self, smaller: Node, larger: Node) -> bool:
        """True if ``smaller`` exceeds ``larger`` somewhere."""
        return bool(np.any(self.values(smaller) > self.values(larger) * _CLOSE))

    def refuted(self, nodes: Sequence[Node]) -> Column:
        """A table that is True in row i, column j where the first node exceeds the other one somewhere."""
        rows = np.array([np.broadcast_to(np.asarray(self.values(node), float), self._count) for node in nodes])
        return np.any(rows[:, None, :] > rows[None, :, :] * _CLOSE, axis=2)  # type: ignore[no-any-return]
