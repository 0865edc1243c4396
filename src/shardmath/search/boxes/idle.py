"""Idle axes: those that change nothing where a switch has one of its places, such as layers of an absent recompute."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_

from shardmath.compiler.expressions.graph import Node, ordered, ordered_without
from shardmath.compiler.nests.order import dependencies
from shardmath.compiler.nests.problem import Problem
from shardmath.search.spaces import Part

#: Values of a switch.
_SWITCHED = {0, 1}


def idle_places(part: Part, problem: Problem, roots: Sequence[Node]) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Return for every axis the places of other axes, those of switches, at which no root depends on it.

    All of its places then have equal values, of which the first stands for all.
    """
    graph, idle = problem.graph, [list[tuple[int, int]]() for _ in part.axes]
    masks, nodes = dependencies(roots, problem.axes), ordered(roots)
    for number, axis in enumerate(part.axes):
        if not {value for values in axis.values.values() for value in values} <= _SWITCHED:
            continue
        moved = [node for node in nodes if masks[node] >> number & 1]
        for place in range(axis.size):
            done = {graph.name(name): graph.number(column[place]) for name, column in axis.values.items()}
            for node in moved:
                if node not in done:
                    done[node] = graph.rebuilt(node, tuple(done.get(arg, arg) for arg in node.args))
            replaced = [done.get(root, root) for root in roots]
            for node in ordered_without(replaced, masks):
                masks[node] = united(masks[arg] for arg in node.args)
            left = united(masks[root] for root in replaced)
            for other, pairs in enumerate(idle):
                if other != number and not left >> other & 1:
                    pairs.append((number, place))
    return tuple(map(tuple, idle))


def united(masks: Iterable[int]) -> int:
    """Return the axes of all masks."""
    return reduce(or_, masks, 0)
