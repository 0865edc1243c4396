"""Sums and products regrouped by the loops that their parts depend on, so that each group stands in its own loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import and_

from ..expressions import ops
from ..expressions.graph import Graph, Node, ordered
from ..expressions.maxima import Maxima
from .order import Order, dependencies
from .problem import ESTIMATE, Problem

#: Minus infinity for entries of the table that broke no condition so far, infinity for the others.
ALIVE = "alive"
#: Where a value is computed: how many loops deep (0 is before all of them), and whether it is a row of the table.
Place = tuple[int, bool]


def places(problem: Problem, order: Order) -> Callable[[int], Place]:
    """Return the place of a value from the axes that it depends on (as bits, see ``dependencies``)."""
    number = {axis.name: 1 << index for index, axis in enumerate(problem.axes)}
    levels = [sum(number[axis.name] for axis in level) for level in order.levels]
    table = sum(number[axis.name] for axis in order.fused)
    tested, last = order.tested, len(levels)
    inside = table | sum(levels[tested:] if tested else [])

    def place(mask: int) -> Place:
        fused = bool(mask & table)
        if tested and mask & levels[tested - 1]:
            return (last if mask & inside else tested), fused
        return max((depth + 1 for depth, bits in enumerate(levels) if mask & bits), default=0), fused

    return place


def regrouped(problem: Problem, order: Order, names: Mapping[Node, str]) -> tuple[Problem, dict[Node, str]]:
    """Get the same problem with every sum and product grouped by place, from the outside inwards; and its ``names``."""
    graph, place_of = problem.graph, places(problem, order)
    roots = problem.roots
    masks = dependencies(roots, problem.axes)
    nodes = ordered(roots)
    uses: dict[Node, int] = dict.fromkeys(nodes, 0)
    for node in nodes:
        for arg in node.args:
            uses[arg] += 1
    for root in roots:
        uses[root] += 1
    new: dict[Node, Node] = {}
    parts_of: dict[Node, list[Node]] = {}

    def place(node: Node) -> Place:
        if node not in masks:
            mask = 0
            for arg in node.args:
                place(arg)
                mask |= masks[arg]
            masks[node] = mask
        return place_of(masks[node])

    turned = (order.tested, len(order.levels)) if order.block else ()

    def rank(part: Node) -> tuple[bool, Place]:
        return place(part)[0] in turned, place(part)

    def nested(op: str, parts: Sequence[Node]) -> Node:
        return _nested(op, parts, rank, graph.chained)

    beside = set(nodes).difference(ordered([problem.estimate]))  # maxima of the estimate are taken apart below
    for node in nodes:
        if node.op == ops.MAX and node in beside:
            sums = [parts_of[arg] if arg.op == ops.ADD else [new[arg]] for arg in node.args]
            new[node] = _of_largest(graph, sums, nested)
            continue
        if node.op not in (ops.ADD, ops.MUL):
            new[node] = graph.rebuilt(node, tuple(new[arg] for arg in node.args))
            continue
        parts: list[Node] = []
        for arg in node.args:
            parts += parts_of[arg] if arg.op == node.op and uses[arg] == 1 else [new[arg]]
        parts_of[node] = parts
        new[node] = nested(node.op, parts)
    maxima = Maxima(graph, place, nested, len(order.levels), order.tested)
    last = max((place(new[node]) for _, node in problem.conditions if place(new[node])[1]), default=None)
    alive = None
    if last is not None and last[0] < len(order.levels):
        alive = graph.name(ALIVE)
        masks[alive] = next(masks[new[node]] for _, node in problem.conditions if place(new[node]) == last)
    new[problem.estimate] = maxima.rewritten(new[problem.estimate], alive)
    new |= dict(zip(problem.verdicts, _upwards(graph, [_threshold(graph, new[node]) for node in problem.verdicts]),
                    strict=True))
    renamed = {new[node]: name for node, name in reversed(list(names.items())) if node in new}
    return problem.with_roots([new[root] for root in roots]), renamed


def _of_largest(graph: Graph, sums: Sequence[Sequence[Node]], nested: Callable[[str, Sequence[Node]], Node]) -> Node:
    """Return the largest of some sums: what all have in common is added to the largest of what is left.

    Rounding never swaps two numbers, so that the result is the same.
    """
    counted = [Counter(parts) for parts in sums]
    common = reduce(and_, counted)
    left = [list((parts - common).elements()) for parts in counted]
    largest = graph.extreme(ops.MAX, [nested(ops.ADD, parts) if parts else graph.number(0) for parts in left])
    return nested(ops.ADD, [*common.elements(), largest]) if common else largest


def _nested(
    op: str, parts: Sequence[Node], rank: Callable[[Node], tuple[bool, Place]],
    chained: Callable[[str, Sequence[Node]], Node],
) -> Node:
    """Put parts of one place together, then that to the parts of the next place inwards.

    What differs between turns of a block comes behind what does not, wherever that stands. What is equal for all
    entries joins the table where the table has parts of its own, so that it costs nothing more.
    """
    buckets: dict[tuple[bool, Place], list[Node]] = {}
    for part in parts:
        buckets.setdefault(rank(part), []).append(part)
    scalar: list[Node] = []
    table: list[Node] = []
    for (_, (_, fused)), members in sorted(buckets.items(), key=lambda item: item[0]):
        if fused:
            table = [chained(op, table + scalar + members)]
            scalar = []
        else:
            scalar = [chained(op, scalar + members)]
    return chained(op, table + scalar)


def _upwards(graph: Graph, verdicts: Sequence[Node]) -> list[Node]:
    """Return verdicts that are limits of the estimate, each at least as high as those before it.

    As the first one that holds counts, an estimate below an earlier limit may as well hold a later one. Then the
    number of estimates below each limit is all that need be counted.
    """
    if not are_limits(verdicts):
        return [*verdicts]
    highest: list[Node] = []
    for verdict in verdicts:
        highest.append(graph.extreme(ops.MAX, [*highest[-1:], verdict.args[1]]))
    return [graph.binary(ops.LE, verdict.args[0], limit) for verdict, limit in zip(verdicts, highest, strict=True)]


def are_limits(verdicts: Sequence[Node]) -> bool:
    """Tell whether all verdicts are limits of the estimate itself."""
    return all(verdict.op == ops.LE and verdict.args[0].value == ESTIMATE for verdict in verdicts)


def _threshold(graph: Graph, verdict: Node) -> Node:
    """Write ``c * estimate <= x`` as ``estimate <= x / c``, which is computed once for the whole table.

    The estimate is a whole number of bytes, and x below 2**53: the quotient is rounded by less than 1 / c, and unless
    it is whole itself, whole numbers are at least so far away.
    """
    if verdict.op != ops.LE or verdict.args[0].op != ops.MUL:
        return verdict
    count, rest = graph.coefficient(verdict.args[0])
    if rest.value != ESTIMATE or count <= 0 or count.denominator != 1:
        return verdict
    return graph.binary(ops.LE, rest, graph.binary(ops.DIV, verdict.args[1], graph.number(count)))
