"""An expression as a polynomial of one symbol whose coefficients are expressions in the others.

Where the expression has several forms, such as the ranks and moments of a step that may be the largest, a value near
the answer says which one is meant. Roundings are left out: a quotient rounded up is the quotient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ..expressions import ops
from ..expressions.graph import Graph, Node, ordered
from .laurent import NoClosedFormError

#: Coefficients by exponent.
Coefficients: TypeAlias = "dict[int, Node]"

_QUOTIENTS = frozenset((ops.DIV, ops.CEIL_DIV, ops.FLOOR_DIV))


class Polynomials:
    """Polynomials of nodes of one graph.

    ``symbols`` has what the symbol, and every name that goes along with it, is multiplied with; ``near`` gives a number
    or a condition as it is near the answer, without the symbol.
    """

    def __init__(self, graph: Graph, symbols: Mapping[Node, Node], near: Callable[[Node], Node]) -> None:
        self.graph, self._near = graph, near
        self._known: dict[Node, Coefficients] = {node: {1: times} for node, times in symbols.items()}
        self._varying: set[Node] = set(symbols)
        self._constant: set[Node] = set()

    def of(self, root: Node) -> Coefficients:
        """Return the coefficients of an expression. Raises NoClosedFormError where it is no polynomial."""
        for node in ordered([root]):
            if node in self._varying or node in self._constant:
                continue
            (self._varying if any(arg in self._varying for arg in node.args) else self._constant).add(node)
        return self._of(root)

    def _of(self, node: Node) -> Coefficients:
        if node not in self._varying:
            return {} if node is self.graph.number(0) else {0: node}
        coefficients = self._known.get(node)
        if coefficients is None:
            coefficients = self._known[node] = self._made(node)
        return coefficients

    def _made(self, node: Node) -> Coefficients:
        if node.op == ops.ADD:
            return self._sum(map(self._of, node.args))
        if node.op == ops.MUL:
            return self._product(node)
        if node.op in _QUOTIENTS:
            return self._quotient(*node.args)
        if node.op in (ops.MAX, ops.MIN):
            return self._extreme(node.op, node.args)
        if node.op == ops.SELECT:
            return self._selected(self._near(node.args[0]), node.args[1], node.args[2])
        raise NoClosedFormError(f"an operation {node.op}")

    def _sum(self, parts: Iterable[Coefficients]) -> Coefficients:
        summands: dict[int, list[Node]] = {}
        for part in parts:
            for exponent, count in part.items():
                summands.setdefault(exponent, []).append(count)
        return self._kept({exponent: self.graph.add(counts) for exponent, counts in summands.items()})

    def _kept(self, parts: Coefficients) -> Coefficients:
        return {exponent: count for exponent, count in parts.items() if count is not self.graph.number(0)}

    def _product(self, node: Node) -> Coefficients:
        factors, values = list(node.args), list[Coefficients]()
        for factor in node.args:  # a quotient rounded up times its divisor
            if factor.op == ops.CEIL_DIV and factor in self._varying and {factor, factor.args[1]} <= {*factors}:
                factors.remove(factor)
                factors.remove(factor.args[1])
                values.append(self._of(factor.args[0]))
        constant = self.graph.mul([factor for factor in factors if factor not in self._varying])
        values += [self._of(factor) for factor in factors if factor in self._varying]
        result = self._of(constant)
        for value in values:
            result = self._times(result, value)
        return result

    def _times(self, first: Coefficients, other: Coefficients) -> Coefficients:
        return self._sum(
            {left + right: self.graph.mul((count, times))} for left, count in first.items()
            for right, times in other.items()
        )

    def _quotient(self, over: Node, under: Node) -> Coefficients:
        below = self._of(under)
        if len(below) != 1:
            raise NoClosedFormError("a division by a sum")
        ((power, divisor),) = below.items()
        counts = self._of(over).items()
        return {exponent - power: self.graph.binary(ops.DIV, count, divisor) for exponent, count in counts}

    def _extreme(self, op: str, args: Sequence[Node]) -> Coefficients:
        """Return the argument that is largest or smallest near the answer."""
        best, *others = args
        value, chosen = self._near(best), _Choice(best)
        for other in others:
            new = self._near(other)
            beaten = self.graph.binary(ops.LE, value, new) if op == ops.MAX else self.graph.binary(ops.LE, new, value)
            value, chosen = self.graph.select(beaten, new, value), _Choice(other, beaten, chosen)
        return self._resolved(chosen)

    def _resolved(self, choice: _Choice) -> Coefficients:
        """Only what may be chosen is turned into a polynomial."""
        if choice.otherwise is None or choice.condition is self.graph.truth(True):
            return self._of(choice.node)
        rest = self._resolved(choice.otherwise)
        if choice.condition is self.graph.truth(False):
            return rest
        assert choice.condition is not None
        return self._either(choice.condition, self._of(choice.node), rest)

    def _selected(self, condition: Node, yes: Node, no: Node) -> Coefficients:
        if condition.op == ops.TRUTH:
            return self._of(yes if condition.value else no)
        return self._either(condition, self._of(yes), self._of(no))

    def _either(self, condition: Node, yes: Coefficients, no: Coefficients) -> Coefficients:
        zero = self.graph.number(0)
        return self._kept({
            exponent: self.graph.select(condition, yes.get(exponent, zero), no.get(exponent, zero))
            for exponent in sorted(yes.keys() | no.keys())
        })


@dataclass(frozen=True)
class _Choice:
    """``node`` where the condition holds, else what is chosen otherwise."""

    node: Node
    condition: Node | None = None
    otherwise: _Choice | None = None
