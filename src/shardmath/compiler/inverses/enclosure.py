"""From the graph of an expression in one symbol to its pieces: every operation on polynomials instead of numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from math import lcm

from ..expressions import ops
from ..expressions.differences import difference, plain
from ..expressions.differences import number as number_of
from ..expressions.graph import Graph, Node, ordered_without
from .laurent import Laurent, NoClosedFormError, constant
from .pieces import (
    Pieces,
    Truth,
    added,
    between,
    compared,
    divided,
    largest,
    multiplied,
    number,
    padded,
    polynomial,
    rounded,
    selected,
    smallest,
)


def enclosed(graph: Graph, root: Node, name: str, first: int, last: int) -> Pieces:
    """Return the bounds of ``root``, in ``name`` alone, at the integers from ``first``, at least 1, to ``last``.

    ``graph`` is that of ``root``.

    Raises NoClosedFormError where there are none.
    """
    return _Enclosure(graph, name, first, last).pieces(root)


class _Enclosure:
    """Pieces and truths of the nodes of one graph on one stretch of integers."""

    def __init__(self, graph: Graph, name: str, first: int, last: int) -> None:
        self.graph, self.name, self.first, self.last = graph, name, first, last
        self._values: dict[Node, Pieces] = {}
        self._truths: dict[Node, Truth] = {}
        self._unknown: dict[Node, NoClosedFormError] = {}
        self._rules: dict[str, Callable[[Node], Pieces]] = {
            ops.ADD: self._sum,
            ops.MUL: self._product,
            ops.DIV: lambda node: divided(*self._of(node.args)),
            ops.CEIL_DIV: self._quotient, ops.FLOOR_DIV: self._quotient, ops.LCM: self._multiple,
            ops.MAX: lambda node: largest(self._of(node.args)),
            ops.MIN: lambda node: smallest(self._of(node.args)),
            ops.SELECT: lambda node: selected(self._truths[node.args[0]], *self._of(node.args[1:])),
        }

    def pieces(self, root: Node) -> Pieces:
        for node in ordered_without([root], self._values.keys() | self._truths.keys() | self._unknown.keys()):
            if node.is_condition:
                self._truths[node] = self._truth(node)
            elif node.op == ops.NUMBER:
                self._values[node] = self._polynomial(constant(plain(number_of(node))))
            elif node.op == ops.NAME:
                if node.value != self.name:
                    raise NoClosedFormError(f"{node.value} has no value")
                self._values[node] = self._polynomial({1: 1} if self.first < self.last else {0: self.first})
            elif node.op in self._rules:
                try:
                    self._values[node] = self._rules[node.op](node)
                except NoClosedFormError as error:  # it may yet be part of a padding
                    self._unknown[node] = error
            else:
                self._unknown[node] = NoClosedFormError(f"an operation {node.op}")
        return self._of([root])[0]

    def _polynomial(self, exact: Laurent) -> Pieces:
        return polynomial(self.first, self.last, exact)

    def _of(self, nodes: Iterable[Node]) -> list[Pieces]:
        nodes = list(nodes)
        for node in nodes:
            if node in self._unknown:
                raise self._unknown[node]
        return [self._values[node] for node in nodes]

    def _sum(self, node: Node) -> Pieces:
        """Return a sum; a rounding that is added in one part and taken away in another does not widen it."""
        parts = self._of(node.args)
        if sum(not piece.is_exact for pieces in parts for piece in pieces) > 1:
            counts = difference(self.graph, node)
            parts = [multiplied(self._polynomial(constant(count)), self.pieces(part)) for part, count in counts.items()]
        return added(parts or [self._polynomial({})])

    def _product(self, node: Node) -> Pieces:
        """Return a product; a quotient rounded up times its divisor is a padding, which adds less than the divisor."""
        factors = list(node.args)
        values = []
        for factor in node.args:
            if factor.op == ops.CEIL_DIV and factor.args[1] in factors and factor in factors:
                factors.remove(factor)
                factors.remove(factor.args[1])
                values.append(padded(*self._of(factor.args)))
        values += self._of(factors)
        result = values[0]
        for other in values[1:]:
            result = multiplied(result, other)
        return result

    def _quotient(self, node: Node) -> Pieces:
        over, under = self._of(node.args)
        return rounded(over, under, node.op == ops.CEIL_DIV)

    def _multiple(self, node: Node) -> Pieces:
        """Return the least common multiple: at least each of both, at most their product."""
        size, two = self._of(node.args)
        left, right = number(size), number(two)
        if left is not None and right is not None and Fraction(left).denominator == Fraction(right).denominator == 1:
            return self._polynomial({0: lcm(int(left), int(right))})
        return between(largest((size, two)), multiplied(size, two))

    def _truth(self, node: Node) -> Truth:
        if node.op == ops.TRUTH:
            return ((self.first, self.last, bool(node.value)),)
        if node.op in (ops.EQ, ops.LE, ops.LT):
            if self._unknown.keys() & {*node.args}:
                return ((self.first, self.last, None),)
            return compared(node.op, *self._of(node.args))
        if node.op == ops.NOT:
            return tuple((first, last, None if holds is None else not holds)
                         for first, last, holds in self._truths[node.args[0]])
        if node.op in (ops.AND, ops.OR):
            return self._connected(node)
        if node.op == ops.DIVIDES:
            return ((self.first, self.last, None),)
        raise NoClosedFormError(f"a condition {node.op}")

    def _connected(self, node: Node) -> Truth:
        decisive = node.op == ops.OR
        ends = sorted({last for arg in node.args for _, last, _ in self._truths[arg]})
        stretches, start = [], self.first
        for end in ends:
            answers = {next(holds for first, last, holds in self._truths[arg] if first <= end <= last)
                       for arg in node.args}
            answer = decisive if decisive in answers else None if None in answers else not decisive
            stretches.append((start, end, answer))
            start = end + 1
        return tuple(stretches)
