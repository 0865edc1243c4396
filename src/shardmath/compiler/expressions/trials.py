"""Values of expressions at random points within bounds: what fails there needs no proof.

Points only refute. They are floats, so nothing may follow from a comparison that holds at all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from . import ops
from .arrays import constant, operated
from .graph import Node, ordered, ordered_without
from .intervals import Bounds

Column: TypeAlias = NDArray[Any]

_POINTS = 96
#: Widths, as powers of e, of the ranges above a least value that numbers are drawn from.
_RANGES = (0.0, 1.0, 4.0, 12.0)
_LARGE = 2**40
_CLOSE = 1 + 1e-9


class Points:
    """Random values of all names within bounds, and what expressions are there."""

    def __init__(self, bounds: Bounds, roots: Iterable[Node]) -> None:
        names = {node for node in ordered((*roots, *bounds.facts)) if node.op == ops.NAME}
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
        """Return the value of a number at every point."""
        known = self._known
        if node not in known:
            with np.errstate(all="ignore"):
                for inner in ordered_without([node], known):
                    known[inner] = operated(inner, known) if inner.args else constant(inner)
        return known[node]  # type: ignore[no-any-return]

    def refute(self, smaller: Node, larger: Node) -> bool:
        """Return True if ``smaller`` exceeds ``larger`` somewhere."""
        return bool(np.any(self.values(smaller) > self.values(larger) * _CLOSE))

    def refuted(self, nodes: Sequence[Node]) -> Column:
        """Return a table that is True in row i, column j where the first node exceeds the other one somewhere."""
        rows = np.array([np.broadcast_to(np.asarray(self.values(node), float), self._count) for node in nodes])
        return np.any(rows[:, None, :] > rows[None, :, :] * _CLOSE, axis=2)  # type: ignore[no-any-return]
