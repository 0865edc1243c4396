"""Differences and quotients of expressions without what both sides have."""

from __future__ import annotations

from fractions import Fraction
from typing import TypeAlias

from . import ops
from .graph import Graph, Node

#: Integers are much faster than fractions.
Rational: TypeAlias = "Fraction | int"


def difference(graph: Graph, larger: Node, *smaller: Node) -> dict[Node, Rational]:
    """Return ``larger`` less all of ``smaller`` as multiples of nodes without sums; common parts are left out."""
    counts: dict[Node, Rational] = {}
    pending: list[tuple[Node, Rational]] = [(larger, 1), *((node, -1) for node in smaller)]
    while pending:
        node, times = pending.pop()
        count, rest = (number(node), graph.number(1)) if node.op == ops.NUMBER else graph.coefficient(node)
        times *= plain(count)
        if rest.op == ops.ADD:
            pending += [(arg, times) for arg in rest.args]
        else:
            counts[rest] = counts.get(rest, 0) + times
    return {node: count for node, count in counts.items() if count}


def quotient(graph: Graph, over: Node, under: Node) -> Node:
    """Return ``over / under`` without the factors that both have, also if they are factors of every part of a sum."""
    parts = over.args if over.op == ops.ADD else (over,)
    above = [factors(part) for part in parts]
    below = factors(under)
    for factor in tuple(below):
        if factor.op != ops.NUMBER and all(factor in inside for inside in above):
            below.remove(factor)
            for inside in above:
                inside.remove(factor)
    if len(below) == len(factors(under)):
        return graph.binary(ops.DIV, over, under)
    return graph.binary(ops.DIV, graph.add(map(graph.mul, above)), graph.mul(below))


def factors(node: Node) -> list[Node]:
    """Return the factors of a product; else the node itself."""
    return list(node.args) if node.op == ops.MUL else [node]


def plain(value: Fraction) -> Rational:
    """Return the same number, as an integer if it is one."""
    return value.numerator if value.denominator == 1 else value


def number(node: Node) -> Fraction:
    """Return the value of a constant."""
    assert isinstance(node.value, Fraction)
    return node.value
