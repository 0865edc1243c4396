"""Comparisons part by part: of two expressions built alike, the one with the larger parts is the larger one."""

from __future__ import annotations

from collections.abc import Sequence

from ..expressions import ops
from ..expressions.differences import Rational, difference
from ..expressions.graph import Node
from .algebra import Algebra
from .case import Case
from .signs import Signs

_ROUNDED = (ops.DIV, ops.CEIL_DIV, ops.FLOOR_DIV)
#: A difference with more terms is not multiplied out.
_LONGEST = 60


class Matched:
    """Proofs by parts in one case; what was compared is remembered."""

    def __init__(self, algebra: Algebra, case: Case) -> None:
        self.algebra, self.graph, self.case = algebra, algebra.graph, case
        self._signs = Signs(algebra)
        self._known: dict[tuple[Node, Node], bool] = {}

    def never_exceeds(self, smaller: Node, larger: Node) -> bool:
        """Return True only if ``smaller`` is at most ``larger`` in the whole case."""
        if smaller is larger:
            return True
        key = (smaller, larger)
        if key not in self._known:
            self._known[key] = False
            self._known[key] = self._by_parts(smaller, larger) or self._by_sign(smaller, larger)
        return self._known[key]

    def _by_sign(self, smaller: Node, larger: Node) -> bool:
        terms = self.algebra.difference(larger, smaller)
        return len(terms) <= _LONGEST and self._signs.is_never_negative(terms, self.case)

    def _by_parts(self, smaller: Node, larger: Node) -> bool:
        if smaller.op == ops.SELECT and larger.op == ops.SELECT and smaller.args[0] is larger.args[0]:
            return all(self.never_exceeds(*pair) for pair in zip(smaller.args[1:], larger.args[1:], strict=True))
        if smaller.op == ops.MAX and larger.op == ops.MAX:
            return all(self._any(arg, larger.args[place:] + larger.args[:place])
                       for place, arg in enumerate(smaller.args))
        if smaller.op == ops.MIN and larger.op == ops.MIN:
            return all(any(self.never_exceeds(other, arg) for other in smaller.args[place:] + smaller.args[:place])
                       for place, arg in enumerate(larger.args))
        if smaller.op == larger.op and smaller.op in _ROUNDED:
            return self._quotients(smaller, larger)
        if ops.MUL in (smaller.op, larger.op):
            return self._products(smaller, larger)
        if ops.ADD in (smaller.op, larger.op):
            return self._sums(smaller, larger)
        return False

    def _any(self, smaller: Node, others: Sequence[Node]) -> bool:
        return any(self.never_exceeds(smaller, other) for other in others)

    def _quotients(self, smaller: Node, larger: Node) -> bool:
        under, other = smaller.args[1], larger.args[1]
        if not self._is_at_least_zero(under, strict=True):
            return False
        if under is other:
            return self.never_exceeds(smaller.args[0], larger.args[0])
        return (smaller.args[0] is larger.args[0] and self._is_at_least_zero(smaller.args[0])
                and self._is_at_least_zero(other, strict=True) and self.never_exceeds(other, under))

    def _products(self, smaller: Node, larger: Node) -> bool:
        """Return products of as many factors that are at least 0, each pair in order."""
        left = list(smaller.args if smaller.op == ops.MUL else (smaller,))
        right = list(larger.args if larger.op == ops.MUL else (larger,))
        common = [factor for factor in left if factor in right]
        for factor in common:
            if factor in left and factor in right:
                left.remove(factor)
                right.remove(factor)
        if len(left) > len(right) or not all(map(self._is_at_least_zero, (*common, *left, *right))):
            return False
        for factor in left:
            partner = next((other for other in right if self.never_exceeds(factor, other)), None)
            if partner is None:
                return False
            right.remove(partner)
        return all(self.never_exceeds(self.graph.number(1), factor) for factor in right)

    def _sums(self, smaller: Node, larger: Node) -> bool:
        """Return summands that only one side has, each with a partner on the other side."""
        counts = difference(self.graph, larger, smaller)
        gains = [(node, count) for node, count in counts.items() if count > 0]
        losses = [(node, -count) for node, count in counts.items() if count < 0]
        for node, count in losses:
            partner = self._partner(node, count, gains)
            if partner is None:
                return False
            gains.remove(partner)
            if partner[1] > count:
                gains.append((partner[0], partner[1] - count))
        return all(self._is_at_least_zero(node) for node, _ in gains)

    def _partner(
        self, node: Node, count: Rational, gains: Sequence[tuple[Node, Rational]],
    ) -> tuple[Node, Rational] | None:
        return next(((other, times) for other, times in gains
                     if times >= count and self.never_exceeds(node, other)), None)

    def _is_at_least_zero(self, node: Node, *, strict: bool = False) -> bool:
        least = self.case.least(node)
        if least is not None and (least > 0 if strict else least >= 0):
            return True
        return self._signs.is_never_negative(self.algebra.of(node), self.case, strict=strict)
