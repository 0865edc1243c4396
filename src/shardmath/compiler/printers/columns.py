"""Source of the nodes of an evaluator of columns: those of nests, and divisions by way of reciprocals."""

from __future__ import annotations

from ..expressions.graph import CEIL, COMMON, DIV, FLOOR, NEAREST, NUMBER, QUOTIENT, ROUNDED_UP, WHOLE, Node
from .nodes import NestPrinter

_CALLS = {QUOTIENT: "quotient", CEIL: "ceil", FLOOR: "floor", NEAREST: "nearest", WHOLE: "whole", COMMON: "common",
          ROUNDED_UP: "rounded_up"}


class FlatPrinter(NestPrinter):
    """Prints over the helper functions that ``kernel.py.jinja`` defines."""

    def _operation(self, node: Node) -> str:
        if node.op in _CALLS:
            return f"{_CALLS[node.op]}({', '.join(map(self._print, node.args))})"
        if node.op == DIV and node.args[0].op == NUMBER and node.args[1].op == COMMON:
            return f"reciprocal_of_power({self._print(node.args[1])})"
        return super()._operation(node)
