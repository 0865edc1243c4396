"""Choices in place of products with 0 or 1, and in place of sums that a switch makes shorter.

A choice costs a row less than a product, and a switch that takes away all else in a sum leaves less to be computed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence

from ..expressions import ops
from ..expressions.differences import quotient
from ..expressions.graph import Graph, Node, ordered


def with_choices(graph: Graph, roots: Sequence[Node], switches: Collection[str]) -> dict[Node, Node]:
    """Map every node below ``roots`` to its rewriting; ``switches`` are names whose values are 0 and 1."""
    return _Chooser(graph, switches).rewritten(roots)


def weighted(graph: Graph, roots: Sequence[Node], varies: Callable[[Node], bool]) -> dict[Node, Node]:
    """Map every node to its rewriting with row-independent choices as sums with weights 0 and 1.

    The compiler makes a branch of such a choice; of a weight it makes a part of a factor that is there already.
    """
    done: dict[Node, Node] = {}
    ends = graph.number(1), graph.number(0)
    for node in ordered(roots):
        args = tuple(done[arg] for arg in node.args)
        if node.op == ops.SELECT and not varies(args[0]) and any(map(varies, args[1:])):
            weights = graph.select(args[0], *ends), graph.select(args[0], *reversed(ends))
            done[node] = graph.add(graph.mul(pair) for pair in zip(weights, args[1:], strict=True))
        else:
            done[node] = graph.rebuilt(node, args)
    return done


def factors(node: Node) -> tuple[Node, ...]:
    """Return the factors of a product, numbers included; any other node is its only factor."""
    return node.args if node.op == ops.MUL else (node,)


class _Chooser:
    """Rewrites products, sums and quotients with switches."""

    def __init__(self, graph: Graph, switches: Collection[str]) -> None:
        self.graph, self.switches = graph, switches
        self.zero, self.one = graph.number(0), graph.number(1)

    def rewritten(self, roots: Sequence[Node]) -> dict[Node, Node]:
        """Arguments come before what uses them, so that one pass is enough."""
        done: dict[Node, Node] = {}
        rules: dict[str, Callable[..., Node]] = {
            ops.MUL: self._product, ops.ADD: self._sum, ops.DIV: self._quotient, ops.SELECT: self._choice,
        }
        uses = Counter(arg for node in ordered(roots) for arg in node.args)
        for node in ordered(roots):
            args = [done[arg] for arg in node.args]
            if node.op == ops.ADD:
                args = self._merged((new, uses[arg] == 1) for new, arg in zip(args, node.args, strict=True))
            rule = rules.get(node.op)
            done[node] = rule(*args) if rule else self.graph.rebuilt(node, tuple(args))
        return done

    def _choice(self, condition: Node, yes: Node, no: Node) -> Node:
        """Return a choice by a condition that is no negation, so that opposite conditions are one."""
        return self.graph.select(condition.args[0], no, yes) if condition.op == ops.NOT else (
            self.graph.select(condition, yes, no))

    def _chosen(self, choice: Node, change: Callable[[Node], Node]) -> Node:
        """Return the same choice between changed ends."""
        condition, *ends = choice.args
        return self._choice(condition, *map(change, ends))

    # Products.

    def _product(self, *args: Node) -> Node:
        conditions = {factor: condition for factor in args if (condition := self._condition(factor)) is not None}
        rest = self.graph.mul(factor for factor in args if factor not in conditions)
        if conditions:
            return self._choice(self._all(conditions.values()), rest, self.zero)
        count, choice = self.graph.coefficient(rest)
        if count != 1 and self._may_be_zero(choice):
            return self._chosen(choice, lambda end: self.graph.mul((self.graph.number(count), end)))
        return rest

    def _condition(self, factor: Node) -> Node | None:
        """Return the condition that a factor is 1 for and else 0, or None for any other factor."""
        if factor.op == ops.NAME and factor.value in self.switches:
            return self.graph.negation(self.graph.binary(ops.EQ, factor, self.zero))
        if factor.op == ops.SELECT and set(factor.args[1:]) == {self.one, self.zero}:
            return factor.args[0] if factor.args[1] is self.one else self.graph.negation(factor.args[0])
        return None

    def _all(self, conditions: Collection[Node]) -> Node:
        """Return all conditions; what one says is left out of those that deny it together with others."""
        parts = []
        for condition in conditions:
            if condition.op == ops.NOT and condition.args[0].op == ops.AND:
                denied = [part for part in condition.args[0].args if part not in conditions]
                parts.append(self.graph.negation(self.graph.logic(ops.AND, denied)))
            else:
                parts.append(condition)
        return self.graph.logic(ops.AND, parts)

    def _may_be_zero(self, node: Node) -> bool:
        return node.op == ops.SELECT and self.zero in node.args[1:]

    # Sums.

    def _merged(self, summands: Iterable[tuple[Node, bool]]) -> list[Node]:
        """Of choices by the same condition that nothing else uses, the sums are chosen."""
        merged: list[Node] = []
        ends: dict[Node, list[list[Node]]] = {}
        for summand, alone in summands:
            if alone and summand.op == ops.SELECT:
                for end, part in zip(ends.setdefault(summand.args[0], [[], []]), summand.args[1:], strict=True):
                    end.append(part)
            else:
                merged.append(summand)
        return [*merged, *(self._choice(condition, *map(self.graph.add, both)) for condition, both in ends.items())]

    def _sum(self, *summands: Node) -> Node:
        """Where a choice adds what takes others away, it is a choice between sums, if one becomes shorter."""
        for number, choice in enumerate(summands):
            if not self._may_be_zero(choice):
                continue
            others = [*summands[:number], *summands[number + 1:]]
            ends = [self._summands(end) for end in choice.args[1:]]
            sums = [self.graph.add([*others, *end]) for end in ends]
            if max(len(self._summands(total)) for total in sums) < len(others) + max(map(len, ends)):
                return self._choice(choice.args[0], *(
                    self._where(choice.args[0], place, total) for place, total in enumerate(sums, 1)
                ))
        return self.graph.add(summands)

    def _summands(self, node: Node) -> tuple[Node, ...]:
        return node.args if node.op == ops.ADD else () if node is self.zero else (node,)

    # Quotients.

    def _quotient(self, over: Node, under: Node) -> Node:
        """Turn a quotient that may be 0, or whose divisor the same condition chooses, into a choice of quotients."""
        if self._may_be_zero(over):
            return self._chosen(over, lambda end: self._quotient(end, under))
        if under.op == ops.SELECT:
            condition, *divisors = under.args
            if any(factor.op == ops.SELECT and factor.args[0] is condition for factor in factors(over)):
                return self._choice(condition, *(
                    self._quotient(self._where(condition, place, over), divisor)
                    for place, divisor in enumerate(divisors, 1)
                ))
        return quotient(self.graph, over, under)

    def _where(self, condition: Node, place: int, node: Node) -> Node:
        """Return ``node`` with the ends at ``place`` of all choices by a condition."""
        known = {inner: inner.args[place] for inner in ordered([node])
                 if inner.op == ops.SELECT and inner.args[0] is condition}
        return self.graph.replaced([node], known)[0]
