"""Leaves out of an estimate what is provably never its largest part: ranks and moments that others always exceed.

Every rank is a sum of what it always keeps and a maximum over moments, so the estimate is a maximum over pairs of both.
A pair goes if in every case another one that stays is at least as large. The cases tell apart what decides the minima
and maxima of single names, such as the ranks of short pipelines.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from . import ops
from .cases import cases, freed
from .comparing import Prover
from .graph import Graph, Node, ordered
from .intervals import Bounds, Limits
from .trials import Points


@dataclass(frozen=True)
class Pair:
    """One rank at one moment: the parts that it always keeps, and what it only keeps at that moment."""

    rank: int
    always: tuple[Node, ...]
    moment: Node


def without_dominated(
    graph: Graph, estimate: Node, names: Mapping[str, Limits], conditions: Sequence[Node] = (),
) -> Node:
    """Return the estimate with fewer ranks and moments; the value is the same wherever ``conditions`` hold.

    ``names`` are the least and largest values of names, all of which are integers.
    """
    pairs = pairs_of(estimate)
    kept = _undominated(pairs, _Cases(list(cases(*freed(graph, _totals(graph, pairs), names, conditions)))))
    ranks = {pair.rank: pair.always for pair in kept}
    return graph.extreme(ops.MAX, [
        graph.add((*always, graph.extreme(ops.MAX, [pair.moment for pair in kept if pair.rank == rank])))
        for rank, always in ranks.items()
    ])


def beside(
    graph: Graph, estimate: Node, known: Collection[Node], names: Mapping[str, Limits], conditions: Sequence[Node] = (),
) -> Node | None:
    """Return the other ranks that may exceed the ranks ``given`` of an estimate; None if none may."""
    pairs = pairs_of(estimate)
    totals = _totals(graph, pairs)
    others = [number for number, pair in enumerate(pairs) if estimate.args[pair.rank] not in known]
    kept = _Cases(list(cases(*freed(graph, totals, names, conditions)))).kept(len(pairs), others)
    left = [totals[number] for number in others if number in kept]
    return graph.extreme(ops.MAX, left) if left else None


def _totals(graph: Graph, pairs: Sequence[Pair]) -> list[Node]:
    return [graph.add((*pair.always, pair.moment)) for pair in pairs]


def thinned(
    graph: Graph, roots: Sequence[Node], names: Mapping[str, Limits], conditions: Sequence[Node] = (),
) -> list[Node]:
    """Return copies of ``roots`` without arguments of maxima and minima that are never the only one chosen.

    The values are the same wherever ``conditions`` hold: nothing may be thinned by a condition that it checks itself.
    """
    extremes = [node for node in ordered(roots) if node.op in (ops.MAX, ops.MIN)]
    args = list(dict.fromkeys(arg for node in extremes for arg in node.args))
    bounds, written = freed(graph, args, names, conditions)
    written = bounds.folded(written)
    prover, forms = Prover(bounds, Points(bounds, written)), dict(zip(args, written, strict=True))
    done: dict[Node, Node] = {}
    for node in ordered(roots):
        kept = list(node.args)
        for arg in node.args if node in extremes else ():
            pairs = ((forms[arg], forms[other]) for other in kept if other is not arg)
            if any(prover.never_exceeds(*(pair if node.op == ops.MAX else reversed(pair))) for pair in pairs):
                kept.remove(arg)
        new = [done[arg] for arg in kept]
        done[node] = graph.extreme(node.op, new) if node in extremes else graph.rebuilt(node, tuple(new))
    return [done[root] for root in roots]


def pairs_of(estimate: Node) -> list[Pair]:
    """Return the ranks and moments of an estimate; the moments of a rank are its maximum of most parts."""
    pairs = []
    for number, rank in enumerate(estimate.args if estimate.op == ops.MAX else (estimate,)):
        summands = rank.args if rank.op == ops.ADD else (rank,)
        largest = max((node for node in summands if node.op == ops.MAX), key=lambda node: len(node.args), default=rank)
        always = tuple(node for node in summands if node is not largest)
        moments = largest.args if largest.op == ops.MAX else (largest,)
        pairs += [Pair(number, always if largest.op == ops.MAX else (), moment) for moment in moments]
    return pairs


class _Cases:
    """Proofs about pairs, case by case: in which one is never above another."""

    def __init__(self, split: Sequence[tuple[Bounds, Sequence[Node]]]) -> None:
        self._provers = []
        for bounds, case in split:
            points = Points(bounds, case)
            self._provers.append((Prover(bounds, points), case, points.refuted(case)))

    def kept(self, count: int, tried: Iterable[int]) -> list[int]:
        """Of pairs 0 to ``count``, all but those of ``tried`` that others exceed wherever they are."""
        kept = list(range(count))
        for number in tried:
            others = [[other for other in kept if other != number and not table[number, other]]
                      for *_, table in self._provers]
            if all(others) and all(
                any(prover.never_exceeds(case[number], case[other]) for other in candidates)
                for (prover, case, _), candidates in zip(self._provers, others, strict=True)
            ):
                kept.remove(number)
        return kept


def _undominated(pairs: Sequence[Pair], proofs: _Cases) -> list[Pair]:
    """Return the pairs that stay. Of equal ones those of one rank do: each rank is tried as the one that goes last."""
    best = list(range(len(pairs)))
    for last in sorted({pair.rank for pair in pairs}, reverse=True):
        kept = proofs.kept(len(pairs), sorted(range(len(pairs)), key=lambda item: (pairs[item].rank == last, item)))
        best = min(best, kept, key=lambda numbers: (len(numbers), len({pairs[item].rank for item in numbers})))
    return [pairs[number] for number in best]
