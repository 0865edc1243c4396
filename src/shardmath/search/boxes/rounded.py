"""Numbers that are whole wherever all rules hold, and numbers that are rounded up to a multiple."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shardmath.compiler.expressions import ops
from shardmath.compiler.expressions.differences import factors
from shardmath.compiler.expressions.graph import Graph, Node
from shardmath.compiler.expressions.intervals import Bounds, Limits

#: Operations whose result is whole where all numbers are that they take.
_WHOLE = {ops.ADD, ops.MUL, ops.MAX, ops.MIN, ops.SELECT}


class Legal:
    """Facts about nodes wherever all ``rules`` hold; ``names`` has the least and the largest values of names."""

    def __init__(self, graph: Graph, names: Mapping[str, Limits], rules: Iterable[Node]) -> None:
        self._graph, self._everywhere = graph, Bounds(graph, names)
        self._divisible = {rule.args for rule in rules if rule.op == ops.DIVIDES}
        self._whole: dict[Node, bool] = {}

    def is_integer(self, node: Node) -> bool:
        """Return True if a node is whole, such as a quotient that a rule wants to be; False if that is not certain."""
        if node not in self._whole:
            numbers = node.args[1:] if node.op == ops.SELECT else node.args
            self._whole[node] = self._is_divisible(node) or (
                all(map(self.is_integer, numbers)) if node.op in _WHOLE else self._everywhere.is_integer(node))
        return self._whole[node]

    def rounded_up(self, node: Node) -> Node:
        """Return a product with its multiples between the number that is rounded up and that number and one step.

        Bounds of ``x ceil(n / x)`` mix all values of ``x`` with each other; it is ``n`` or more, and less than
        ``n + x``.
        """
        parts, graph = factors(node), self._graph
        for part in parts:
            if part.op == ops.CEIL_DIV and part.args[1] in parts and self._everywhere.interval(part.args[1])[0] > 0:
                number, of = part.args
                rest = [other for other in parts if other is not part and other is not of]
                multiple = graph.extreme(ops.MAX, (graph.mul((part, of)), number))
                inside = graph.extreme(ops.MIN, (multiple, graph.add((number, of))))
                return self.rounded_up(graph.mul((*rest, inside)))
        return node

    def _is_divisible(self, node: Node) -> bool:
        if node.op != ops.DIV:
            return False
        over, under = node.args
        parts = factors(over)
        return (under, over) in self._divisible or any(
            (under, part) in self._divisible and all(self.is_integer(other) for other in parts if other is not part)
            for part in parts)
