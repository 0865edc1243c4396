"""Source of the nodes of an evaluator of columns: those of nests, and divisions by way of reciprocals."""

from __future__ import annotations

from ..expressions import ops
from ..expressions.graph import Node
from .nodes import NestPrinter

_CALLS = {ops.QUOTIENT: "quotient", ops.CEIL: "ceil", ops.FLOOR: "floor", ops.NEAREST: "nearest",
          ops.WHOLE: "whole", ops.COMMON: "common", ops.ROUNDED_UP: "rounded_up"}


class FlatPrinter(NestPrinter):
    """Prints over the helper functions that ``kernel.py.jinja`` defines."""

    def _operation(self, node: Node) -> str:
        if node.op in _CALLS:
            return f"{_CALLS[node.op]}({', '.join(map(self._print, node.args))})"
        if node.op == ops.DIV and node.args[0].op == ops.NUMBER and node.args[1].op == ops.COMMON:
            return f"reciprocal_of_power({self._print(node.args[1])})"
        return super()._operation(node)
