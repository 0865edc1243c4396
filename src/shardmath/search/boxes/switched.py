"""Formulas of equal values in which intervals see what cancels.

Bounds of ``a + s (b - a)`` mix what is there with ``s`` off and on; those of a choice of two sums do not. Bounds of
``a x / (b x)`` mix all values of ``x`` with each other; those of ``a / b`` do not. Floats of the other form may differ
in the last digit, so ``points`` has the keys of answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from shardmath.compiler.expressions import ops
from shardmath.compiler.expressions.differences import Rational, difference, factors, quotient
from shardmath.compiler.expressions.graph import Graph, Node, ordered
from shardmath.compiler.nests.problem import Problem
from shardmath.search.boxes.rounded import Legal
from shardmath.search.spaces import Axis, Part

#: Parts of a sum: how often each is in it.
_Parts = Mapping[Node, Rational]
_SWITCHED = {0, 1}
#: Operations whose values change little where their arguments do; of choices those between which is chosen.
_SMOOTH = {ops.NAME, ops.NUMBER, ops.ADD, ops.MUL, ops.DIV, ops.MAX, ops.MIN}


def switched(problem: Problem, part: Part) -> Problem:
    """Return a problem of equal values with choices in place of sums in which a switch lets parts cancel.

    Quotients are without common factors, and multiples stay near what is rounded up. Floats of other than whole numbers
    may differ in their last digit, so what something is decided by, or what is rounded, stays as it is unless it is
    whole.
    """
    roots = problem.roots
    deciding = [*(node for _, node in problem.conditions), problem.estimate, *problem.verdicts]
    deciding += [arg for node in ordered(roots) if node.op not in _SMOOTH
                 for arg in (node.args[:1] if node.op == ops.SELECT else node.args)]
    limits = {name: (value, value) for name, value in part.fixed.items()}
    limits |= {name: (min(column), max(column)) for axis in part.axes for name, column in axis.values.items()}
    legal = Legal(problem.graph, limits, [node for _, node in problem.conditions])
    writing = _Writing(problem.graph, part.axes, set(ordered(deciding)), legal)
    for node in ordered(roots):
        writing.write(node)
    return problem.with_roots([writing.done[root] for root in roots])


class _Writing:
    """The switches of a problem: names of 0 or 1, and conditions as numbers."""

    def __init__(self, graph: Graph, axes: Sequence[Axis], deciding: set[Node], legal: Legal) -> None:
        #: Nodes that stay as they are unless they are whole.
        self._deciding = deciding
        self._graph, self._legal, self._on = graph, legal, dict[Node, Node]()
        self._axis_of: dict[Node, tuple[Axis, str]] = {}
        for axis in axes:
            for name, column in axis.values.items():
                self._axis_of[graph.name(name)] = axis, name
                if set(column) == _SWITCHED:
                    self._on[graph.name(name)] = graph.binary(ops.EQ, graph.name(name), graph.number(1))
        self._alike: dict[tuple[str, tuple[bool, ...]], Node] = {}
        self._known: dict[Node, tuple[Node, bool] | None] = {}
        #: Nodes as they were, with those to take in their place.
        self.done: dict[Node, Node] = {}

    def write(self, node: Node) -> Node:
        """Return what to take in the place of a node: sums are looked at as they were, all else is done below."""
        if node not in self.done:
            free = node not in self._deciding or self._legal.is_integer(node)
            chosen = self._chosen(node) if free and node.op == ops.ADD else None
            self.done[node] = chosen or self._rebuilt(node)
        return self.done[node]

    def _rebuilt(self, node: Node) -> Node:
        """Return a node of what its arguments were written as, in another form if that may be."""
        args = tuple(self.write(arg) for arg in node.args)
        rebuilt = self._graph.rebuilt(node, args)
        other = (quotient(self._graph, *args) if node.op == ops.DIV
                 else self._legal.rounded_up(rebuilt) if rebuilt.op == ops.MUL else rebuilt)
        return other if node not in self._deciding or self._legal.is_integer(other) else rebuilt

    def _chosen(self, node: Node) -> Node | None:
        """Return a sum with choices in it, if a switch lets parts cancel or puts some in place of others; else None."""
        left: dict[Node, Rational] = difference(self._graph, node)
        choices = list[Node]()
        for condition in dict.fromkeys(switch[0] for part in left for switch in self._switches(part)):
            group = {part: count for part, count in left.items()
                     if any(own is condition for own, _ in self._switches(part))}
            sides = [self._where(group, condition, truth) for truth in (True, False)]
            beside = {part: count for part, count in left.items() if part not in group
                      and any(side.get(part, 0) * count < 0 for side in sides)}
            if beside or (all(sides) and len(group) > 1):
                choices.append(self._graph.select(
                    self.write(condition), *(self.write(self._sum(side, beside)) for side in sides)))
                left = {part: count for part, count in left.items() if part not in group and part not in beside}
        return self._graph.add([*choices, self.write(self._sum(left))]) if choices else None

    def _where(self, parts: _Parts, condition: Node, truth: bool) -> dict[Node, Rational]:
        """Return the parts of a sum where a condition holds, or where it does not."""
        result: dict[Node, Rational] = {}
        for part, times in parts.items():
            own = self._without(part, condition, truth)
            if own is not None:
                for inner, count in difference(self._graph, own).items():
                    result[inner] = result.get(inner, 0) + times * count
        return {part: count for part, count in result.items() if count}

    def _without(self, part: Node, condition: Node, truth: bool) -> Node | None:
        """Return a part where a condition holds or does not, without its switch; None where the switch makes it 0."""
        left = []
        for factor in factors(part):
            switch = self._switch(factor)
            if switch is None or switch[0] is not condition:
                left.append(factor)
            elif switch[1] != truth:
                return None
        return self._graph.mul(left)

    def _sum(self, *sums: _Parts) -> Node:
        return self._graph.add(self._graph.mul((self._graph.number(Fraction(count)), part))
                               for parts in sums for part, count in parts.items())

    def _switches(self, part: Node) -> list[tuple[Node, bool]]:
        return [switch for factor in factors(part) if (switch := self._switch(factor)) is not None]

    def _switch(self, factor: Node) -> tuple[Node, bool] | None:
        """Return the condition under which a factor is 1, with True, or under which it is 0; None for others."""
        if factor not in self._known:
            self._known[factor] = self._condition(factor)
        return self._known[factor]

    def _condition(self, factor: Node) -> tuple[Node, bool] | None:
        if factor in self._on:
            return self._normal(self._on[factor])
        if factor.op == ops.SELECT:
            condition, yes, no = factor.args
            numbers = [arg.value if arg.op == ops.NUMBER else None for arg in (yes, no)]
            if set(numbers) == _SWITCHED:
                own, truth = self._normal(condition)
                return own, truth == (numbers[0] == 1)
        return None

    def _normal(self, condition: Node) -> tuple[Node, bool]:
        """Return one condition for all that hold at the same places of an axis, or at all of its others."""
        if condition.op == ops.NOT:
            own, truth = self._normal(condition.args[0])
            return own, not truth
        names = [node for node in ordered([condition]) if node.op == ops.NAME]
        if len(names) != 1 or names[0] not in self._axis_of:
            return condition, True
        axis, name = self._axis_of[names[0]]
        replaced = [self._graph.replaced([condition], {names[0]: self._graph.number(value)})[0]
                    for value in axis.values[name]]
        if any(node.op != ops.TRUTH for node in replaced):
            return condition, True
        truths = tuple(bool(node.value) for node in replaced)
        opposite = self._alike.get((name, tuple(not truth for truth in truths)))
        if opposite is not None:
            return opposite, False
        return self._alike.setdefault((name, truths), condition), True
