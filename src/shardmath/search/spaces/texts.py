"""Formulas that somebody wrote for a space: read into a graph, checked, and split where they divide."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction

from shardmath.compiler.expressions import ops
from shardmath.compiler.expressions.bounds import bounds, degree
from shardmath.compiler.expressions.graph import Graph, Node, exact, ordered
from shardmath.compiler.expressions.source import FormulaError, parse
from shardmath.errors import InputError
from shardmath.search.spaces.symbols import closest

Formula = Node
Bounds = tuple[int | Fraction, int | Fraction]
#: Names of symbols and terms in a text.
_NAMES = re.compile(r"[A-Za-z_][\w.]*")
#: Integers beyond this are not all numbers of float64.
_EXACT = 2**53


class Texts:
    """The formulas of a space over some known names, in one graph."""

    def __init__(self, known: Collection[str]) -> None:
        self.graph, self.known = Graph(), known

    def uses(self, text: str) -> set[str]:
        """Return the known names in a text, whether it is a formula or not."""
        return set(_NAMES.findall(text)) & set(self.known)

    def condition(self, field: str, text: str) -> Node:
        """Return the node of a condition. Raises InputError for ``field`` if the text is none."""
        node = self._read(field, text)
        if not node.is_condition:
            raise InputError(field, text, "must be a condition, such as a <= b")
        return node

    def quantity(self, field: str, text: str) -> Node:
        """Return the node of a number. Raises InputError for ``field`` if the text is none."""
        node = self._read(field, text)
        if node.is_condition:
            raise InputError(field, text, "must be a number, not a condition")
        return node

    def _read(self, field: str, text: str) -> Node:
        unknown: list[str] = []

        def resolve(name: str) -> Node:
            if name not in self.known:
                unknown.append(name)
                raise KeyError(name)
            return self.graph.name(name)

        try:
            node = parse(text, self.graph, resolve)
        except FormulaError as error:
            if unknown:
                rule = f"must have known names, not {unknown[0]:.60}"
                raise InputError(field, text, rule, closest(unknown[0], self.known)) from None
            raise InputError(field, text, f"{error.rule}: {error.part}") from None
        _refuse_inexact(field, text, node)
        return node

    def value(self, node: Node, values: Mapping[str, int | Fraction]) -> Fraction | bool:
        """Return the exact value of ``node`` for these values of its names."""
        return exact([node], values)[0]

    def constant(self, node: Node) -> bool | None:
        """Tell whether a condition holds for all values of its names; None if that depends on them."""
        return node.value if isinstance(node.value, bool) else None

    def within(self, node: Node, known: Mapping[str, Bounds]) -> Bounds | None:
        """Return the smallest and the largest value of a number, as far as bounds of names tell."""
        return bounds([node], known).get(node)

    def degree(self, node: Node, known: Mapping[str, int]) -> int:
        """Return the highest power of a symbol in a formula; ``known`` has the powers of derived symbols."""
        return degree(node, known)

    def filled(self, node: Node, values: Mapping[str, int | Node]) -> Node:
        """Return ``node`` with numbers or other formulas for some names."""
        known = {
            self.graph.name(name): self.graph.number(value) if isinstance(value, int) else value
            for name, value in values.items()
        }
        return self.graph.replaced([node], known)[0]

    def refuse_unsafe(self, field: str, text: str, node: Node, known: Mapping[str, Bounds]) -> None:
        """Raise InputError if a step of ``node`` may divide by 0 or leave exact arithmetic, as far as bounds tell."""
        within = bounds([node], known)
        for part in ordered([node]):
            if part.op in (ops.DIV, ops.CEIL_DIV, ops.FLOOR_DIV, ops.DIVIDES):
                low, high = within.get(part.args[0 if part.op == ops.DIVIDES else 1], (1, 1))
                if low <= 0 <= high:
                    raise InputError(field, text, "must not divide by what may be 0: write max(..., 1)")
        if any(low < -_EXACT or high > _EXACT for low, high in within.values()):
            raise InputError(field, text, "must stay within 2^53 at every step, for exact arithmetic")


def names_in(nodes: Iterable[Node]) -> set[str]:
    """Return the names that some nodes depend on."""
    return {str(node.value) for node in ordered(nodes) if node.op == ops.NAME}


def names_written(text: str) -> set[str]:
    """Return the names without a dot in a formula that has been read before."""
    return {part.id for part in ast.walk(ast.parse(text.strip(), mode="eval")) if isinstance(part, ast.Name)}


def quotient(field: str, text: str) -> tuple[str, str] | None:
    """Numerator and denominator of a formula that has been read before, or None if it does not divide.

    Raises InputError if it divides inside a function, where no single denominator tells whether it is whole.
    """
    over, under = _split(field, text, ast.parse(text.strip(), mode="eval").body)
    return None if under is None else (ast.unparse(over), ast.unparse(under))


def _split(field: str, text: str, tree: ast.expr) -> tuple[ast.expr, ast.expr | None]:
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        over, under = _split(field, text, tree.operand)
        return ast.UnaryOp(ast.USub(), over), under
    if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Add | ast.Sub | ast.Mult | ast.Div):
        left, right = _split(field, text, tree.left), _split(field, text, tree.right)
        if isinstance(tree.op, ast.Mult):
            return ast.BinOp(left[0], tree.op, right[0]), _times(left[1], right[1])
        if isinstance(tree.op, ast.Div):
            return _both(left[0], right[1]), _times(left[1], right[0])
        return ast.BinOp(_both(left[0], right[1]), tree.op, _both(right[0], left[1])), _times(left[1], right[1])
    if any(isinstance(part, ast.Div) for part in ast.walk(tree)):
        raise InputError(field, text, "must divide with / only in sums, products and quotients, or round: a // b")
    return tree, None


def _times(left: ast.expr | None, right: ast.expr | None) -> ast.expr | None:
    if left is None or right is None:
        return left or right
    return ast.BinOp(left, ast.Mult(), right)


def _both(left: ast.expr, right: ast.expr | None) -> ast.expr:
    return left if right is None else ast.BinOp(left, ast.Mult(), right)


def _refuse_inexact(field: str, text: str, node: Node) -> None:
    """Refuse what compiled code cannot round exactly: quotients inside of what rounds, multiples of any number."""
    rounding = (ops.CEIL_DIV, ops.FLOOR_DIV, ops.DIVIDES, ops.LCM)
    for part in ordered([node]):
        if part.op in rounding and any(inner.op == ops.DIV for inner in ordered(part.args)):
            raise InputError(field, text, "must not have / inside of what rounds: write ceil_div(a, b * c)")
        if part.op == ops.LCM:
            value = part.args[1].value if part.args[1].op == ops.NUMBER else None
            if not isinstance(value, Fraction) or value not in {1 << bits for bits in range(32)}:
                raise InputError(field, text, "must have a power of two as the second argument of lcm")
