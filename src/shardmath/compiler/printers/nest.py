"""Data of ``nest.py.jinja``: the plan of a nest as the lines of its loops."""

from __future__ import annotations

from typing import Any

from ..nests.order import LANES
from ..nests.plan import Check, Plan
from .before import Before
from .loops import Loops
from .nodes import PYTHON, Dialect
from .questions import Questions
from .steps import APART, Steps, alive

#: Entries that the table of a nest for all sizes has room for.
_ROOM = 4096


def nest(title: str, key: str, plan: Plan, *, dialect: Dialect = PYTHON, literal: bool = False) -> dict[str, Any]:
    """Prepare a nest. With ``literal``, sizes of axes are written as numbers, and the nest is for no others."""
    loops = Loops(plan, dialect, literal)
    order = plan.order
    room = -(-order.entries // LANES) * LANES if literal else _ROOM
    return {
        "title": title, "key": key, "literal": literal,
        "axes": [axis.name for axis in plan.problem.axes],
        "outer": [axis.name for axis in order.outer],
        "fused": [axis.name for axis in order.fused],
        "shard_axes": len(order.shard),
        "outer_parameters": [parameter for axis in order.outer for parameter in axis.parameters],
        "conditions": [name for name, _ in plan.problem.conditions],
        "tried": [step.number for level in plan.levels for step in (*level.before, *level.table)
                  if isinstance(step, Check)],
        "rows": [{"name": name, "place": number * (room + APART)} for number, name in enumerate(_rows(loops.steps))],
        "stride": room + APART, "room": room,
        **Before(plan).data(), **loops.data(), **Questions(loops).data(),
    }


def _rows(steps: Steps) -> list[str]:
    """Return the rows of the table by name."""
    plan = steps.plan
    rows = [plan.names[node] for node, _ in sorted(plan.rows.items(), key=lambda item: item[1])]
    return rows + [name for number in steps.pens if (name := alive(number)) not in rows]
