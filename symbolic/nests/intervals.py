"""What the bounds of names say about expressions: intervals, decided comparisons, arguments that are never chosen.

All of it holds for every value within the bounds, because it is exact interval arithmetic on fractions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import product
from math import ceil, floor, inf, isinf
from typing import TypeAlias

from .graph import (
    ADD,
    CEIL_DIV,
    DIV,
    EQ,
    FLOOR_DIV,
    LCM,
    LE,
    LT,
    MAX,
    MIN,
    MUL,
    NAME,
    NUMBER,
    SELECT,
    Graph,
    Node,
    ordered,
    ordered_without,
)

#: A bound: an exact number, or an infinity where there is none.
Bound: TypeAlias = "Fraction | int | float"
#: Integers are much faster than fractions.
Rational: TypeAlias = "Fraction | int"
#: The least and the largest value of a name, where it has one.
Limits: TypeAlias = tuple[int | None, int | None]
Interval: TypeAlias = tuple[Bound, Bound]

UNBOUNDED: Interval = (-inf, inf)
_INTEGERS = frozenset((ADD, MUL, MAX, MIN, SELECT))
_ROUNDED = frozenset((NAME, CEIL_DIV, FLOOR_DIV, LCM))


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
        """The same with tighter bounds of one name."""
        node = self.graph.name(name)
        least, most = self.names.get(name, (None, None))
        limits = (_tighter(max, least, low), _tighter(min, most, high))
        changed = users(self._intervals, {node})
        kept = {inner: found for inner, found in self._intervals.items() if inner not in changed}
        return Bounds(self.graph, {**self.names, name: limits}, self.facts, kept)

    def with_fact(self, difference: Node) -> Bounds:
        """The same where ``difference`` is at least 0."""
        return Bounds(self.graph, self.names, (*self.facts, difference), self._intervals)

    @property
    def are_possible(self) -> bool:
        """False if a name has no value left."""
        return all(low is None or high is None or low <= high for low, high in self.names.values())

    def equal_names(self) -> tuple[Node, Node] | None:
        """Two names that the latest fact and another one say to be equal."""
        *facts, latest = self.facts or (self.graph.number(0),)
        parts = difference(self.graph, latest)
        opposites = (self.graph.mul((self.graph.number(-1), fact)) for fact in facts)
        if sorted(parts.values()) == [-1, 1] and any(not difference(self.graph, latest, fact) for fact in opposites):
            one, other = parts
            return one, other
        return None

    def with_equal(self, gone: Node, kept: Node) -> Bounds:
        """The same for expressions that have the name ``kept`` for ``gone`` as well."""
        facts = tuple(fact for fact in self.facts if len(difference(self.graph, fact).keys() - {gone, kept}) > 0)
        facts = tuple(self.graph.replaced(facts, {gone: kept}))
        return Bounds(self.graph, self.names, facts).with_name(str(kept.value), *self.names[str(gone.value)])

    def interval(self, node: Node) -> Interval:
        """The least and the largest value that ``node`` can have."""
        found = self._intervals.get(node)
        if found is None:
            for inner in ordered_without([node], self._intervals):
                self._intervals[inner] = self._computed(inner)
            found = self._intervals[node]
        return found

    def least_difference(self, larger: Node, smaller: Node) -> Bound:
        """A lower bound of ``larger - smaller``."""
        known = self.graph.number(0)
        return max(self.least(difference(self.graph, larger, smaller, fact)) for fact in (known, *self.facts))

    def least(self, summands: Mapping[Node, Rational]) -> Bound:
        """A lower bound of a sum of multiples, without the facts."""
        return sum(
            _times(count, self.interval(node)[0 if count > 0 else 1]) for node, count in summands.items()
        )

    def is_integer(self, node: Node) -> bool:
        """True if ``node`` is an integer wherever it has a value; False if that is not certain."""
        if node.op == NUMBER:
            return _number(node).denominator == 1
        numbers = node.args[1:] if node.op == SELECT else node.args
        return node.op in _ROUNDED or (node.op in _INTEGERS and all(map(self.is_integer, numbers)))

    def folded(self, roots: Iterable[Node], changed: Iterable[Node] | None = None) -> list[Node]:
        """Copies of ``roots`` without what the bounds decide; what does not use ``changed`` stays as it is."""
        roots = list(roots)
        done: dict[Node, Node] = {}
        nodes = ordered(roots)
        affected = set(nodes) if changed is None else users(nodes, set(changed))
        for node in nodes:
            if node not in affected:
                done[node] = node
                continue
            args = tuple(done[arg] for arg in node.args)
            if node.op == DIV:
                new = quotient(self.graph, *args)
            elif node.op in (MAX, MIN):
                new = self.graph.extreme(node.op, self._possible(node.op, args))
            else:
                new = self.graph.rebuilt(node, args)
            done[node] = self._decided(new)
        return [done[root] for root in roots]

    def _decided(self, node: Node) -> Node:
        if node.op in (EQ, LE, LT):
            truth = self._truth(node.op, *node.args)
            return node if truth is None else self.graph.truth(truth)
        if node.op == NUMBER or node.is_condition:
            return node
        low, high = self.interval(node)
        if low == high and not isinf(low):
            return self.graph.number(Fraction(low))
        return self._factored(node) if node.op == ADD and low < 0 else node

    def _factored(self, node: Node) -> Node:
        """A sum as a product with what all its parts have in common: ``a - a b`` as ``a (1 - b)``."""
        factors = [_factors(self.graph.coefficient(part)[1]) for part in node.args]
        common = [factor for factor in factors[0] if factor.op != NUMBER and all(factor in part for part in factors)]
        if not common:
            return node
        divisor = self.graph.mul(dict.fromkeys(common))
        return self.graph.mul((divisor, self.graph.add(quotient(self.graph, part, divisor) for part in node.args)))

    def _truth(self, op: str, left: Node, right: Node) -> bool | None:
        above, below = self.least_difference(left, right), self.least_difference(right, left)
        if op == EQ:
            return False if above > 0 or below > 0 else True if above >= 0 and below >= 0 else None
        if op == LE:
            return True if below >= 0 else False if above > 0 else None
        return True if below > 0 else False if above >= 0 else None

    def _possible(self, op: str, args: tuple[Node, ...]) -> list[Node]:
        kept = list(dict.fromkeys(args))
        for node in tuple(kept):
            others = [other for other in kept if other is not node]
            pairs = [(other, node) if op == MAX else (node, other) for other in others]
            if any(self.least_difference(*pair) >= 0 for pair in pairs):
                kept = others
        return kept

    def _computed(self, node: Node) -> Interval:
        if node.op == NUMBER:
            value = plain(_number(node))
            return value, value
        if node.op == NAME:
            least, most = self.names.get(str(node.value), (None, None))
            return -inf if least is None else least, inf if most is None else most
        if node.is_condition:
            return UNBOUNDED
        parts = [self._intervals[arg] for arg in node.args]
        if node.op == ADD:
            return sum(low for low, _ in parts), sum(high for _, high in parts)
        if node.op == MUL:
            return _product(parts)
        if node.op == MAX:
            return max(low for low, _ in parts), max(high for _, high in parts)
        if node.op == MIN:
            return min(low for low, _ in parts), min(high for _, high in parts)
        if node.op == SELECT:
            return min(low for low, _ in parts[1:]), max(high for _, high in parts[1:])
        if node.op == LCM:
            (left, left_high), (right, right_high) = parts
            return (max(floor(left), floor(right)), _times(left_high, right_high)) if min(left, right) >= 1 else (
                UNBOUNDED)
        return _rounded(node.op, _quotient(*parts))


def difference(graph: Graph, larger: Node, *smaller: Node) -> dict[Node, Rational]:
    """``larger`` less all of ``smaller`` as multiples of nodes that are no sums, without what both sides have."""
    found: dict[Node, Rational] = {}
    pending: list[tuple[Node, Rational]] = [(larger, 1), *((node, -1) for node in smaller)]
    while pending:
        node, times = pending.pop()
        count, rest = (_number(node), graph.number(1)) if node.op == NUMBER else graph.coefficient(node)
        times *= plain(count)
        if rest.op == ADD:
            pending += [(arg, times) for arg in rest.args]
        else:
            found[rest] = found.get(rest, 0) + times
    return {node: count for node, count in found.items() if count}


def users(nodes: Iterable[Node], changed: set[Node]) -> set[Node]:
    """``changed`` and all of ``nodes``, which come after their arguments, that are made of them."""
    found = set(changed)
    found.update(node for node in nodes if any(arg in found for arg in node.args))
    return found


def _tighter(choose: Callable[[int, int], int], one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else choose(one, other)


def quotient(graph: Graph, over: Node, under: Node) -> Node:
    """``over / under`` without the factors that both have, also if they are factors of every part of a sum."""
    parts = over.args if over.op == ADD else (over,)
    factors = [_factors(part) for part in parts]
    below = _factors(under)
    for factor in tuple(below):
        if factor.op != NUMBER and all(factor in inside for inside in factors):
            below.remove(factor)
            for inside in factors:
                inside.remove(factor)
    if len(below) == len(_factors(under)):
        return graph.binary(DIV, over, under)
    return graph.binary(DIV, graph.add(map(graph.mul, factors)), graph.mul(below))


def _factors(node: Node) -> list[Node]:
    return list(node.args) if node.op == MUL else [node]


def _times(left: Bound, right: Bound) -> Bound:
    return 0 if left == 0 or right == 0 else left * right


def _product(parts: Iterable[Interval]) -> Interval:
    low: Bound = 1
    high: Bound = 1
    for part in parts:
        corners = [_times(left, right) for left, right in product((low, high), part)]
        low, high = min(corners), max(corners)
    return low, high


def _quotient(over: Interval, under: Interval) -> Interval:
    """Bounds of a quotient by something positive; none if it may be 0 or less."""
    if under[0] <= 0:
        return UNBOUNDED
    return _product((over, (0 if isinf(under[1]) else 1 / Fraction(under[1]), 1 / Fraction(under[0]))))


def _rounded(op: str, bounds: Interval) -> Interval:
    if op == DIV:
        return bounds
    whole = ceil if op == CEIL_DIV else floor
    low, high = (bound if isinf(bound) else whole(bound) for bound in bounds)
    return low, high


def plain(value: Fraction) -> Rational:
    """The same number, as an integer if it is one."""
    return value.numerator if value.denominator == 1 else value


def exact_bound(bound: Bound) -> Rational:
    """A bound that is known to be finite."""
    assert not isinstance(bound, float)
    return bound


def _number(node: Node) -> Fraction:
    assert isinstance(node.value, Fraction)
    return node.value
