"""From a problem to the source of its nest: choose the order of loops, regroup, plan, print."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from shardmath.files.rendering import rendered

from .expressions.dominated import without_dominated
from .expressions.graph import Node, ordered
from .expressions.intervals import Limits
from .nests.grouping import regrouped
from .nests.order import chosen_order
from .nests.plan import Plan, planned
from .nests.posing import Posing, posed
from .nests.problem import Problem
from .nests.skipping import with_skipping
from .printers.nest import nest
from .printers.nodes import CUDA

#: Proofs leave parts of an estimate out from so many configurations on: of an estimate of at most ``_LONG`` operations,
#: as those of models without experts are, and of a longer one. Below they take longer than they save: see the table of
#: proofs in docs/benchmarks.md.
_PROVED, _LONG, _PROVED_LONG = 10**8, 750, 10**10
_HEADER = "Made for one space of configurations by shardmath.compiler; do not edit."


def nest_of(
    title: str, posing: Posing, evaluator: str, verdicts: str, *, kernel: bool = False, proving: bool | None = None,
) -> str:
    """Return the Python source of a space's nest; ``posed``, ``plan_of`` and ``nest_source`` have the arguments."""
    plan = plan_of(posing, evaluator, verdicts, blocks=posing.literal and not kernel, proving=proving)
    return _written(title, posing.key(evaluator), plan, posing.literal, kernel)


def plan_of(posing: Posing, evaluator: str, verdicts: str, *, blocks: bool, proving: bool | None = None) -> Plan:
    """Return the plan of the nest of a space, whatever language it is written in then.

    With ``proving``, ranks and moments that are provably never the largest are left out; None does so where it pays.
    """
    problem, names = posed(posing, evaluator, verdicts)
    if _is_proved(posing, problem) if proving is None else proving:
        problem = replace(problem, estimate=without_dominated(
            problem.graph, problem.estimate, posing.symbols, [node for _, node in problem.conditions]
        ))
    return _planned(problem, names, posing.symbols if posing.skipping else None, blocks)


def _is_proved(posing: Posing, problem: Problem) -> bool:
    """Tell whether proofs take less time than they save: never in a nest for all sizes, which are small spaces."""
    least = _PROVED if len(ordered([problem.estimate])) <= _LONG else _PROVED_LONG
    return posing.literal and prod(axis.size for axis in posing.axes) >= least


def nest_source(
    title: str, key: str, problem: Problem, names: Mapping[Node, str], *, literal: bool,
    limits: Mapping[str, Limits] | None = None, kernel: bool = False,
) -> str:
    """Return the Python source of the nest of ``problem``; ``names`` are those of terms, for readers.

    With ``literal``, the nest is for axes of exactly these sizes, else for all sizes. With ``limits``, the
    least and largest values of parameters, tables that nothing in fits are passed over. With ``kernel``, the same nest
    for a GPU follows.
    """
    return _written(title, key, _planned(problem, names, limits, literal and not kernel), literal, kernel)


def _written(title: str, key: str, plan: Plan, literal: bool, kernel: bool) -> str:
    data = nest(title, key, plan, literal=literal)
    if not kernel:
        return rendered("nest.py", data, _HEADER)
    device = nest(title, key, plan, dialect=CUDA, literal=literal)
    return rendered("nest_cuda.py", {**data, "device": device}, _HEADER)


def _planned(problem: Problem, names: Mapping[Node, str], limits: Mapping[str, Limits] | None, blocks: bool) -> Plan:
    # Passing over a table may depend on all loops, so all turns of a block are asked together.
    order = chosen_order(problem, blocks=blocks, between=limits is None)
    skipping = problem if limits is None else with_skipping(problem, order, limits)
    grouped, renamed = regrouped(skipping, order, names)
    return planned(grouped, order, renamed)
