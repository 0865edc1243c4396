"""Loops that are one: conditions on all of their turns, then what is computed for the legal ones, several at a time.

Where loops stand between the tests and the table, what does not depend on them is computed once for all of their turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..expressions import ops
from ..expressions.graph import Node, ordered
from ..nests.order import LANES
from ..nests.plan import Check, Level, Plan
from ..nests.problem import Best, Front, Question
from .steps import APART, Steps

#: Tables of at most so many entries are gone through entry by entry, each for several turns at the same time.
FEW = 2 * LANES


def block(plan: Plan, steps: Steps, literal: bool) -> dict[str, Any]:
    """Get the loops that are one: the conditions on their turns, what is computed for the legal ones, and handed on."""
    order, inner = plan.order, plan.levels[-1]
    assert order.tested
    tested = plan.levels[order.tested]
    parameters = [parameter for axis in order.block for parameter in axis.parameters]
    tests = [step.node for step in tested.before if isinstance(step, Check)]
    skip = () if plan.problem.skip is None else (plan.problem.skip,)
    own = [node for node in inner.handed if node not in tested.handed]
    stride = -(-order.turns // LANES) * LANES + APART
    few = literal and order.entries <= FEW and all(is_steady(plan, question) for question in plan.problem.questions)
    rows = [_row(plan, node) for node in (*tested.handed, *own)]
    return {
        "axes": [axis.name for axis in order.block], "parameters": parameters, "stride": stride,
        "turns": order.turns, "padded": stride - APART, "across": order.entries if few else 0,
        "tried": _stage(steps, tested, [*tests, *skip], parameters),
        "gathered": _stage(steps, tested, tested.handed, parameters),
        "packed": _kept(plan, steps, tested.handed),
        "reads": _kept(plan, steps, tested.handed if few else _read(tested, inner)),
        "computed": [steps.step(step) for step in inner.before],
        "stores": _kept(plan, steps, own), "loads": _kept(plan, steps, inner.handed),
        "rows": [{"name": name.upper(), "place": number * stride} for names in (parameters, rows)
                 for number, name in enumerate(names)],
        "made": len(rows),
    }


def is_steady(plan: Plan, question: Question) -> bool:
    """Tell whether the threshold of an answer stays the same from one turn of a block to the next.

    So it is if no turn sets its group, or a number that it depends on and that is the same for a whole table.
    """
    block, depth = {axis.name for axis in plan.order.block}, len(plan.order.levels)
    if not block or not isinstance(question, Best | Front):
        return False
    keys: Iterable[Node] = question.keys
    if isinstance(question, Best):
        if block & set(question.per):
            return False
        # Keys behind the first one that differs between entries are not looked at in advance.
        keys = question.keys[:next((number for number, key in enumerate(question.keys) if plan.place[key][1]), None)]
    edges = [arg for verdict in plan.problem.verdicts for arg in verdict.args]
    return all(plan.place[node] not in ((depth, False), (plan.order.tested, False)) for node in (*keys, *edges))


def _stage(steps: Steps, level: Level, roots: Sequence[Node], parameters: Sequence[str]) -> dict[str, Any]:
    """Return the loads and steps that compute ``roots`` in a turn."""
    needed = set(ordered(roots))
    tests = [step for step in level.before if isinstance(step, Check) and step.node in roots]
    return {
        "reads": [name for name in parameters if any(node.op == ops.NAME and node.value == name for node in needed)],
        "steps": [steps.step(step) for step in level.before if step in tests or step in needed],
    }


def _read(tested: Level, inner: Level) -> list[Node]:
    """Return the values of legal turns that inner loops read."""
    needed = set(ordered([step for step in inner.before if not isinstance(step, Check)]))
    return [node for node in tested.handed if node in needed]


def _kept(plan: Plan, steps: Steps, nodes: Iterable[Node]) -> list[dict[str, Any]]:
    """Return variables with their rows."""
    return [steps.loaded(node) | {"row": _row(plan, node).upper()} for node in nodes]


def _row(plan: Plan, node: Node) -> str:
    """Return the row of what is kept of the legal turns."""
    return f"legal_{plan.names[node]}"
