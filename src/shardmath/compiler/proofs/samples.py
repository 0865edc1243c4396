"""Values of expressions at random points of a case: what fails there needs no proof.

Points only refute: they are floats, and nothing follows from what holds at all of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..expressions import ops
from ..expressions.arrays import constant, operated
from ..expressions.graph import Node, ordered, ordered_without
from .case import Case

_POINTS = 160
#: Widths, as powers of e, of the ranges above a least value that numbers are drawn from.
_WIDTHS = (0.0, 0.7, 1.5, 3.0, 8.0)
_CLOSE = 1e-9


class Samples:
    """Random points of a case that keep its conditions."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self._known: dict[Node, Any] = {}
        generator = np.random.default_rng(len(case.bounds.names))
        needed = [node for node in ordered((*case.roots, *case.conditions, *case.tops.values())) if node.op == ops.NAME]
        names = sorted({*needed, *case.tops}, key=lambda node: (node in case.tops, node.serial))
        for node in names:
            low, high = case.bounds.interval(node)
            start = 0.0 if low == -np.inf else float(low)
            drawn = start + np.floor(np.exp(generator.random(_POINTS) * generator.choice(_WIDTHS, _POINTS)) - 1)
            drawn = np.minimum(drawn, float(high))
            if node in case.tops:
                top = np.broadcast_to(self.values(case.tops[node]), (_POINTS,))
                drawn = np.minimum(np.where(generator.random(_POINTS) < 0.5, drawn, top), top)
            self._known[node] = drawn
        self._met = np.ones(_POINTS, bool)
        for condition in case.conditions:
            self._met &= self.values(condition)

    def values(self, node: Node) -> NDArray[Any]:
        """Return the value of a number or condition at every point."""
        with np.errstate(all="ignore"):
            for inner in ordered_without([node], self._known):
                self._known[inner] = operated(inner, self._known) if inner.args else constant(inner)
        return self._known[node]  # type: ignore[no-any-return]

    def refute(self, larger: Node, smaller: Node, *, strict: bool) -> bool:
        """Return True if ``smaller`` exceeds ``larger`` somewhere; with ``strict`` also if they are equal."""
        left, right = self.values(smaller), self.values(larger)
        gap = left - right if strict else left - right - _CLOSE * (np.abs(left) + np.abs(right))
        broken = (gap >= 0 if strict else gap > 0) & self._met
        return bool(np.any(broken))
