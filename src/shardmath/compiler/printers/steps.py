"""Steps of a nest as lines: what is computed, checked, and loaded from an array of numbers."""

from __future__ import annotations

from typing import Any

from ..expressions.graph import Node
from ..nests.grouping import ALIVE
from ..nests.plan import Check, Plan
from .nodes import Dialect, NestPrinter

#: Rows start a little farther apart than what they hold, so that the rows of one entry do not fall on the same lines of
#: a cache.
APART = 8


class Steps:
    """The steps of one plan in one dialect; ``pens`` are the levels that have conditions on single entries."""

    def __init__(self, plan: Plan, dialect: Dialect) -> None:
        self.plan, self.dialect = plan, dialect
        self.printer = NestPrinter(dialect, plan.names)
        self.pens = [number for number, level in enumerate(plan.levels[:-1]) if level.table_checks]

    def step(self, step: Node | Check) -> dict[str, Any]:
        """Return one step of a loop."""
        if isinstance(step, Check):
            return {"check": True, "number": step.number, "source": self.source(step.node)}
        return {"check": False, "name": self.plan.names[step], "source": self.printer.doprint(step)}

    def source(self, node: Node) -> str:
        """Return a value by its name, if it has one."""
        return self.plan.names.get(node) or self.printer.doprint(node)

    def loaded(self, node: Node) -> dict[str, Any]:
        """Return a variable that comes from an array of numbers: a condition is one that is not 0."""
        return {"name": self.plan.names[node], "test": " != 0.0" if node.is_condition else ""}

    def with_alive(self, steps: list[dict[str, Any]], number: int) -> list[dict[str, Any]]:
        """Return the steps of a level, with the row of entries that broke no condition behind its last condition."""
        last = max(place for place, step in enumerate(steps) if step["check"])
        source = f"{self.dialect.prefix}select(kept, -INFINITY, INFINITY)"
        return [*steps[:last + 1], {"check": False, "name": alive(number), "source": source}, *steps[last + 1:]]


def alive(number: int) -> str:
    """Return the row that tells which entries broke no condition up to a level."""
    return f"{ALIVE}_{number}"
