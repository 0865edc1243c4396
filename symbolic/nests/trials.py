"""Values of expressions at random points within bounds: what fails there needs no proof.

Points only refute. They are floats, so nothing may follow from a comparison that holds at all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .bounds import Bounds
from .graph import (
    ADD, AND, CEIL_DIV, DIV, DIVIDES, EQ, FLOOR_DIV, LCM, LE, LT, MAX, MIN, MUL, NAME, NOT, NUMBER, OR, SELECT, TRUTH,
    Node, ordered,
)

Column: TypeAlias = NDArray[Any]

_POINTS = 192
#: Widths, as powers of e, of the ranges above a least value that numbers are drawn from.
_RANGES = (0.0, 1.0, 4.0, 12.0)
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


def values(roots: Sequence[Node], names: Mapping[str, Column]) -> list[Column]:
    """Evaluate ``roots`` with a column of values for every name."""
    known: dict[Node, Any] = {}
    with np.errstate(all="ignore"):
        for node in ordered(roots):
            if node.op == NAME:
                known[node] = names[str(node.value)]
            elif node.op in (NUMBER, TRUTH):
                known[node] = node.value if node.op == TRUTH else float(node.value)  # type: ignore[arg-type]
            else:
                known[node] = _OPERATIONS[node.op](*(known[arg] for arg in node.args))
    return [known[root] for root in roots]


def points(roots: Sequence[Node], bounds: Bounds) -> dict[str, Column]:
    """Random values of the names in ``roots``, within the bounds and as the facts say."""
    generator = np.random.default_rng(len(roots))
    names = {str(node.value) for node in ordered((*roots, *bounds.facts)) if node.op == NAME}
    drawn = {}
    for name in sorted(names):
        low, high = bounds.interval(bounds.graph.name(name))
        above = np.exp(generator.random(_POINTS) * generator.choice(_RANGES, _POINTS)) - 1
        drawn[name] = np.minimum(np.floor(max(low, 0) + above), high) if low >= 0 else low + above
    met = np.ones(_POINTS, bool)
    for fact in values(bounds.facts, drawn):
        met &= fact >= 0
    return {name: column[met] for name, column in drawn.items()}


def perhaps_dominated(roots: Sequence[Node], bounds: Bounds) -> Column:
    """A table that is False in row i, column j where ``roots[i]`` exceeds ``roots[j]`` at some point."""
    drawn = points(roots, bounds)
    count = len(next(iter(drawn.values()), ()))
    rows = np.array([np.broadcast_to(np.asarray(row, float), count) for row in values(roots, drawn)])
    return ~np.any(rows[:, None, :] > rows[None, :, :] * _CLOSE, axis=2)
