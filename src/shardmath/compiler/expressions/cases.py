"""Bounds of a legal configuration, and the cases that proofs distinguish.

A condition that one expression divides another one says that their quotient is an integer: where it divides a name, the
name is written as a multiple, with the factor as a new name. What then decides minima and maxima of one or two names,
such as the ranks of a short pipeline or few micro-batches, is told apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from math import ceil, floor, isinf

from . import ops
from .differences import Rational, difference, quotient
from .graph import Graph, Node, ordered
from .intervals import Bounds, Limits

#: More cases are not told apart.
_MOST_CASES = 24
_TWO = 2


def freed(
    graph: Graph, roots: Sequence[Node], names: Mapping[str, Limits], conditions: Sequence[Node],
) -> tuple[Bounds, list[Node]]:
    """Return the bounds of all names where ``conditions`` hold, and ``roots`` written with what they leave free.

    Only conditions of a few forms say something here; the others are not used.
    """
    bounds = Bounds(graph, names)
    multiples: dict[Node, Node] = {}
    quotients: dict[Node, Node] = {}
    for condition in conditions:
        if condition.op not in (ops.DIVIDES, ops.EQ):
            continue
        left, right = bounds.folded(graph.replaced(condition.args, multiples))
        replaced: dict[Node, Node] = {}
        if condition.op == ops.EQ:
            if ops.NAME in (left.op, right.op) and ops.NUMBER in (left.op, right.op):
                replaced = {left: right} if left.op == ops.NAME else {right: left}
        elif limits := _limits_of_quotient(bounds, left, right):
            factor = graph.name(f"{right.serial} over {left.serial}")
            bounds = Bounds(graph, {**bounds.names, str(factor.value): limits})
            if right.op == ops.NAME and right not in ordered([left]):
                replaced = {right: graph.mul((factor, left))}
            else:
                quotients[quotient(graph, right, left)] = factor
        values = graph.replaced(multiples.values(), replaced)
        multiples = dict(zip(multiples, values, strict=True)) | replaced
    orders = [condition for condition in conditions if condition.op in (ops.LE, ops.LT)]
    # folded in between: a quotient looks as above only without what divides both of its sides
    together = bounds.folded(graph.replaced([*roots, *orders], multiples))
    together = graph.replaced(together, quotients)
    used = {node for node in ordered(together[:len(roots)]) if node.op in (ops.NAME, ops.NUMBER)} | {graph.number(1)}
    for condition in bounds.folded(together[len(roots):]):
        parts = _linear(graph, condition) if condition.op in (ops.LE, ops.LT) else None
        if parts and parts.keys() <= used:
            bounds = _where(bounds, _opposite(graph, parts, condition.op == ops.LT))
    return bounds, together[:len(roots)]


def cases(bounds: Bounds, roots: Sequence[Node]) -> Iterator[tuple[Bounds, list[Node]]]:
    """Yield the bounds of each case with ``roots`` simplified there; the cases together cover ``bounds``."""
    pending = [(bounds, bounds.folded(roots))]
    count = 1
    while pending:
        within, folded = pending.pop()
        parts = _deciding(within, folded) if count < _MOST_CASES else None
        if parts is None:
            yield within, folded
            continue
        count += 1
        for known in (parts, _opposite(bounds.graph, parts, True)):
            half, inside = _where(within, known), folded
            same = half.equal_names()
            if same is not None:
                half, inside = half.with_equal(*same), bounds.graph.replaced(folded, dict([same]))
            if half.are_possible:
                pending.append((half, half.folded(inside, [name for name in parts if name.op == ops.NAME])))


def _limits_of_quotient(bounds: Bounds, divisor: Node, dividend: Node) -> Limits | None:
    """Return bounds of a quotient that is an integer, if both sides are positive."""
    (low, high), (least, most) = bounds.interval(divisor), bounds.interval(dividend)
    if low <= 0 or least <= 0:
        return None
    return (
        1 if isinf(high) else max(1, ceil(Fraction(least) / Fraction(high))),
        None if isinf(most) else floor(Fraction(most) / Fraction(low)),
    )


def _deciding(bounds: Bounds, roots: Sequence[Node]) -> dict[Node, Rational] | None:
    """Get the difference of both sides of a comparison that is open and decides a minimum or maximum, one name first.

    Comparisons in conditions count if they are of one name that is in such a minimum or maximum.
    """
    comparing = (ops.MIN, ops.MAX, ops.EQ, ops.LE, ops.LT)
    nodes = [node for node in ordered(roots) if node.op in comparing and len(node.args) == _TWO]
    comparisons = [(node.op, parts) for node in nodes if (parts := _linear(bounds.graph, node))]
    deciding = {name for op, parts in comparisons if op in (ops.MIN, ops.MAX) for name in parts if name.op == ops.NAME}
    for op, parts in sorted(comparisons, key=lambda item: _count(item[1])):
        if op in (ops.MIN, ops.MAX) or (_count(parts) == 1 and deciding & parts.keys()):
            # equality is decided on both sides of 0
            unit = bounds.graph.number(1)
            return parts | {unit: parts.get(unit, 0) - 1} if bounds.least(parts) >= 0 else parts
    return None


def _where(bounds: Bounds, parts: Mapping[Node, Rational]) -> Bounds:
    """Return the bounds that follow from a linear sum of names that is at least 0."""
    graph = bounds.graph
    if _count(parts) > 1:
        return bounds.with_fact(graph.add(graph.mul((graph.number(count), node)) for node, count in parts.items()))
    name, = (node for node in parts if node.op == ops.NAME)
    root = Fraction(-parts.get(graph.number(1), 0)) / parts[name]
    limits = (ceil(root), None) if parts[name] > 0 else (None, floor(root))
    return bounds.with_name(str(name.value), *limits)


def _opposite(graph: Graph, parts: Mapping[Node, Rational], strict: bool) -> dict[Node, Rational]:
    """Negate a sum of integers that is at most 0, or below 0, into one that is at least 0."""
    opposite = {node: -count for node, count in parts.items()}
    unit = graph.number(1)
    return opposite | {unit: opposite.get(unit, 0) - 1} if strict else opposite


def _count(parts: Mapping[Node, Rational]) -> int:
    return sum(node.op == ops.NAME for node in parts)


def _linear(graph: Graph, comparison: Node) -> dict[Node, Rational] | None:
    """Return the difference of both sides if it is a sum of integer multiples of one or two names, else nothing."""
    parts = difference(graph, *comparison.args)
    if not 1 <= _count(parts) <= _TWO or any(node.op not in (ops.NAME, ops.NUMBER) for node in parts):
        return None
    return parts if all(count.denominator == 1 for count in parts.values()) else None
