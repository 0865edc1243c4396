"""Quotients by way of reciprocals: one division for all that is divided by the same.

A product is divided by dividing the factor that a rule says is a multiple of the divisor: that quotient is needed for
the rule already, and it is the whole number next to the product with the reciprocal. Any other quotient is that
product, corrected, or just rounded up: see ``quotient`` and ``rounded_up`` in ``kernel.py.jinja``. A quotient that may
not be whole is divided last: what it is multiplied with, alone or in a sum, is in its dividend, as twelve times a third
of ten is whole and a third of ten is rounded. The reciprocal of a product is the product of those of its factors. Where
a rule says what several names multiply to, the reciprocal of one is the product of the others over that, which is one
division for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from ..expressions import ops
from ..expressions.differences import quotient
from ..expressions.graph import Graph, Node, is_power_of_two, ordered
from .choices import factors

_ROUNDED = {ops.CEIL_DIV: ops.CEIL, ops.FLOOR_DIV: ops.FLOOR}
#: Factor that makes a reciprocal too small: by more than its roundings, by less than dividends below 2**48 can tell.
BELOW = 1 - Fraction(1, 2**49)


def with_reciprocals(graph: Graph, conditions: Sequence[Node], roots: Sequence[Node]) -> dict[Node, Node]:
    """Map every node below ``conditions`` and ``roots`` to its form with reciprocals.

    The values are the same where the conditions hold; those of each condition where the conditions before it do.
    """
    dividing = _Dividing(graph)
    rewritten: dict[Node, Node] = {}
    for condition in conditions:
        if condition.op == ops.DIVIDES:
            dividing.known.append(condition.args)
        rewritten[condition] = dividing.rewritten([condition])[condition]
        dividing.multiplied(condition)
    return dividing.rewritten(roots) | rewritten


class _Dividing:
    """Rewrites divisions; ``known`` are divisors with what they divide, or what is just being checked."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.known: list[tuple[Node, ...]] = []
        self._sides: dict[Node, tuple[Node, Node]] = {}
        #: Names with what they multiply to.
        self._products: list[tuple[tuple[Node, ...], Node]] = []

    def multiplied(self, condition: Node) -> None:
        """Note what names multiply to, if that is what the condition says."""
        for total, product in (condition.args, condition.args[::-1]) if condition.op == ops.EQ else ():
            if total.op == ops.NAME and product.op == ops.MUL and all(factor.op == ops.NAME for factor in product.args):
                self._products.append((product.args, total))

    def rewritten(self, roots: Sequence[Node]) -> dict[Node, Node]:
        """Quotients are taken apart as they were written, then made of what their parts have become."""
        apart = self._apart(roots)
        done: dict[Node, Node] = {}
        for node in ordered(apart.values()):
            args = tuple(done[arg] for arg in node.args)
            if node.op == ops.WHOLE and self._is_whole(node.args[0]):
                over, under = (done[side] for side in node.args[0].args)
                done[node] = self.graph.binary(ops.EQ, self.graph.chained(ops.MUL, [args[0], under]), over)
            elif node.op == ops.DIV:
                done[node] = self._nearest(*args) if self._is_whole(node) else self._corrected(*args)
            elif node.op == ops.CEIL:
                done[node] = self._rounded_up(args[0])
            else:
                done[node] = self.graph.rebuilt(node, args)
        return {node: done[new] for node, new in apart.items()}

    # Taking apart.

    def _apart(self, roots: Sequence[Node]) -> dict[Node, Node]:
        done: dict[Node, Node] = {}
        for node in ordered(roots):
            args = tuple(done[arg] for arg in node.args)
            if node.op == ops.DIV:
                done[node] = self._divided(*args)
            elif node.op in _ROUNDED:
                done[node] = self.graph.rounded(_ROUNDED[node.op], self._divided(*args))
            elif node.op == ops.DIVIDES:
                done[node] = self.graph.rounded(ops.WHOLE, self._divided(*reversed(args)))
            elif node.op == ops.LCM:
                done[node] = self._multiple(*args)
            elif node.op == ops.MUL:
                done[node] = self._multiplied(args)
            else:
                done[node] = self.graph.rebuilt(node, args)
        return done

    def _multiplied(self, args: Sequence[Node]) -> Node:
        """Return a product in which nothing but a power of two multiplies a quotient that may not be whole."""
        for place, part in enumerate(args):
            others = self.graph.mul([*args[:place], *args[place + 1:]])
            summands = part.args if part.op == ops.ADD else (part,)
            if any(map(self._has_broken, summands)) and not (others.op == ops.NUMBER and is_power_of_two(others)):
                return self.graph.add(self._into_dividend(others, summand) for summand in summands)
        return self.graph.mul(args)

    def _into_dividend(self, by: Node, summand: Node) -> Node:
        """Return the product of both, divided last if the summand has a quotient that may not be whole."""
        parts = list(factors(summand))
        broken = next(filter(self._is_broken, parts), None)
        if broken is None:
            return self.graph.mul((by, summand))
        parts.remove(broken)
        over, under = broken.args
        return self._divided(self.graph.mul((by, *parts, over)), under)

    def _has_broken(self, summand: Node) -> bool:
        return any(map(self._is_broken, factors(summand)))

    def _is_broken(self, node: Node) -> bool:
        return node.op == ops.DIV and node.args[0].op != ops.NUMBER and not self._is_whole(node)

    def _multiple(self, number: Node, power_of_two: Node) -> Node:
        """Return the least common multiple: the number times what it lacks of the power of two."""
        common = self.graph.binary(ops.COMMON, number, power_of_two)
        return self.graph.mul((number, power_of_two, self._inverse(common)))

    def _inverse(self, node: Node) -> Node:
        return self.graph.binary(ops.DIV, self.graph.number(1), node)

    def _divided(self, over: Node, under: Node) -> Node:
        """Return a quotient of the smallest dividend that is known to be a multiple."""
        if over.op == ops.ADD:
            parts = [self._of_known(part, under) for part in over.args]
            if None not in parts:
                return self.graph.add(part for part in parts if part is not None)
        return self._of_known(over, under) or self._plain(over, under)

    def _of_known(self, over: Node, under: Node) -> Node | None:
        for divisor, dividend in self.known:
            rest, more = _without(factors(over), factors(dividend)), _without(factors(divisor), factors(under))
            if rest is not None and more is not None:
                return self.graph.mul((*rest, *more, self.graph.binary(ops.DIV, dividend, divisor)))
        return None

    def _plain(self, over: Node, under: Node) -> Node:
        """Return the quotient without common factors, a power of two in the divisor apart."""
        count, rest = self.graph.coefficient(under)
        power = _power_of_two(count)
        if power == 1:
            return quotient(self.graph, over, under)
        smaller = self.graph.mul((self.graph.number(count / power), rest))
        return self.graph.mul((self.graph.number(Fraction(1, power)), self._divided(over, smaller)))

    # Putting together.

    def _is_whole(self, node: Node) -> bool:
        return node.op == ops.DIV and node.args[::-1] in self.known

    def _nearest(self, over: Node, under: Node) -> Node:
        nearest = self.graph.rounded(ops.NEAREST, self.graph.mul((over, self._reciprocal(under))))
        self._sides[nearest] = over, under
        return nearest

    def _corrected(self, over: Node, under: Node) -> Node:
        if over is self.graph.number(1):
            return self._reciprocal(under)
        quotient = self.graph.quotient(over, under, self._reciprocal(under))
        self._sides[quotient] = over, under
        return quotient

    def _rounded_up(self, number: Node) -> Node:
        """Return a quotient, or a part of one, needs no correction where it is rounded up."""
        count, rest = self.graph.coefficient(number)
        if rest.op != ops.QUOTIENT or _power_of_two(1 / count) * count != 1:
            return self.graph.rounded(ops.CEIL, number)
        over, _, reciprocal = rest.args
        return self.graph.binary(ops.ROUNDED_UP, over, self.graph.mul((self.graph.number(count * BELOW), reciprocal)))

    def _reciprocal(self, node: Node) -> Node:
        for product, total in self._products:
            some = [factor for factor in product if factor in factors(node)]
            others, rest = _without(product, some), _without(factors(node), some)
            if some and others is not None and rest is not None:
                return self.graph.mul((*others, self._inverse(total), *map(self._reciprocal, rest)))
        if node.op == ops.MUL:
            return self.graph.mul(map(self._reciprocal, node.args))
        if node.op == ops.SELECT:
            condition, *ends = node.args
            return self.graph.select(condition, *map(self._reciprocal, ends))
        if node.op == ops.DIV and node.args[0] is self.graph.number(1):
            return node.args[1]
        if node in self._sides:
            over, under = self._sides[node]
            return self.graph.mul((under, self._reciprocal(over)))
        return self._inverse(node)


def _without(all_factors: Sequence[Node], some: Sequence[Node]) -> list[Node] | None:
    """Return the factors that are left, or None unless all of ``some`` are among them."""
    left = list(all_factors)
    for factor in some:
        if factor not in left:
            return None
        left.remove(factor)
    return left


def _power_of_two(count: Fraction) -> int:
    return count.numerator & -count.numerator if count.denominator == 1 else 1
