"""Leaves out of an estimate what is provably never its largest part: ranks and moments that others always exceed.

Every rank is a sum of what it always keeps and a maximum over moments, so the estimate is a maximum over pairs of both.
A pair goes if in every case another one that stays is at least as large. The cases tell apart what decides the minima
and maxima of single names, such as the ranks of short pipelines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .bounds import Bounds, Limits
from .cases import cases, freed
from .comparing import Prover
from .graph import ADD, MAX, Graph, Node
from .trials import Points

@dataclass(frozen=True)
class Pair:
    """One rank at one moment: ``total`` is what it keeps then, ``moment`` the part that is only kept then."""

    rank: int
    moment: Node
    total: Node


def without_dominated(
    graph: Graph, estimate: Node, names: Mapping[str, Limits], conditions: Sequence[Node] = (),
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
