"""The loops of a nest as lines, from the shards inwards to the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..expressions import ops
from ..expressions.graph import Node, ordered
from ..nests.grouping import are_limits
from ..nests.plan import Check, Plan
from ..nests.problem import ESTIMATE, NestAxis
from .block import block
from .nodes import Dialect
from .steps import Steps, alive


class Loops:
    """Prepares the loops of a plan. With ``literal``, sizes of axes are written as numbers."""

    def __init__(self, plan: Plan, dialect: Dialect, literal: bool) -> None:
        self.plan, self.literal = plan, literal
        self.steps = Steps(plan, dialect)
        self.depth = len(plan.levels) - 1
        self.after_estimate = _using(plan.problem.roots, ESTIMATE)

    def data(self) -> dict[str, Any]:
        """Return the data for the templates."""
        order = self.plan.order
        return {
            "entries": str(order.entries) if self.literal else "entries",
            "shard_index": self._shard_index(order.shard),
            "below": [{"name": f"below_{number}", "source": self._inside(number)} for number in range(1, self.depth)],
            "block": block(self.plan, self.steps, self.literal) if order.block else None,
            "top": self._level(1),
        }

    def size(self, axis: NestAxis) -> str:
        """Return how many turns the loop over an axis has."""
        return str(axis.size) if self.literal else f"sizes[{self.plan.order.outer.index(axis)}]"

    def _inside(self, number: int) -> str:
        """Count the turns of all loops inside a level; the turns of a block are not counted below their tests."""
        return " * ".join(self.size(axis) for axes in self.plan.order.levels[number:] for axis in axes) or "1"

    def _below(self, number: int) -> str:
        """Count the tables behind one rejection on a level: inside the tests of a block, for legal turns."""
        tested = self.plan.order.tested
        if number == self.depth:
            return "1"
        return f"legal_turns * below_{number}" if tested and number > tested else f"below_{number}"

    def _shard_index(self, axes: Sequence[NestAxis]) -> list[dict[str, str]]:
        """Return places on each axis from the number of a shard, the last axis running fastest."""
        return [{"name": f"i_{axis.name}", "size": self.size(axis)} for axis in reversed(axes)]

    def _level(self, number: int) -> dict[str, Any]:
        plan = self.plan
        level, order = plan.levels[number], plan.order
        axes = order.levels[number - 1]
        parameters = [parameter for axis in (*order.outer, *order.block) for parameter in axis.parameters]
        alive_row = max((pen for pen in self.steps.pens if pen < number), default=None)
        innermost = number == self.depth
        late = [step for step in level.table if step in self.after_estimate]
        steps = [self.steps.step(step) for step in level.table if step not in self.after_estimate]
        stores = [plan.names[node] for node in level.stores]
        if number in self.steps.pens:
            steps, stores = self.steps.with_alive(steps, number), [*stores, alive(number)]
        return {
            "number": number, "innermost": innermost, "tested": number == order.tested,
            "axis": None if number in (1, order.tested) or not axes else {
                "name": f"i_{axes[0].name}", "size": self.size(axes[0])},
            "values": [
                {"name": parameter, "row": parameters.index(parameter), "index": f"i_{axis.name}"}
                for axis in axes if number != order.tested for parameter in axis.parameters
            ],
            "before": [self.steps.step(step) for step in level.before],
            "lost": [step.number for step in level.before if isinstance(step, Check)],
            "alive": f"alive_{alive_row}_count" if alive_row else "alive",
            "alive_row": None if alive_row is None else alive(alive_row),
            "table": bool(level.table) or innermost,
            "loads": [self.steps.loaded(node) for node in level.loads],
            "steps": steps,
            "checks": [check.number for check in level.table_checks],
            "stores": stores,
            "below": self._below(number),
            "estimate": self.steps.source(plan.problem.estimate) if innermost else "",
            "late": [self.steps.step(step) for step in late],
            "skip": self._skip() if number == (order.tested or self.depth) else "",
            "met": [self.steps.source(node) for node in plan.problem.verdicts] if innermost else [],
            "upwards": are_limits(plan.problem.verdicts),
            "inner": None if innermost else self._level(number + 1),
        }

    def _skip(self) -> str:
        """When the table need not be looked at; where entries break conditions in it, it always is."""
        skip = self.plan.problem.skip
        return "" if skip is None or self.plan.levels[-1].table_checks else self.steps.source(skip)


def _using(roots: Sequence[Node], name: str) -> set[Node]:
    """Return all nodes that depend on a name."""
    users: set[Node] = set()
    for node in ordered(roots):
        if any(arg in users or (arg.op == ops.NAME and arg.value == name) for arg in node.args):
            users.add(node)
    return users
