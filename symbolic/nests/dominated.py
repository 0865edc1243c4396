"""Leaves out of an estimate what is provably never its largest part: ranks and moments that others always exceed.

Every rank is a sum of what it always keeps and a maximum over moments, so the estimate is a maximum over pairs of both.
A pair goes if in every case another one that stays is at least as large. The cases tell apart what decides the minima
and maxima of single names, such as the ranks of short pipelines.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, inf, isinf

from .bounds import Bounds, Rational, difference, quotient
from .comparing import Prover
from .graph import ADD, DIVIDES, EQ, LE, LT, MAX, MIN, NAME, NUMBER, Graph, Node, ordered
from .trials import Points

#: More cases are not told apart.
_MOST_CASES = 24
_TWO = 2


@dataclass(frozen=True)
class Pair:
    """One rank at one moment: ``total`` is what it keeps then, ``moment`` the part that is only kept then."""

    rank: int
    moment: Node
    total: Node


def without_dominated(
    graph: Graph, estimate: Node, names: Mapping[str, tuple[int, int | None]], conditions: Sequence[Node] = (),
) -> Node:
    """The estimate with fewer ranks and moments; the value is the same wherever ``conditions`` hold.

    ``names`` are the least and largest values of names, all of which are integers.
    """
    ranks = [_parts(graph, rank) for rank in (estimate.args if estimate.op == MAX else (estimate,))]
    pairs = [
        Pair(number, moment, graph.add((*rest, moment)))
        for number, (rest, moments) in enumerate(ranks) for moment in moments
    ]
    kept = _undominated(pairs, list(cases(*freed(graph, [pair.total for pair in pairs], names, conditions))))
    new = []
    for number, (rest, _) in enumerate(ranks):
        moments = [pair.moment for pair in kept if pair.rank == number]
        if moments:
            new.append(graph.add((*rest, graph.extreme(MAX, moments))))
    return graph.extreme(MAX, new)


def _parts(graph: Graph, rank: Node) -> tuple[list[Node], list[Node]]:
    """What a rank always keeps, and its moments: the summand that is a maximum of most parts."""
    summands = list(rank.args) if rank.op == ADD else [rank]
    largest = max((node for node in summands if node.op == MAX), key=lambda node: len(node.args), default=None)
    if largest is None:
        return [], [rank]
    return [node for node in summands if node is not largest], list(largest.args)


def _undominated(pairs: Sequence[Pair], split: Sequence[tuple[Bounds, Sequence[Node]]]) -> list[Pair]:
    """The pairs that stay. Those that random points do not rule out are tried, ranks between first and last first."""
    provers = []
    for bounds, case in split:
        points = Points(bounds, case)
        provers.append((Prover(bounds, points), case, points.refuted(case)))
    kept = list(range(len(pairs)))
    for number in sorted(kept, key=lambda item: (pairs[item].rank not in (1, 2), item)):
        others = [[other for other in kept if other != number and not table[number, other]] for *_, table in provers]
        if all(others) and all(
            any(prover.never_exceeds(case[number], case[other]) for other in candidates)
            for (prover, case, _), candidates in zip(provers, others, strict=True)
        ):
            kept.remove(number)
    return [pairs[number] for number in kept]


def freed(
    graph: Graph, roots: Sequence[Node], names: Mapping[str, tuple[int, int | None]], conditions: Sequence[Node],
) -> tuple[Bounds, list[Node]]:
    """Write what must be a multiple as one, so that conditions become bounds of the factor that is left.

    Gives the bounds of all names, and ``roots`` in terms of them. Names that must have one value get it.
    """
    bounds = Bounds(graph, names)
    known: dict[Node, Node] = {}
    for condition in conditions:
        if condition.op not in (DIVIDES, EQ):
            continue
        left, right = bounds.folded(graph.replaced(condition.args, known))
        if condition.op == DIVIDES:
            factor = graph.name(f"{right.serial} over {left.serial}")
            within = _factor_bounds(bounds, left, right)
            if within is None:
                continue
            bounds = Bounds(graph, {**bounds.names, str(factor.value): within})
            if right.op == NAME and right not in ordered([left]):
                found = {right: graph.mul((factor, left))}
            else:
                found = {quotient(graph, right, left): factor}
        elif NAME in (left.op, right.op) and NUMBER in (left.op, right.op):
            found = {left: right} if left.op == NAME else {right: left}
        else:
            continue
        known = {name: value for name, value in zip(known, graph.replaced(known.values(), found), strict=True)} | found
    # names first: quotients look as they do here only when what divides both sides is gone
    for node, value in known.items():
        roots = bounds.folded(roots) if node.op != NAME else roots
        roots = graph.replaced(roots, known if node.op == NAME else {node: value})
    return bounds, list(roots)


def _factor_bounds(bounds: Bounds, divisor: Node, name: Node) -> tuple[int, int | None] | None:
    """Bounds of the quotient if both are positive, else nothing."""
    (low, high), (least, most) = bounds.interval(divisor), bounds.interval(name)
    if low <= 0 or least <= 0:
        return None
    return (
        1 if isinf(high) else max(1, ceil(Fraction(least) / Fraction(high))),
        None if isinf(most) else floor(Fraction(most) / Fraction(low)),
    )


def cases(bounds: Bounds, roots: Sequence[Node]) -> Iterator[tuple[Bounds, list[Node]]]:
    """Tell apart what decides minima and maxima; give the bounds of each case, and ``roots`` simplified there."""
    pending = [(bounds, bounds.folded(roots))]
    count = 1
    while pending:
        within, folded = pending.pop()
        split = _split(within, folded) if count < _MOST_CASES else None
        if split is None:
            yield within, folded
            continue
        count += 1
        changed, halves = split
        for half in halves:
            same = _equal(half)
            renamed = bounds.graph.replaced(folded, same) if same else folded
            pending.append((half, half.folded(renamed, [*changed, *same.values()])))


def _split(bounds: Bounds, roots: Sequence[Node]) -> tuple[list[Node], tuple[Bounds, Bounds]] | None:
    """Both sides of the first comparison of one or two names that is open and decides a minimum or maximum.

    Comparisons in conditions count if they are of one name that is in such a minimum or maximum.
    """
    open_nodes = [node for node in ordered(roots) if node.op in (MIN, MAX, EQ, LE, LT) and len(node.args) == _TWO]
    found = [(node.op, parts) for node in open_nodes if (parts := _linear(bounds.graph, node))]
    deciding = {name for op, parts in found if op in (MIN, MAX) for name in parts if name.op == NAME}
    for most in (1, _TWO):
        for op, parts in found:
            inside = [name for name in parts if name.op == NAME]
            if len(inside) == most and (op in (MIN, MAX) or most == 1 and inside[0] in deciding):
                return inside, _halves(bounds, parts, inside)
    return None


def _halves(bounds: Bounds, parts: Mapping[Node, Rational], names: Sequence[Node]) -> tuple[Bounds, Bounds]:
    """What holds where a sum of multiples of names is at least 0, and where it is less."""
    graph = bounds.graph
    if len(names) == 1:
        name, = names
        root = Fraction(-parts.get(graph.number(1), 0)) / parts[name]
        return bounds.with_name(str(name.value), -inf, floor(root)), bounds.with_name(
            str(name.value), floor(root) + 1, inf)
    terms = [graph.mul((graph.number(count), node)) for node, count in parts.items()]
    minus = graph.number(-1)
    return bounds.with_fact(graph.add(terms)), bounds.with_fact(
        graph.add((minus, *(graph.mul((minus, term)) for term in terms))))


def _equal(bounds: Bounds) -> dict[Node, Node]:
    """A name for another one where the facts say that both are equal."""
    if len(bounds.facts) > 1:
        *facts, latest = bounds.facts
        for fact in facts:
            if not difference(bounds.graph, bounds.graph.number(0), fact, latest):
                names = [node for node in latest.args if node.op == NAME]
                others = [node for node in difference(bounds.graph, latest) if node.op == NAME and node not in names]
                if len(names) == len(others) == 1 and len(latest.args) == _TWO:
                    return {names[0]: others[0]}
    return {}


def _linear(graph: Graph, comparison: Node) -> dict[Node, Rational] | None:
    """The difference of both sides if it is a sum of integer multiples of one or two names, else nothing."""
    parts = difference(graph, *comparison.args)
    names = [node for node in parts if node.op == NAME]
    if not 1 <= len(names) <= _TWO or any(node.op not in (NAME, NUMBER) for node in parts):
        return None
    return parts if all(count.denominator == 1 for count in parts.values()) else None
