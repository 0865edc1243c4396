"""The plan of an evaluator of columns: what is computed before the loop over rows and inside it, in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from ..expressions import ops
from ..expressions.dominated import beside, without_dominated
from ..expressions.graph import Graph, Node, ordered, ordered_without
from ..expressions.intervals import Limits
from .choices import weighted, with_choices
from .factors import factored
from .quotients import with_reciprocals

_LEAVES = frozenset((ops.NAME, ops.NUMBER, ops.TRUTH))


@dataclass(frozen=True)
class Flat:
    """Computation of an evaluator of columns.

    ``rules`` are tried in order; where one is broken, neither ``outputs`` nor ``verdicts`` count. Of the latter the
    first that holds does.
    """

    graph: Graph
    rules: tuple[Node, ...]
    verdicts: tuple[Node, ...]
    outputs: tuple[Node, ...]

    @property
    def roots(self) -> list[Node]:
        """Everything that has to be computed."""
        return [*self.rules, *self.verdicts, *self.outputs]


@dataclass(frozen=True)
class Plan:
    """``before`` are nodes to compute once, ``steps`` for every row; ``names`` are the variables of all of them."""

    flat: Flat
    before: tuple[Node, ...]
    steps: tuple[Node, ...]
    names: Mapping[Node, str]


def thinned(flat: Flat, estimate: Node, limits: Mapping[str, Limits]) -> Flat:
    """Return the same without what is provably never the largest part of ``estimate``, or of one of its ranks.

    ``limits`` are the least and largest values of all names, which are integers.
    """
    graph, rules = flat.graph, flat.rules
    ranks = [output for output in flat.outputs if estimate.op == ops.MAX and output in estimate.args]
    smaller = {rank: without_dominated(graph, rank, limits, rules) for rank in ranks}
    rest = beside(graph, estimate, ranks, limits, rules) if ranks else without_dominated(graph, estimate, limits, rules)
    smaller[estimate] = graph.extreme(ops.MAX, [*smaller.values(), *([rest] if rest is not None else [])])
    verdicts = graph.replaced(flat.verdicts, {estimate: smaller[estimate]})
    return Flat(graph, rules, tuple(verdicts), tuple(smaller.get(output, output) for output in flat.outputs))


def settled(flat: Flat) -> Flat:
    """Return the same with numbers for names that a rule allows one value of."""
    numbers = {rule.args[0]: rule.args[1] for rule in flat.rules
               if rule.op == ops.EQ and [arg.op for arg in rule.args] == [ops.NAME, ops.NUMBER]}
    new = flat.graph.replaced([*flat.verdicts, *flat.outputs], numbers)
    return Flat(flat.graph, flat.rules, tuple(new[:len(flat.verdicts)]), tuple(new[len(flat.verdicts):]))


def planned(flat: Flat, columns: Collection[str], switches: Collection[str], known: Mapping[Node, str]) -> Plan:
    """Rewrite an evaluator for a loop over rows in which ``columns`` differ, and put it in order.

    ``switches`` are names whose values are 0 and 1, ``known`` the names of terms, for readers.
    """
    graph, rules = flat.graph, len(flat.rules)
    varies = _varying(columns)
    names = dict(known)

    def then(flat: Flat, new: Mapping[Node, Node]) -> Flat:
        nonlocal names
        names = {new[node]: name for node, name in reversed(names.items()) if node in new}
        roots = [new[root] for root in flat.roots]
        verdicts = rules + len(flat.verdicts)
        return Flat(graph, tuple(roots[:rules]), tuple(roots[rules:verdicts]), tuple(roots[verdicts:]))

    flat = settled(flat)
    flat = then(flat, with_choices(graph, flat.roots, switches))
    flat = then(flat, with_reciprocals(graph, flat.rules, [*flat.verdicts, *flat.outputs]))
    flat = then(flat, weighted(graph, flat.roots, varies))
    for _ in range(2):  # what several products of one sum share is used once when they are one product
        flat = then(flat, factored(graph, flat.roots, varies))
    return _in_order(flat, varies, names)


def _varying(columns: Collection[str]) -> Callable[[Node], bool]:
    """Tell of every node whether it differs from row to row."""
    known: dict[Node, bool] = {}

    def varies(node: Node) -> bool:
        for inner in ordered_without([node], known):
            known[inner] = (inner.op == ops.NAME and inner.value in columns) or any(known[arg] for arg in inner.args)
        return known[node]

    return varies


def _in_order(flat: Flat, varies: Callable[[Node], bool], known: Mapping[Node, str]) -> Plan:
    """Give a variable to what is used more than once, and to what is computed before the loop."""
    nodes = ordered(flat.roots)
    uses = Counter(arg for node in nodes for arg in node.args)
    uses.update([*flat.rules, *flat.verdicts])
    in_rows = {arg for node in nodes if varies(node) for arg in node.args}.union(flat.roots)
    wanted = [
        node for node in nodes
        if node.op not in _LEAVES and (uses[node] > 1 or node in flat.outputs or (node in in_rows and not varies(node)))
    ]
    names = _named(nodes, wanted, known)
    return Plan(flat, tuple(node for node in wanted if not varies(node)), tuple(filter(varies, wanted)), names)


def _named(nodes: Sequence[Node], wanted: Sequence[Node], known: Mapping[Node, str]) -> dict[Node, str]:
    names = {node: str(node.value) for node in nodes if node.op == ops.NAME}
    taken = set(names.values())
    for node in wanted:
        name = known.get(node, "")
        if not name or name in taken:
            name = f"x{len(taken)}"
        names[node] = name
        taken.add(name)
    return names
