"""Questions of a nest as lines: what the table loop looks for, and what becomes of entries that may be answers.

Answers are rare, so the table loop keeps nothing of its entries: where one may be an answer, they are computed again.
"""

from __future__ import annotations

from typing import Any

from ..expressions.graph import Node
from ..nests.grouping import are_limits
from ..nests.plan import group_axes
from ..nests.problem import ESTIMATE, Best, Front, Histogram, Question, Rows
from .block import is_steady
from .loops import Loops


class Questions:
    """Prepares the questions to a plan whose loops are prepared."""

    def __init__(self, loops: Loops) -> None:
        self.loops, self.plan, self.steps = loops, loops.plan, loops.steps

    def data(self) -> dict[str, Any]:
        """Return the data for the templates."""
        return {
            "questions": [self._question(question) for question in self.plan.problem.questions],
            "verdicts": len(self.plan.problem.verdicts),
        }

    def _question(self, question: Question) -> dict[str, Any]:
        among = None if question.among is None else f"met_{question.among - 1}"
        name = question.name.replace("-", "_")
        base: dict[str, Any] = {"name": name, "among": among, "kind": type(question).__name__.lower(),
                                "bounded": isinstance(question, Best | Front), "edge": None,
                                "steady": is_steady(self.plan, question)}
        keys = [self._key(node) for node in question.keys]
        if isinstance(question, Histogram):
            return {**base, "keys": keys}
        base |= {"keys": keys, "first": next((number for number, key in enumerate(keys) if key["fused"]), None)}
        if isinstance(question, Rows):
            return base
        if base["first"] is not None and question.keys[base["first"]].value == ESTIMATE:
            base["edge"] = self._edge(question.among)
        if isinstance(question, Front):
            return base
        return {**base, "group": self._group(question), "per": list(question.per)}

    def _edge(self, among: int | None) -> str | None:
        """Return the largest estimate that has one of the first verdicts, if it is one number for all entries."""
        if among is None:
            return "LARGEST"
        verdicts = self.plan.problem.verdicts
        if not are_limits(verdicts) or self.plan.place[verdicts[among - 1].args[1]][1]:
            return None
        return self.steps.source(verdicts[among - 1].args[1])

    def _key(self, node: Node) -> dict[str, Any]:
        fused = self.plan.place[node][1]
        name = self.plan.names.get(node) or self.steps.printer.doprint(node)
        return {"fused": fused, "name": name}

    def _group(self, question: Best) -> str:
        """Return the number of the group of a configuration, the last axis running fastest."""
        text = ""
        for position in group_axes(question, self.plan.order):
            axis = self.plan.order.outer[position]
            index = f"i_{axis.name}"
            text = f"({text}) * {self.loops.size(axis)} + {index}" if text else index
        return text or "0"
