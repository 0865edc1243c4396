"""Consequences of the bounds of names: intervals, decided comparisons, arguments that are never chosen.

All of it holds for every value within the bounds, because it is exact interval arithmetic on fractions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import inf, isinf
from typing import TypeAlias

from . import ops
from .arithmetic import UNBOUNDED, Bound, Interval, interval_of, times
from .differences import Rational, difference, factors, number, plain, quotient
from .graph import Graph, Node, ordered, ordered_without

#: The least and the largest value of a name, where it has one.
Limits: TypeAlias = tuple[int | None, int | None]

_INTEGERS = frozenset((ops.ADD, ops.MUL, ops.MAX, ops.MIN, ops.SELECT))
_ROUNDED = frozenset((ops.NAME, ops.CEIL_DIV, ops.FLOOR_DIV, ops.LCM))


@dataclass(frozen=True)
class Bounds:
    """The least and the largest value of each name; all are integers, and a name without bounds may have any value.

    ``facts`` are differences of names that are known to be at least 0.
    """

    graph: Graph
    names: Mapping[str, Limits]
    facts: tuple[Node, ...] = ()
    _intervals: dict[Node, Interval] = field(default_factory=dict)

    def with_name(self, name: str, low: int | None, high: int | None) -> Bounds:
        """Return the same with tighter bounds of one name."""
        node = self.graph.name(name)
        least, most = self.names.get(name, (None, None))
        limits = (_tighter(max, least, low), _tighter(min, most, high))
        changed = users(self._intervals, {node})
        kept = {inner: interval for inner, interval in self._intervals.items() if inner not in changed}
        return Bounds(self.graph, {**self.names, name: limits}, self.facts, kept)

    def with_fact(self, difference: Node) -> Bounds:
        """Return the same where ``difference`` is at least 0."""
        return Bounds(self.graph, self.names, (*self.facts, difference), self._intervals)

    @property
    def are_possible(self) -> bool:
        """False if a name has no value left."""
        return all(low is None or high is None or low <= high for low, high in self.names.values())

    def equal_names(self) -> tuple[Node, Node] | None:
        """Return two names that the latest fact and another one say to be equal."""
        *facts, latest = self.facts or (self.graph.number(0),)
        parts = difference(self.graph, latest)
        opposites = (self.graph.mul((self.graph.number(-1), fact)) for fact in facts)
        if sorted(parts.values()) == [-1, 1] and any(not difference(self.graph, latest, fact) for fact in opposites):
            first, other = parts
            return first, other
        return None

    def with_equal(self, gone: Node, kept: Node) -> Bounds:
        """Return the same for expressions that have the name ``kept`` for ``gone`` as well."""
        facts = tuple(fact for fact in self.facts if len(difference(self.graph, fact).keys() - {gone, kept}) > 0)
        facts = tuple(self.graph.replaced(facts, {gone: kept}))
        return Bounds(self.graph, self.names, facts).with_name(str(kept.value), *self.names[str(gone.value)])

    def interval(self, node: Node) -> Interval:
        """Return the least and the largest value that ``node`` can have."""
        interval = self._intervals.get(node)
        if interval is None:
            for inner in ordered_without([node], self._intervals):
                self._intervals[inner] = self._computed(inner)
            interval = self._intervals[node]
        return interval

    def least_difference(self, larger: Node, smaller: Node) -> Bound:
        """Return a lower bound of ``larger - smaller``."""
        known = self.graph.number(0)
        return max(self.least(difference(self.graph, larger, smaller, fact)) for fact in (known, *self.facts))

    def least(self, summands: Mapping[Node, Rational]) -> Bound:
        """Return a lower bound of a sum of multiples, without the facts."""
        return sum(
            times(count, self.interval(node)[0 if count > 0 else 1]) for node, count in summands.items()
        )

    def is_integer(self, node: Node) -> bool:
        """Return True if ``node`` is an integer wherever it has a value; False if that is not certain."""
        if node.op == ops.NUMBER:
            return number(node).denominator == 1
        numbers = node.args[1:] if node.op == ops.SELECT else node.args
        return node.op in _ROUNDED or (node.op in _INTEGERS and all(map(self.is_integer, numbers)))

    def folded(self, roots: Iterable[Node], changed: Iterable[Node] | None = None) -> list[Node]:
        """Return copies of ``roots`` without what the bounds decide; what does not use ``changed`` stays as it is."""
        roots = list(roots)
        done: dict[Node, Node] = {}
        nodes = ordered(roots)
        affected = set(nodes) if changed is None else users(nodes, set(changed))
        for node in nodes:
            if node not in affected:
                done[node] = node
                continue
            args = tuple(done[arg] for arg in node.args)
            if node.op == ops.DIV:
                new = quotient(self.graph, *args)
            elif node.op in (ops.MAX, ops.MIN):
                new = self.graph.extreme(node.op, self._possible(node.op, args))
            else:
                new = self.graph.rebuilt(node, args)
            done[node] = self._decided(new)
        return [done[root] for root in roots]

    def _decided(self, node: Node) -> Node:
        if node.op in (ops.EQ, ops.LE, ops.LT):
            truth = self._truth(node.op, *node.args)
            return node if truth is None else self.graph.truth(truth)
        if node.op == ops.NUMBER or node.is_condition:
            return node
        low, high = self.interval(node)
        if low == high and not isinf(low):
            return self.graph.number(Fraction(low))
        return self._factored(node) if node.op == ops.ADD and low < 0 else node

    def _factored(self, node: Node) -> Node:
        """Return a sum as a product with what all its parts have in common: ``a - a b`` as ``a (1 - b)``."""
        parts = [factors(self.graph.coefficient(part)[1]) for part in node.args]
        common = [factor for factor in parts[0] if factor.op != ops.NUMBER and all(factor in part for part in parts)]
        if not common:
            return node
        divisor = self.graph.mul(dict.fromkeys(common))
        return self.graph.mul((divisor, self.graph.add(quotient(self.graph, part, divisor) for part in node.args)))

    def _truth(self, op: str, left: Node, right: Node) -> bool | None:
        above, below = self.least_difference(left, right), self.least_difference(right, left)
        if op == ops.EQ:
            return False if above > 0 or below > 0 else True if above >= 0 and below >= 0 else None
        if op == ops.LE:
            return True if below >= 0 else False if above > 0 else None
        return True if below > 0 else False if above >= 0 else None

    def _possible(self, op: str, args: tuple[Node, ...]) -> list[Node]:
        kept = list(dict.fromkeys(args))
        for node in tuple(kept):
            others = [other for other in kept if other is not node]
            pairs = [(other, node) if op == ops.MAX else (node, other) for other in others]
            if any(self.least_difference(*pair) >= 0 for pair in pairs):
                kept = others
        return kept

    def _computed(self, node: Node) -> Interval:
        if node.op == ops.NUMBER:
            value = plain(number(node))
            return value, value
        if node.op == ops.NAME:
            least, most = self.names.get(str(node.value), (None, None))
            return -inf if least is None else least, inf if most is None else most
        if node.is_condition:
            return UNBOUNDED
        return interval_of(node.op, [self._intervals[arg] for arg in node.args])


def users(nodes: Iterable[Node], changed: set[Node]) -> set[Node]:
    """Return ``changed`` and all of ``nodes``, which come after their arguments, that are made of them."""
    affected = set(changed)
    affected.update(node for node in nodes if any(arg in affected for arg in node.args))
    return affected


def _tighter(choose: Callable[[int, int], int], first: int | None, other: int | None) -> int | None:
    return other if first is None else first if other is None else choose(first, other)
