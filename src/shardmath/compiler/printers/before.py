"""The prologue of a nest: whole columns of the table, and numbers that are the same for all entries."""

from __future__ import annotations

from typing import Any

from ..expressions import ops
from ..expressions.graph import Node, ordered
from ..nests.grouping import ALIVE
from ..nests.plan import Check, Level, Plan
from ..nests.problem import ESTIMATE
from ..nests.skipping import HIGH, LOW, end_name
from .nodes import NUMPY
from .steps import Steps, alive


class Before:
    """Prepares what comes before the loops of a plan, in NumPy."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.steps = plan, Steps(plan, NUMPY)

    def data(self) -> dict[str, Any]:
        """Return the data for the templates."""
        return {
            "scalars": self._scalars(), "columns": self._columns(),
            "before": [{"check": False, **end} for end in self._ends()] + self._computed(self.plan.levels[0]),
            "before_rows": self._rows(), "given": self._given(),
        }

    def _leaves(self) -> list[Node]:
        return [node for node in ordered(self.plan.problem.roots)
                if node.op == ops.NAME and node.value not in (ESTIMATE, ALIVE) and self.plan.place[node][0] == 0]

    def _scalars(self) -> list[str]:
        ends = {end["name"] for end in self._ends()}
        names = [str(node.value) for node in self._leaves() if not self.plan.place[node][1]]
        return [name for name in names if name not in ends]

    def _ends(self) -> list[dict[str, str]]:
        """Smallest and largest values of the table's parameters, as far as they are needed."""
        leaves = {str(node.value) for node in self._leaves()}
        parameters = [parameter for axis in self.plan.order.fused for parameter in axis.parameters]
        return [
            {"name": name, "source": f"{function}({parameter})"}
            for parameter in parameters for end, function in ((LOW, "np.min"), (HIGH, "np.max"))
            if (name := end_name(parameter, end)) in leaves
        ]

    def _columns(self) -> list[str]:
        needed = {str(node.value) for node in self._leaves() if self.plan.place[node][1]}
        ended = {end["source"].partition("(")[2].rstrip(")") for end in self._ends()}
        parameters = [parameter for axis in self.plan.order.fused for parameter in axis.parameters]
        return [parameter for parameter in parameters if parameter in needed | ended]

    def _computed(self, level: Level) -> list[dict[str, Any]]:
        steps = [self.steps.step(step) for step in (*level.before, *level.table)]
        return self.steps.with_alive(steps, 0) if 0 in self.steps.pens else steps

    def _rows(self) -> list[dict[str, Any]]:
        """Return the rows that are filled before the loops."""
        own = [self.steps.loaded(node) for node, _ in sorted(self.plan.rows.items(), key=lambda item: item[1])
               if self.plan.place[node][0] == 0]
        row = {"name": alive(0), "test": ""}
        return [*own, row] if 0 in self.steps.pens and row not in own else own

    def _given(self) -> list[dict[str, Any]]:
        """Return the loop-invariant values that the loops read."""
        plan, nodes = self.plan, dict[Node, None]()
        for number, level in enumerate(plan.levels):
            if number == 0:
                continue
            for step in (*level.before, *level.table):
                self._collect(step.node if isinstance(step, Check) else step, nodes)
        skip = () if plan.problem.skip is None else (plan.problem.skip,)
        for node in (plan.problem.estimate, *plan.problem.verdicts, *skip, *self._keys()):
            self._collect(node, nodes, own=True)
        return [self.steps.loaded(node) for node in nodes]

    def _collect(self, root: Node, nodes: dict[Node, None], *, own: bool = False) -> None:
        names, place = self.plan.names, self.plan.place
        pending = [root] if own or root not in names else list(root.args)
        while pending:
            node = pending.pop()
            if node in names:
                if place[node] == (0, False):
                    nodes[node] = None
            else:
                pending.extend(node.args)

    def _keys(self) -> list[Node]:
        return [node for question in self.plan.problem.questions for node in question.keys]
