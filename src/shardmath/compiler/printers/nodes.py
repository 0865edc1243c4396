"""Source of the nodes of a nest: in Python for processors and GPUs, for whole columns in NumPy, and in C."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from ..expressions import ops
from ..expressions.graph import Node

_CALLS = {ops.MAX: "larger", ops.MIN: "smaller", ops.LCM: "lcm", ops.DIVIDES: "divides", ops.SELECT: "select",
          ops.CEIL_DIV: "ceil_div", ops.FLOOR_DIV: "floor_div"}
_COMPARISONS = {ops.EQ: "==", ops.LE: "<=", ops.LT: "<"}


@dataclass(frozen=True)
class Dialect:
    """How a language writes what languages write differently; the functions are those that its template defines."""

    prefix: str
    conjunction: str
    disjunction: str
    negation: str
    truths: tuple[str, str]


PYTHON = Dialect("", " & ", " | ", "opposite({})", ("True", "False"))
NUMPY = Dialect("all_", " & ", " | ", "np.logical_not({})", ("TRUE", "FALSE"))
CUDA = Dialect("device_", " & ", " | ", "(not {})", ("True", "False"))
C = Dialect("", " & ", " | ", "!({})", ("1", "0"))


class NestPrinter:
    """Prints nodes; those in ``names`` by their name, the others as the operation that they are."""

    def __init__(self, dialect: Dialect, names: Mapping[Node, str] | Callable[[Node], str | None]) -> None:
        self.dialect = dialect
        self.named = names.get if isinstance(names, Mapping) else names

    def doprint(self, node: Node) -> str:
        """Return the source of what ``node`` is, even if it has a name."""
        return self._operation(node)

    def _print(self, node: Node) -> str:
        return self.named(node) or self._operation(node)

    def _operation(self, node: Node) -> str:
        if node.op == ops.NUMBER:
            return number(node.value)
        if node.op == ops.TRUTH:
            return self.dialect.truths[0 if node.value else 1]
        if node.op == ops.ADD:
            return self._sum(node)
        if node.op == ops.MUL:
            return self._product(node)
        if node.op == ops.DIV:
            return f"{self._tight(node.args[0])}/{self._tight(node.args[1])}"
        if node.op in _COMPARISONS:
            return f"({self._print(node.args[0])} {_COMPARISONS[node.op]} {self._print(node.args[1])})"
        if node.op in (ops.AND, ops.OR):
            sign = self.dialect.conjunction if node.op == ops.AND else self.dialect.disjunction
            return f"({sign.join(self._print(arg) for arg in node.args)})"
        if node.op == ops.NOT:
            return self.dialect.negation.format(self._print(node.args[0]))
        return self._call(node)

    def _call(self, node: Node) -> str:
        name = self.dialect.prefix + _CALLS[node.op]
        inner, *rest = (self._print(arg) for arg in node.args)
        if node.op in (ops.MAX, ops.MIN):
            for arg in rest:
                inner = f"{name}({inner}, {arg})"
            return inner
        return f"{name}({', '.join((inner, *rest))})"

    def _sum(self, node: Node) -> str:
        first, *rest = sorted(node.args, key=self._is_negative)
        text = self._print(first)
        for arg in rest:
            if self._is_negative(arg):
                text += f" - {self._opposite(arg)}"
            else:
                text += f" + {self._print(arg)}"
        return text

    def _is_negative(self, node: Node) -> bool:
        """Return a summand that is written with a minus sign."""
        if self.named(node):
            return False
        number_ = node if node.op == ops.NUMBER else node.args[0] if node.op == ops.MUL else None
        return number_ is not None and isinstance(number_.value, Fraction) and number_.value < 0

    def _opposite(self, node: Node) -> str:
        if node.op == ops.NUMBER:
            return number(-_fraction(node))
        count = -_fraction(node.args[0])
        factors = [self._tight(arg) for arg in node.args[1:]]
        return "*".join(factors if count == 1 else [number(count), *factors])

    def _product(self, node: Node) -> str:
        if node.args[0].op == ops.NUMBER and node.args[0].value == -1:
            return "-" + "*".join(self._tight(arg) for arg in node.args[1:])
        return "*".join(self._tight(arg) for arg in node.args)

    def _tight(self, node: Node) -> str:
        """Return an operand of a product or quotient."""
        text = self._print(node)
        loose = node.op in (ops.ADD, ops.MUL, ops.DIV) or (node.op == ops.NUMBER and _fraction(node) < 0)
        return f"({text})" if loose and not self.named(node) else text


def number(value: object) -> str:
    """Print a constant as a float, or as a quotient that is not whole. Raises ValueError for inexact ones."""
    assert isinstance(value, Fraction)
    if Fraction(float(value)) == value:
        return repr(float(value))
    if value.denominator == 1:
        raise ValueError(f"{value} is not exact in 64-bit floating point")
    return f"({float(value.numerator)!r}/{float(value.denominator)!r})"


def _fraction(node: Node) -> Fraction:
    assert isinstance(node.value, Fraction)
    return node.value
