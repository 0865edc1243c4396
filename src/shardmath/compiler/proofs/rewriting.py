"""Expressions with other nodes for some, written so that equal factors are seen: of quotients, sums and maxima."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..expressions import ops
from ..expressions.differences import factors, quotient
from ..expressions.graph import Graph, Node, ordered
from ..expressions.intervals import Bounds

EXTREMES = (ops.MAX, ops.MIN)


def replaced(graph: Graph, roots: Iterable[Node], values: Mapping[Node, Node], bounds: Bounds) -> list[Node]:
    """Return copies of ``roots`` with some nodes replaced, quotients without common factors."""
    done = dict(values)
    for node in ordered(roots):
        if node in done:
            continue
        args = tuple(done[arg] for arg in node.args)
        if node.op == ops.DIV and args != node.args:
            done[node] = quotient(graph, *args)
        elif node.op in EXTREMES:
            done[node] = _factored(graph, node.op, args, bounds)
        elif node.op == ops.ADD and args != node.args:
            done[node] = common_out(graph, graph.add(args))
        elif node.op == ops.LT and args[0].op == ops.MIN and args[1] in args[0].args:
            others = (other for other in args[0].args if other is not args[1])
            done[node] = graph.logic(ops.OR, [graph.binary(ops.LT, other, args[1]) for other in others])
        else:
            done[node] = graph.rebuilt(node, args)
    return [done[root] for root in roots]


def common_out(graph: Graph, node: Node) -> Node:
    """Return a sum as a product with the factors that all its summands have in common."""
    if node.op != ops.ADD:
        return node
    parts = [factors(graph.coefficient(part)[1]) for part in node.args]
    common = [factor for factor in parts[0] if factor.op != ops.NUMBER and all(factor in part for part in parts)]
    if not common:
        return node
    divisor = graph.mul(dict.fromkeys(common))
    return graph.mul((divisor, graph.add(quotient(graph, part, divisor) for part in node.args)))


def _factored(graph: Graph, op: str, args: Sequence[Node], bounds: Bounds) -> Node:
    """Return a maximum or minimum without a positive factor that all arguments have, times that factor."""
    node = graph.extreme(op, args)
    parts = [factors(graph.coefficient(arg)[1]) for arg in node.args if arg is not graph.number(0)]
    if node.op != op or not parts:
        return node
    common = [factor for factor in dict.fromkeys(parts[0])
              if all(factor in part for part in parts) and bounds.interval(factor)[0] >= 0]
    if not common or common == [graph.number(1)]:
        return node
    divisor = graph.mul(common)
    return graph.mul((divisor, graph.extreme(op, [quotient(graph, arg, divisor) for arg in node.args])))
