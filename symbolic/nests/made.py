"""From a problem to the source of its nest: choose the order of loops, regroup, plan, print."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..documents.nest import nest
from ..rendering import rendered
from .dominated import without_dominated
from .graph import Node
from .grouping import regrouped
from .order import chosen_order
from .plan import planned
from .posing import Posing, posed
from .problem import Problem

_HEADER = "Made for one space of configurations by shardmath.symbolic.nests; do not edit."


def nest_of(title: str, posing: Posing, evaluator: str, verdicts: str, header: str = _HEADER) -> str:
    """The Numba source of the nest of a space; see ``posed`` for the arguments."""
    problem, names = posed(posing, evaluator, verdicts)
    smaller = replace(problem, estimate=without_dominated(
        problem.graph, problem.estimate, posing.symbols, [node for _, node in problem.conditions]
    ))
    return nest_source(title, posing.key(evaluator), smaller, names, literal=posing.literal, header=header)


def nest_source(
    title: str, key: str, problem: Problem, names: Mapping[Node, str], *, literal: bool, header: str = _HEADER
) -> str:
    """The Numba source of the nest of ``problem``; ``names`` are those of terms, for readers.

    With ``literal``, the nest is for axes of exactly these sizes, else for all sizes.
    """
    order = chosen_order(problem)
    grouped, renamed = regrouped(problem, order, names)
    return rendered("nest.py", nest(title, key, planned(grouped, order, renamed), literal=literal), header)
