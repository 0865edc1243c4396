"""When all entries of the table are too large: a bound below their estimates, so that they need not be evaluated.

What differs between entries is replaced by its smallest or largest value, whichever makes the estimate smaller. The
bound is a number for each turn of the loops, far cheaper than the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from ..expressions import ops
from ..expressions.graph import Graph, Node, ordered
from ..expressions.intervals import Bounds, Limits
from .order import Order, dependencies
from .problem import ESTIMATE, Histogram, Problem

#: Margin below the bound for rounding.
_MARGIN = 1 - Fraction(1, 2**30)
LOW, HIGH = "low", "high"


def end_name(name: str, end: str) -> str:
    """Return the name of the smallest or largest value of a parameter in the table."""
    return f"{name}_{end}"


def with_skipping(problem: Problem, order: Order, limits: Mapping[str, Limits]) -> Problem:
    """Get the problem with the condition that no entry of the table has any verdict but the last, where one is found.

    ``limits`` are the least and largest values of parameters. Questions about all legal configurations need every
    estimate: with them nothing is skipped.
    """
    if any(question.among is None or isinstance(question, Histogram) for question in problem.questions):
        return problem
    ends = _Ends(problem, order, limits)
    least = ends.of(ends.flat(problem.estimate), LOW)
    if least is None:
        return problem
    graph, estimate = problem.graph, problem.graph.name(ESTIMATE)
    lower = graph.mul((graph.number(_MARGIN), least))
    misses = []
    for verdict in problem.verdicts:
        limit = ends.of(verdict.args[1], HIGH) if verdict.op == ops.LE else None
        if limit is None or estimate not in ordered([verdict.args[0]]):
            return problem
        size = verdict.args[0]
        misses.append(graph.binary(ops.LT, limit, graph.replaced([size], {estimate: lower})[0]))
    skip = graph.logic("and", misses)
    return problem if skip.op == ops.TRUTH else replace(problem, skip=skip)


class _Ends:
    """Bounds of nodes over the entries of the table, as nodes that are the same for all entries."""

    def __init__(self, problem: Problem, order: Order, limits: Mapping[str, Limits]) -> None:
        self.graph: Graph = problem.graph
        self._static = Bounds(problem.graph, dict(limits))
        self._parameters = frozenset(parameter for axis in order.fused for parameter in axis.parameters)
        self._axes = problem.axes
        self._fused = sum(1 << number for number, axis in enumerate(problem.axes) if axis in order.fused)
        self._masks: dict[Node, int] = {}
        self._known: dict[tuple[Node, str], Node | None] = {}
        self._flat: dict[Node, Node] = {}

    def is_fused(self, node: Node) -> bool:
        """Tell whether a node differs between entries."""
        if node not in self._masks:
            self._masks |= dependencies([node], self._axes)
        return bool(self._masks[node] & self._fused)

    def flat(self, root: Node) -> Node:
        """Return the same value with sums inside sums opened, so that what is added and taken away cancels."""
        for node in ordered([root]):
            if node in self._flat:
                continue
            new = self.graph.rebuilt(node, tuple(self._flat[arg] for arg in node.args))
            if new.op == ops.ADD:
                parts: list[Node] = []
                for part in new.args:
                    count, rest = self.graph.coefficient(part)
                    inner = rest.args if rest.op == ops.ADD else (rest,)
                    parts += [self.graph.mul((self.graph.number(count), item)) for item in inner]
                new = self.graph.add(parts)
            self._flat[node] = new
        return self._flat[root]

    def of(self, node: Node, end: str) -> Node | None:
        """Return the bound of a node at one end, or None if none is found."""
        key = (node, end)
        if key not in self._known:
            self._known[key] = node if not self.is_fused(node) else self._bound(node, end)
        return self._known[key]

    def _bound(self, node: Node, end: str) -> Node | None:
        graph = self.graph
        if node.op == ops.NAME:
            return graph.name(end_name(str(node.value), end))
        if node.op == ops.MUL:
            return self._product(node, end)
        if node.op == ops.SELECT:
            parts = [self.of(arg, end) for arg in node.args[1:]]
            if parts[0] is None or parts[1] is None:
                return None
            chosen = (parts[0], parts[1])
            if self.is_fused(node.args[0]):
                return graph.extreme(ops.MIN if end == LOW else ops.MAX, chosen)
            return graph.select(node.args[0], *chosen)
        if node.op in (ops.DIV, ops.CEIL_DIV, ops.FLOOR_DIV):
            return self._quotient(node, end)
        if node.op == ops.LCM and all(self._is_positive(arg) for arg in node.args):
            ends = self._all(node.args, end)
            return None if ends is None else graph.extreme(ops.MAX, ends) if end == LOW else graph.mul(ends)
        bounds = self._all(node.args, end) if node.op in (ops.ADD, ops.MAX, ops.MIN) else None
        return None if bounds is None else graph.rebuilt(node, tuple(bounds))

    def _all(self, nodes: tuple[Node, ...], end: str) -> list[Node] | None:
        bounds = [self.of(node, end) for node in nodes]
        return None if None in bounds else [node for node in bounds if node is not None]

    def _product(self, node: Node, end: str) -> Node | None:
        count, rest = self.graph.coefficient(node)
        if count < 0:
            opposite = self.of(rest, HIGH if end == LOW else LOW)
            return opposite and self.graph.mul((self.graph.number(count), opposite))
        factors = list(node.args)
        rounded = next((item for item in factors if item.op == ops.CEIL_DIV and item.args[1] in factors), None)
        if rounded is not None and all(map(self._is_positive, rounded.args)):
            factors.remove(rounded)
            factors.remove(rounded.args[1])
        else:
            rounded = None
        signless = [item for item in factors if not self._is_never_negative(item)]
        certain = tuple(item for item in factors if item not in signless)
        if len(signless) > 1:
            return None

        def product(other: str) -> Node | None:
            parts = self._all(certain, other)
            padded = self.graph.number(1) if rounded is None else self._padded(rounded, other)
            return None if parts is None or padded is None else self.graph.mul([*parts, padded])

        if not signless:
            return product(end)
        return self._corner(self.of(signless[0], end), product(LOW), product(HIGH), end)

    def _corner(self, signless: Node | None, low: Node | None, high: Node | None, end: str) -> Node | None:
        """Bound a product of a factor of any sign with a nonnegative one: the sign selects the end of the latter."""
        if signless is None or low is None or high is None:
            return None
        ends = [self.graph.mul((signless, low)), self.graph.mul((signless, high))]
        return self.graph.extreme(ops.MIN if end == LOW else ops.MAX, ends)

    def _padded(self, rounded: Node, end: str) -> Node | None:
        """Return a number rounded up to a multiple: at least the number, and less than one multiple more."""
        number, multiple = (self.of(arg, end) for arg in rounded.args)
        if end == LOW or number is None or multiple is None:
            return number
        return self.graph.add((number, multiple))

    def _quotient(self, node: Node, end: str) -> Node | None:
        over, under = self.of(node.args[0], end), node.args[1]
        if over is None or not self._is_positive(under):
            return None
        by = [self.of(under, HIGH if end == LOW else LOW)]
        if not self._is_never_negative(node.args[0]):
            by.append(self.of(under, end))
        ends = [self.graph.binary(node.op, over, divisor) for divisor in by if divisor is not None]
        return self.graph.extreme(ops.MIN if end == LOW else ops.MAX, ends) if len(ends) == len(by) else None

    def _is_never_negative(self, node: Node) -> bool:
        keeping = (ops.ADD, ops.MUL, ops.MAX, ops.MIN, ops.DIV, ops.FLOOR_DIV)
        if node.op in keeping and all(map(self._is_never_negative, node.args)):
            return True
        if self._is_positive(node) or bool(self._static.interval(node)[0] >= 0):
            return True
        return node.op == ops.ADD and any(self._is_at_least(node, part) for part in node.args)

    def _is_at_least(self, total: Node, part: Node) -> bool:
        """Tell whether a sum that subtracts the maximum ``part`` exceeds each argument of it."""
        count, largest = self.graph.coefficient(part)
        if count != -1 or largest.op != ops.MAX:
            return False
        rest = [item for item in total.args if item is not part]
        minus = self.graph.number(-1)
        return all(
            self._is_never_negative(self.flat(self.graph.add([*rest, self.graph.mul((minus, arg))])))
            for arg in largest.args
        )

    def _is_positive(self, node: Node) -> bool:
        """Signs follow from those of the parts even where no limits do: a share of many ranks may be small."""
        if node.op in (ops.MUL, ops.MIN, ops.DIV, ops.CEIL_DIV, ops.LCM) and all(map(self._is_positive, node.args)):
            return True
        if node.op in (ops.ADD, ops.MAX) and all(map(self._is_never_negative, node.args)) and any(
                map(self._is_positive, node.args)):
            return True
        return bool(self._static.interval(node)[0] > 0)
