"""Loops that are one: conditions on all of their turns, then what is computed for the legal ones, several at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..nests.graph import NAME, Node, ordered
from ..nests.order import LANES
from ..nests.plan import Check, Level, Plan
from .nest_steps import APART, Steps


def block(plan: Plan, steps: Steps) -> dict[str, Any]:
    """The loops that are one: the conditions on their turns, what is computed for the legal ones, and handed on."""
    order, level = plan.order, plan.levels[-1]
    parameters = [parameter for axis in order.block for parameter in axis.parameters]
    stores = [plan.names[node] for node in level.handed if node.op != NAME]
    tests = [step.node for step in level.before if isinstance(step, Check)]
    skip = () if plan.problem.skip is None else (plan.problem.skip,)
    stride = -(-order.turns // LANES) * LANES + APART
    return {
        "axes": [axis.name for axis in order.block], "parameters": parameters, "stride": stride,
        "turns": order.turns, "padded": stride - APART,
        "tried": _stage(steps, level, [*tests, *skip], parameters), "stores": stores,
        "computed": _stage(steps, level, [node for node in level.handed if node.op != NAME], parameters),
        "loads": [steps.loaded(node) | {
            "place": f"block[{plan.names[node].upper()} + turn" if node.op == NAME else
            f"made[{plan.names[node].upper()} + place"} for node in level.handed],
        "rows": [{"name": name, "place": number * stride} for names in (parameters, stores)
                 for number, name in enumerate(names)],
        "made": len(stores),
    }


def _stage(steps: Steps, level: Level, roots: Sequence[Node], parameters: Sequence[str]) -> dict[str, Any]:
    """What is read and done for a turn to know ``roots``."""
    needed = set(ordered(roots))
    tests = [step for step in level.before if isinstance(step, Check) and step.node in roots]
    return {
        "reads": [name for name in parameters if any(node.op == NAME and node.value == name for node in needed)],
        "steps": [steps.step(step) for step in level.before if step in tests or step in needed],
    }
