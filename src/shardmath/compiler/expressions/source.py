"""Formulas as text, read into a graph: generated evaluators, and what people write in a space.

The text has the syntax of a Python expression but is never evaluated: it is parsed, and every part that is not an
operation on numbers, names and conditions is refused.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

from . import ops
from .graph import Graph, Node

#: Longer texts are refused: no formula needs them, and nesting is bounded with them.
LONGEST = 2000
_PAIRS = {"ceil_div": ops.CEIL_DIV, "floor_div": ops.FLOOR_DIV, "lcm": ops.LCM, "divides": ops.DIVIDES}
_MANY = {"max": ops.MAX, "min": ops.MIN}
#: The largest exponent of a number, and of powers of powers; of a name it is 8.
_HIGHEST = 64
FUNCTIONS = (*_PAIRS, *_MANY)
#: Grammar of texts, for messages.
GRAMMAR = f"+ - * / // % ** == != <= < >= > and or not, a if condition else b, {', '.join(FUNCTIONS)}"


class FormulaError(ValueError):
    """A text that is not a formula: ``part`` is what cannot be read, ``rule`` what is legal there."""

    def __init__(self, part: str, rule: str) -> None:
        super().__init__(f"{part}: {rule}")
        self.part, self.rule = part, rule


def parse(text: str, graph: Graph, resolve: Callable[[str], Node]) -> Node:
    """Return the node of a formula or condition that somebody wrote.

    ``resolve`` gives the node of a name and raises KeyError for one that it does not know. Raises FormulaError if the
    text is not a formula.
    """
    if len(text) > LONGEST:
        raise FormulaError(text[:40] + "...", f"must have at most {LONGEST} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        _refuse_high(tree)
        return Reader(graph, resolve).read(tree)
    except SyntaxError as error:
        raise FormulaError(text, f"must be one formula ({error.msg})") from None
    except (RecursionError, MemoryError):
        raise FormulaError(text[:40] + "...", "must not be nested so deeply") from None
    except (ValueError, OverflowError) as error:
        if isinstance(error, FormulaError):
            raise
        raise FormulaError(text[:40], f"must be a formula ({error})") from None


class Reader:
    """Turns parsed Python expressions into nodes; ``pairs`` has the operation of every function of two numbers."""

    pairs: ClassVar[Mapping[str, str]] = _PAIRS

    def __init__(self, graph: Graph, resolve: Callable[[str], Node]) -> None:
        self.graph, self.resolve = graph, resolve

    @cached_property
    def _minus(self) -> Node:
        return self.graph.number(-1)

    def read(self, tree: ast.expr) -> Node:
        """Return the node of one expression. Raises FormulaError for what is not a formula."""
        if isinstance(tree, ast.Constant):
            return self._constant(tree)
        if isinstance(tree, ast.Name):
            try:
                return self.resolve(tree.id)
            except KeyError:
                raise FormulaError(tree.id, "must be a known name") from None
        if isinstance(tree, ast.Attribute):
            return self._dotted(tree)
        if isinstance(tree, ast.UnaryOp):
            return self._unary(tree)
        if isinstance(tree, ast.BinOp):
            return self._binary(tree)
        if isinstance(tree, ast.Compare):
            return self._comparisons(tree)
        if isinstance(tree, ast.BoolOp):
            return self.graph.logic("and" if isinstance(tree.op, ast.And) else "or", map(self.condition, tree.values))
        if isinstance(tree, ast.IfExp):
            return self.graph.select(self.condition(tree.test), self.quantity(tree.body), self.quantity(tree.orelse))
        if isinstance(tree, ast.Call):
            return self._call(tree)
        raise _refused(tree)

    def condition(self, tree: ast.expr) -> Node:
        """Return the node of a condition. Raises FormulaError for another formula."""
        node = self.read(tree)
        if not node.is_condition:
            raise FormulaError(ast.unparse(tree), "must be a condition, such as a <= b")
        return node

    def quantity(self, tree: ast.expr) -> Node:
        """Return the node of a number; a condition counts as 1 where it holds and else as 0."""
        node = self.read(tree)
        if node.is_condition:
            return self.graph.select(node, self.graph.number(1), self.graph.number(0))
        return node

    def _constant(self, tree: ast.Constant) -> Node:
        if isinstance(tree.value, bool):
            return self.graph.truth(tree.value)
        if isinstance(tree.value, int):
            return self.graph.number(tree.value)
        raise FormulaError(ast.unparse(tree)[:40], "must be an integer: formulas are exact")

    def _dotted(self, tree: ast.Attribute) -> Node:
        name = ast.unparse(tree)
        try:
            return self.resolve(name)
        except KeyError:
            raise FormulaError(name, "must be a known name") from None

    def _unary(self, tree: ast.UnaryOp) -> Node:
        if isinstance(tree.op, ast.Not):
            return self.graph.negation(self.condition(tree.operand))
        if isinstance(tree.op, ast.USub):
            return self.graph.mul((self.graph.number(-1), self.quantity(tree.operand)))
        raise _refused(tree)

    def _binary(self, tree: ast.BinOp) -> Node:
        left, right = self.quantity(tree.left), self.quantity(tree.right)
        graph, minus = self.graph, self._minus
        match tree.op:
            case ast.Add():
                return graph.add((left, right))
            case ast.Sub():
                return graph.add((left, graph.mul((minus, right))))
            case ast.Mult():
                return graph.mul((left, right))
            case ast.Div():
                return graph.binary(ops.DIV, left, right)
            case ast.FloorDiv():
                return graph.binary(ops.FLOOR_DIV, left, right)
            case ast.Mod():
                return graph.add((left, graph.mul((minus, right, graph.binary(ops.FLOOR_DIV, left, right)))))
            case ast.Pow():
                return graph.mul([left] * _exponent(right, _HIGHEST if left.op == ops.NUMBER else 8))
        raise _refused(tree)

    def _comparisons(self, tree: ast.Compare) -> Node:
        sides = [tree.left, *tree.comparators]
        comparisons = []
        for left, operator, right in zip(sides, tree.ops, sides[1:], strict=False):
            comparisons.append(self._comparison(left, operator, right))
        return self.graph.logic("and", comparisons)

    def _comparison(self, left: ast.expr, operator: ast.cmpop, right: ast.expr) -> Node:
        graph = self.graph
        if isinstance(operator, ast.Eq | ast.NotEq):
            if isinstance(left, ast.BinOp) and isinstance(left.op, ast.Mod) and _is_zero(right):
                equal = graph.binary(ops.DIVIDES, self.quantity(left.right), self.quantity(left.left))
            else:
                equal = graph.binary(ops.EQ, self.quantity(left), self.quantity(right))
            return equal if isinstance(operator, ast.Eq) else graph.negation(equal)
        sides = self.quantity(left), self.quantity(right)
        if isinstance(operator, ast.LtE | ast.Lt):
            return graph.binary(ops.LE if isinstance(operator, ast.LtE) else ops.LT, *sides)
        if isinstance(operator, ast.GtE | ast.Gt):
            return graph.binary(ops.LE if isinstance(operator, ast.GtE) else ops.LT, *reversed(sides))
        raise FormulaError(f"{ast.unparse(left)} ...", "must be compared with == != <= < >= >")

    def _call(self, tree: ast.Call) -> Node:
        name = tree.func.id if isinstance(tree.func, ast.Name) else ast.unparse(tree.func)[:40]
        if name not in {*self.pairs, *_MANY} or tree.keywords or any(isinstance(arg, ast.Starred) for arg in tree.args):
            raise FormulaError(f"{name}(...)", f"must be one of {', '.join(FUNCTIONS)}")
        args = [self.quantity(arg) for arg in tree.args]
        if name in _MANY and args:
            return self.graph.extreme(_MANY[name], args)
        if name in _MANY or len(args) != 2:
            rule = "must have two arguments" if name in self.pairs else "must have arguments"
            raise FormulaError(f"{name}(...)", rule)
        return self.graph.binary(self.pairs[name], *args)


class EvaluatorReader(Reader):
    """Reads generated evaluators as well, whose divisions are calls of ``ratio``."""

    pairs: ClassVar[Mapping[str, str]] = {**_PAIRS, "ratio": ops.DIV}


def _refused(tree: ast.expr) -> FormulaError:
    return FormulaError(ast.unparse(tree)[:60], f"must be made of names, integers and {GRAMMAR}")


def _is_zero(tree: ast.expr) -> bool:
    return isinstance(tree, ast.Constant) and tree.value == 0


def _exponent(node: Node, most: int) -> int:
    value = node.value if node.op == ops.NUMBER else None
    if isinstance(value, Fraction) and value.denominator == 1 and 0 < value <= most:
        return int(value)
    raise FormulaError("**", f"must have an exponent from 1 to {most}")


def _refuse_high(tree: ast.AST) -> int:
    """Multiply nested exponents; refuse a product so large that values could fill memory."""
    inside = max(map(_refuse_high, ast.iter_child_nodes(tree)), default=1)
    if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Pow):
        exponent = tree.right.value if isinstance(tree.right, ast.Constant) else None
        inside *= exponent if isinstance(exponent, int) else _HIGHEST
        if inside > _HIGHEST:
            raise FormulaError("**", f"must have exponents of at most {_HIGHEST}, multiplied where one is in another")
    return inside
