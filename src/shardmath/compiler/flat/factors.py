"""Sums by Horner's rule and products with shared parts: as few multiplications in the loop as that takes.

What is the same for all rows is put together apart, so that it stands before the loop. All are integers below 2**53
where the conditions hold, so that they are exact in whatever order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations

from ..expressions import ops
from ..expressions.graph import Graph, Node, ordered
from .choices import factors

#: Sums of more products than this are not multiplied out.
_MOST = 64
_PAIR = 2
#: A product: what is the same for all rows, and the factors that differ.
Product = tuple[Node, tuple[Node, ...]]


def factored(graph: Graph, roots: Sequence[Node], varies: Callable[[Node], bool]) -> dict[Node, Node]:
    """Map every node below ``roots`` to its nested form; ``varies`` marks nodes that differ between rows."""
    nested = _Horner(graph, roots, varies).rewritten(roots)
    shared = _shared(graph, list(nested.values()), [nested[root] for root in roots], varies)
    return {node: shared[new] for node, new in nested.items()}


class _Horner:
    """Takes out of sums the factor that most of their products have, again and again."""

    def __init__(self, graph: Graph, roots: Sequence[Node], varies: Callable[[Node], bool]) -> None:
        self.graph, self.varies = graph, varies
        self.zero, self.one = graph.number(0), graph.number(1)
        self.uses = Counter(arg for node in ordered(roots) for arg in node.args)
        self.uses.update(roots)

    def rewritten(self, roots: Sequence[Node]) -> dict[Node, Node]:
        """Arguments come before what uses them."""
        done: dict[Node, Node] = {}
        sums: dict[Node, list[Product]] = {}
        for node in ordered(roots):
            if node.op in (ops.ADD, ops.MUL):
                sums[node] = self._expanded(node, done, sums)
                done[node] = self._sum(self._nested(sums[node]))
            else:
                done[node] = self.graph.rebuilt(node, tuple(done[arg] for arg in node.args))
        return done

    # Sums of products.

    def _expanded(self, node: Node, done: dict[Node, Node], sums: dict[Node, list[Product]]) -> list[Product]:
        """Return a sum or product as a sum of products; inner ones that nothing else uses are multiplied out."""
        parts = [
            sums[arg] if arg in sums and (self.uses[arg] == 1 or (arg.op == ops.MUL and len(sums[arg]) == 1))
            else [self._product(done[arg])] for arg in node.args
        ]
        if node.op == ops.ADD:
            return self._added(product for part in parts for product in part)
        products: list[Product] = [(self.one, ())]
        for part, arg in zip(parts, node.args, strict=True):
            by = part if len(products) * len(part) <= _MOST else [self._product(done[arg])]
            products = [(self.graph.mul((same, scalar)), _by_serial(row + more))
                     for same, row in products for scalar, more in by]
        return self._added(products)

    def _product(self, node: Node) -> Product:
        if not self.varies(node):
            return node, ()
        if node.op == ops.SELECT and self.zero in node.args[1:]:
            return self._choice_apart(node)
        return self.one, (node,)

    def _choice_apart(self, choice: Node) -> Product:
        """Return a choice of a number times something, or of 0, as the number times a choice."""
        condition, *ends = choice.args
        chosen = next(end for end in ends if end is not self.zero)
        count, rest = (chosen, self.one) if chosen.op == ops.NUMBER else self._coefficient(chosen)
        return count, (self.graph.select(condition, *(end if end is self.zero else rest for end in ends)),)

    def _coefficient(self, node: Node) -> tuple[Node, Node]:
        count, rest = self.graph.coefficient(node)
        return self.graph.number(count), rest

    def _added(self, products: Iterable[Product]) -> list[Product]:
        scalars_of: dict[tuple[Node, ...], list[Node]] = {}
        for same, row in products:
            scalars_of.setdefault(row, []).append(same)
        total = [(self.graph.add(scalars), row) for row, scalars in scalars_of.items()]
        return [(same, row) for same, row in total if same is not self.zero]

    # Nesting.

    def _nested(self, products: Sequence[Product]) -> list[Node]:
        """Return summands that add up to all products."""
        counts = Counter(factor for _, row in products for factor in dict.fromkeys(row))
        if not counts or max(counts.values()) < _PAIR:
            return self._leaves(products)
        factor = max(counts, key=lambda node: (counts[node], -node.serial))
        inside = [(same, _less(row, factor)) for same, row in products if factor in row]
        outside = [(same, row) for same, row in products if factor not in row]
        return [self._times(factor, self._sum(self._nested(inside))), *self._nested(outside)]

    def _leaves(self, products: Sequence[Product]) -> list[Node]:
        """Return products without common factors; those that are multiplied with the same are added first."""
        by_same: dict[Node, list[Node]] = {}
        for same, row in products:
            by_same.setdefault(same if row else self.one, []).append(self.graph.mul(row) if row else same)
        plain = by_same.pop(self.one, [])
        return [*plain, *(self.graph.chained(ops.MUL, [same, self._sum(rows)]) for same, rows in by_same.items())]

    def _times(self, factor: Node, rest: Node) -> Node:
        """Multiply the row-independent factors, as one factor, with the others."""
        same = [part for part in factors(rest) if not self.varies(part)]
        row = [part for arg in factors(rest) if self.varies(arg) for part in factors(arg)]
        return self.graph.chained(ops.MUL, [self.graph.mul(same), self.graph.mul((factor, *row))])

    def _sum(self, parts: Sequence[Node]) -> Node:
        same = [part for part in parts if not self.varies(part)]
        row = [part for part in parts if self.varies(part)]
        return self.graph.chained(ops.ADD, [*([self.graph.add(same)] if same else []), *row])


def _less(row: tuple[Node, ...], factor: Node) -> tuple[Node, ...]:
    place = row.index(factor)
    return row[:place] + row[place + 1:]


def _shared(
    graph: Graph, nodes: Sequence[Node], roots: Sequence[Node], varies: Callable[[Node], bool],
) -> dict[Node, Node]:
    """Merge the pair of factors that most products below ``roots`` share, repeatedly; map ``nodes`` to the result."""
    rows = {node: [part for part in node.args if varies(part)] for node in ordered(roots) if node.op == ops.MUL}
    made: dict[Node, tuple[Node, ...]] = {}
    while True:
        counts = Counter(pair for row in rows.values() for pair in dict.fromkeys(combinations(_by_serial(row), _PAIR)))
        if not counts or max(counts.values()) < _PAIR:
            break
        pair = max(counts, key=lambda two: (counts[two], -two[0].serial, -two[1].serial))
        product = graph.chained(ops.MUL, pair)
        made[product] = pair
        for row in rows.values():
            if all(row.count(shared_factor) >= pair.count(shared_factor) for shared_factor in pair):
                for shared_factor in pair:
                    row.remove(shared_factor)
                row.append(product)
    done: dict[Node, Node] = {}

    def built(factor: Node) -> Node:
        if factor not in made:
            return done[factor]
        return graph.chained(ops.MUL, [built(shared_factor) for shared_factor in made[factor]])

    for node in ordered(nodes):
        if node in rows:
            same = [done[part] for part in node.args if not varies(part)]
            done[node] = graph.chained(ops.MUL, [*same, *map(built, rows[node])])
        elif node.op in (ops.ADD, ops.MUL):
            done[node] = graph.chained(node.op, [done[arg] for arg in node.args])
        else:
            done[node] = graph.rebuilt(node, tuple(done[arg] for arg in node.args))
    return done


def _by_serial(row: Iterable[Node]) -> tuple[Node, ...]:
    return tuple(sorted(row, key=lambda node: node.serial))
