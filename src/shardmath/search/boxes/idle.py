"""Idle axes: those that change nothing where a switch has one of its places, such as layers of an absent recompute."""

from __future__ import annotations

from collections.abc import Sequence

from shardmath.compiler.expressions.graph import Node
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
    for number, axis in enumerate(part.axes):
        if not {value for values in axis.values.values() for value in values} <= _SWITCHED:
            continue
        for place in range(axis.size):
            values = {graph.name(name): graph.number(column[place]) for name, column in axis.values.items()}
            left = 0
            replaced = graph.replaced(roots, values)
            masks = dependencies(replaced, problem.axes)
            for root in replaced:
                left |= masks[root]
            for other, pairs in enumerate(idle):
                if other != number and not left >> other & 1:
                    pairs.append((number, place))
    return tuple(map(tuple, idle))
