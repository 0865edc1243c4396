"""The largest of many sums, written so that the innermost loops do the least: Horner's rule for maximum and plus.

An argument of a maximum is a polynomial: scalars times rows of the table. What does not change in the innermost loop
is put aside; of arguments that agree in the rest, the largest is taken in an outer loop, for max(x + a, x + b) is
x + max(a, b). What was put aside is treated in the same way for the next loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from . import ops
from .graph import Graph, Node

Place = tuple[int, bool]
#: A sum of rows with scalar coefficients; the row of what is no row is the number 1.
Linear = dict[Node, Node]
#: A scalar and a row that are added.
Term = tuple[Node, Node]
#: Sums of more rows than this are not multiplied out, nor maxima of more arguments put together.
_MOST = 64


class Maxima:
    """Rewrites maxima of a graph for the places of its nodes.

    ``nested`` puts the parts of a sum or product together by place, from the outside inwards; ``last`` is the innermost
    level. On the level ``tested`` stands what differs between the turns of a block; a sum of it with what changes in a
    deeper loop is of the last one.
    """

    def __init__(
        self, graph: Graph, place: Callable[[Node], Place], nested: Callable[[str, Sequence[Node]], Node],
        last: int, tested: int | None = None,
    ) -> None:
        self.graph, self.place, self.nested, self.last, self.tested = graph, place, nested, last, tested
        self.zero, self.one = graph.number(0), graph.number(1)
        self._known: dict[Node, Linear] = {}
        self._bearing: set[Node] = set()

    def rewritten(self, node: Node, alive: Node | None = None) -> Node:
        """Return the same value; what is no maximum, or no sum with one, stays as it is.

        ``alive`` becomes an argument as well. It is compared last wherever it is: what was computed for an entry that
        breaks a condition may be no number, and an infinite second argument is larger than that, too.
        """
        arguments = self._arguments(node)
        if alive is not None:
            arguments.append(alive)
            self._bearing.add(alive)
        if len(arguments) == 1:
            return node
        unique = {frozenset(linear.items()): linear for linear in map(self._linear, arguments)}
        return self._plus(*self._largest(list(unique.values()), max(map(self._depth, unique.values()))))

    def _arguments(self, node: Node) -> list[Node]:
        """Return sums of which ``node`` is the largest: what is added to a maximum is added to its arguments."""
        if node.op == ops.MAX:
            return [argument for arg in node.args for argument in self._arguments(arg)]
        if node.op == ops.ADD:
            for arg in node.args:
                arguments = self._arguments(arg)
                if 1 < len(arguments) <= _MOST:
                    rest = [other for other in node.args if other is not arg]
                    return [
                        final for argument in arguments
                        for final in self._arguments(self.graph.add([argument, *rest]))
                    ]
        return [node]

    # Linear forms.

    def _linear(self, node: Node) -> Linear:
        if node not in self._known:
            self._known[node] = self._taken_apart(node)
        return self._known[node]

    def _taken_apart(self, node: Node) -> Linear:
        if not self.place(node)[1]:
            return {self.one: self._cancelled(node)}
        if node.op == ops.ADD:
            return self._added(map(self._linear, node.args))
        if node.op == ops.MUL:
            parts: Linear = {self.one: self.one}
            for arg in node.args:
                factor = self._linear(arg)
                if len(parts) * len(factor) > _MOST:
                    return {node: self.one}
                parts = self._added(
                    {self._times(row, other): self._times(scalar, by)}
                    for row, scalar in parts.items() for other, by in factor.items()
                )
            return parts
        if node.op == ops.DIV:
            return self._divided(*node.args) or {node: self.one}
        return {node: self.one}

    def _cancelled(self, node: Node) -> Node:
        """Return a scalar without parts of sums that are added and taken away again."""
        if node.op == ops.ADD:
            parts = self._summands(node)
            total = self.graph.add(parts)
            same = total.op == ops.ADD and len(total.args) == len(parts)
            return node if same else self.nested(ops.ADD, self._summands(total))
        if node.op == ops.MUL:
            args = tuple(map(self._cancelled, node.args))
            return node if args == node.args else self.nested(ops.MUL, args)
        return node

    def _added(self, sums: Iterable[Linear]) -> Linear:
        scalars_of: dict[Node, list[Node]] = {}
        for linear in sums:
            for row, scalar in linear.items():
                scalars_of.setdefault(row, []).append(scalar)
        total = {row: self._flat_sum(scalars) for row, scalars in scalars_of.items()}
        return {row: scalar for row, scalar in total.items() if scalar is not self.zero}

    def _flat_sum(self, scalars: Sequence[Node]) -> Node:
        if len(scalars) == 1:
            return scalars[0]
        return self.nested(ops.ADD, [part for scalar in scalars for part in self._summands(scalar)])

    def _summands(self, node: Node) -> list[Node]:
        if node.op == ops.ADD:
            return [part for arg in node.args for part in self._summands(arg)]
        if node.op == ops.MUL and len(node.args) == 2 and node.args[0].op == ops.NUMBER and node.args[1].op == ops.ADD:
            number, inner = node.args
            return [self.graph.mul((number, part)) for part in self._summands(inner)]
        return [node]

    def _times(self, left: Node, right: Node) -> Node:
        if self.one in (left, right):
            return right if left is self.one else left
        return self.nested(ops.MUL, [part for factor in (left, right) for part in self._factors(factor)])

    def _factors(self, node: Node) -> list[Node]:
        return [part for arg in node.args for part in self._factors(arg)] if node.op == ops.MUL else [node]

    def _divided(self, over: Node, under: Node) -> Linear | None:
        """Return the quotient where the divisor is a factor of all rows; else rounding would matter."""
        quotient: Linear = {}
        for row, scalar in self._linear(over).items():
            factors = self._factors(row)
            if under not in factors:
                return None
            factors.remove(under)
            quotient[self.graph.mul(factors)] = scalar
        return quotient

    def _depth(self, linear: Linear) -> int:
        return max((max(self.place(row)[0], self.place(scalar)[0]) for row, scalar in linear.items()), default=0)

    # Maxima.

    def _largest(self, sums: Sequence[Linear], depth: int) -> Term:
        """Return the largest of ``sums`` with what changes at ``depth`` outermost in the expression."""
        if depth < 0:
            assert not any(sums), "a part of a maximum that stands in no loop"
            return self.zero, self.zero
        by_rows: dict[Node, dict[Node, list[Linear]]] = {}
        for linear in sums:
            inner: Linear = {}
            outer: Linear = {}
            for row, scalar in linear.items():
                at = max(self.place(row)[0], self.place(scalar)[0])
                (inner if at == depth else outer)[row] = scalar
            scalar, rest = self._split(inner.pop(self.one, self.zero), depth)
            if rest is not self.zero:
                outer[self.one] = rest
            by_rows.setdefault(self._sum(inner), {}).setdefault(scalar, []).append(outer)
        self._join_pen(by_rows, depth)
        by_outer: dict[Node, list[Term]] = {}
        for rows, by_scalar in by_rows.items():
            largest = [
                (self._flat_sum([scalar, offset]), row)
                for scalar, outers in by_scalar.items() for offset, row in [self._largest(outers, depth - 1)]
            ]
            offset, row = largest[0] if len(largest) == 1 else self._maximum(largest)
            by_outer.setdefault(row, []).append((offset, rows))
        terms = []
        for row, inners in by_outer.items():
            offset, rows = self._maximum(inners)
            terms.append((offset, self._plus(rows, row)))
        return self._maximum(terms)

    def _join_pen(self, by_rows: dict[Node, dict[Node, list[Linear]]], depth: int) -> None:
        """Let what is infinite for entries that broke a condition join an argument with rows of outer loops.

        There it is compared once for many turns, for infinity plus a number is infinity.
        """
        alone = by_rows.get(self.zero, {}).get(self.zero, [])
        pen = next((outer for outer in alone if not self._bearing.isdisjoint(outer)), None)
        if pen is None:
            return
        (alive,) = pen
        rows = [row for row in by_rows if self.place(row)[1] and self.place(row)[0] == depth < self.last]
        others = [
            outers for by_scalar in by_rows.values() for outers in by_scalar.values()
            if any(outer is not pen and any(self.place(row)[1] for row in outer) for outer in outers)
        ]
        if rows:
            parts = (rows[-1], alive)
            by_rows[self._bears(self.graph.chained(ops.MAX, parts), parts)] = by_rows.pop(rows[-1])
        elif not others or alone in others:
            return
        else:
            others[-1].append(pen)
        alone.remove(pen)
        if not alone:
            del by_rows[self.zero][self.zero]
        if not by_rows[self.zero]:
            del by_rows[self.zero]

    def _maximum(self, terms: Iterable[Term]) -> Term:
        """Of terms with the same row, only the scalars are compared; a single term needs no operation on rows yet."""
        offsets: dict[Node, dict[Node, None]] = {}
        for offset, row in terms:
            offsets.setdefault(row, {})[offset] = None
        largest = [(self.graph.chained(ops.MAX, list(offset_nodes)), row) for row, offset_nodes in offsets.items()]
        if len(largest) == 1:
            return largest[0]
        parts = sorted((self._plus(*term) for term in largest), key=self._bearing.__contains__)
        return self.zero, self._bears(self.graph.chained(ops.MAX, parts), parts)

    def _split(self, scalar: Node, depth: int) -> tuple[Node, Node]:
        """Split a sum without rows into the part that changes at ``depth`` and the rest."""
        parts = self._summands(scalar)
        changing = [part for part in parts if self.place(part)[0] == depth]
        others = [part for part in parts if part not in changing]
        if others and self.place(self.nested(ops.ADD, others))[0] == depth:
            # Parts that change in a loop between the tests of turns and the table, and from turn to turn.
            changing += [part for part in others if self.place(part)[0] == self.tested]
            others = [part for part in others if part not in changing]
        return self.nested(ops.ADD, changing), self.nested(ops.ADD, others)

    def _sum(self, inner: Mapping[Node, Node]) -> Node:
        """Sum the terms; add rows with the same scalar in an outer loop where possible."""
        by_scalar: dict[Node, list[Node]] = {}
        for row, scalar in inner.items():
            by_scalar.setdefault(scalar, []).append(row)
        return self.graph.chained(ops.ADD, [
            self.graph.chained(ops.MUL, [scalar, self.nested(ops.ADD, rows)]) for scalar, rows in by_scalar.items()
        ])

    def _plus(self, left: Node, right: Node) -> Node:
        return self._bears(self.graph.chained(ops.ADD, [left, right]), (left, right))

    def _bears(self, node: Node, parts: Iterable[Node]) -> Node:
        """Note that a node is infinite for entries that broke a condition, if one of its parts is."""
        if not self._bearing.isdisjoint(parts):
            self._bearing.add(node)
        return node
