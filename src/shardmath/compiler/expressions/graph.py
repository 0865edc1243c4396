"""Expressions as a graph in which equal subexpressions are one node.

SymPy flattens and sorts whatever it is given; a nest needs sums and products grouped by the loops that they depend
on. Nodes are made by a ``Graph`` only, which knows all of them: two nodes are equal if they are the same object.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from fractions import Fraction
from math import ceil, floor, gcd, lcm, prod

from . import ops


class Node:
    """One subexpression: an operation on other nodes, a number, a name or a truth value."""

    __slots__ = ("args", "op", "serial", "value")

    def __init__(self, serial: int, op: str, args: tuple[Node, ...], value: Fraction | str | bool | None) -> None:
        self.serial, self.op, self.args, self.value = serial, op, args, value

    def __repr__(self) -> str:
        inside = ", ".join(map(repr, self.args)) if self.args else self.value
        return f"{self.op}({inside})"

    @property
    def is_condition(self) -> bool:
        """True for what is true or false, not a number."""
        return self.op in ops.CONDITIONS


_ZERO, _ONE = Fraction(0), Fraction(1)
_NUMBERS: dict[str, Callable[..., Fraction]] = {
    ops.DIV: lambda over, under: over / under,
    ops.CEIL_DIV: lambda over, under: Fraction(-(-over // under)),
    ops.FLOOR_DIV: lambda over, under: Fraction(over // under),
    ops.LCM: lambda left, right: Fraction(lcm(int(left), int(right))),
    ops.COMMON: lambda left, right: Fraction(gcd(int(left), int(right))),
    ops.ROUNDED_UP: lambda over, reciprocal: Fraction(ceil(over * reciprocal)),
}
_OF_QUOTIENTS: dict[str, Callable[[Fraction], Fraction | bool]] = {
    ops.CEIL: lambda value: Fraction(ceil(value)),
    ops.FLOOR: lambda value: Fraction(floor(value)),
    ops.NEAREST: lambda value: Fraction(round(value)),
    ops.WHOLE: lambda value: value.denominator == 1,
}
_TRUTHS: dict[str, Callable[..., bool]] = {
    ops.EQ: lambda left, right: left == right,
    ops.LE: lambda left, right: left <= right,
    ops.LT: lambda left, right: left < right,
    ops.DIVIDES: lambda divisor, dividend: dividend % divisor == 0,
}


class Graph:
    """All nodes of some expressions. Sums and products are flat inside one call, with numbers put together."""

    def __init__(self) -> None:
        self._nodes: dict[object, Node] = {}
        self._numbers: dict[int | Fraction, Node] = {}

    def _node(self, op: str, args: tuple[Node, ...] = (), value: Fraction | str | bool | None = None) -> Node:
        key = (op, tuple(node.serial for node in args), value)
        known = self._nodes.get(key)
        if known is None:
            known = self._nodes[key] = Node(len(self._nodes), op, args, value)
        return known

    def as_it_is(self, op: str, args: tuple[Node, ...], value: Fraction | str | bool | None) -> Node:
        """Return an operation that another graph has simplified already."""
        return self.number(value) if isinstance(value, Fraction) else self._node(op, args, value)

    def number(self, value: int | Fraction) -> Node:
        """Return a constant."""
        node = self._numbers.get(value)
        if node is None:
            node = self._numbers[value] = self._node(ops.NUMBER, value=Fraction(value))
        return node

    def truth(self, value: bool) -> Node:
        """Return a condition that always or never holds."""
        return self._node(ops.TRUTH, value=value)

    def name(self, name: str) -> Node:
        """Return a variable."""
        return self._node(ops.NAME, value=name)

    def add(self, parts: Iterable[Node]) -> Node:
        """Return a sum; multiples of one node become one multiple."""
        constant, multiples = _ZERO, dict[Node, Fraction]()
        for part in parts:
            if part.op == ops.NUMBER:
                constant += _value(part)
            else:
                count, rest = self.coefficient(part)
                multiples[rest] = multiples[rest] + count if rest in multiples else count
        summands = [
            rest if count is _ONE or count == 1 else self.mul((self.number(count), rest))
            for rest, count in multiples.items() if count
        ]
        if constant or not summands:
            summands.append(self.number(constant))
        return summands[0] if len(summands) == 1 else self._node(ops.ADD, _sorted(summands))

    def mul(self, parts: Iterable[Node]) -> Node:
        """Return a product; its number, if any, comes first."""
        flat = [inner for part in parts for inner in (part.args if part.op == ops.MUL else (part,))]
        constant = prod((_value(part) for part in flat if part.op == ops.NUMBER), start=_ONE)
        factors = self._cancelled([part for part in flat if part.op != ops.NUMBER])
        if constant == 0 or not factors:
            return self.number(constant)
        if constant is not _ONE and constant != 1:
            factors.append(self.number(constant))
        return factors[0] if len(factors) == 1 else self._node(ops.MUL, _sorted(factors))

    def _cancelled(self, factors: list[Node]) -> list[Node]:
        """Use (a / b) b = a, so that what is derived by a division is compared with what it was divided from."""
        for quotient in factors:
            if quotient.op == ops.DIV:
                over, under = quotient.args
                rest = list(factors)
                rest.remove(quotient)
                try:
                    for factor in under.args if under.op == ops.MUL else (under,):
                        rest.remove(factor)
                except ValueError:
                    continue
                return self._cancelled([*rest, *(over.args if over.op == ops.MUL else (over,))])
        return factors

    def chained(self, op: str, parts: Sequence[Node]) -> Node:
        """Return a sum, product or extreme of parts that stay as they are, even if they are operations of its kind."""
        if op == ops.ADD:
            return self.add(parts)
        if op in (ops.MAX, ops.MIN):
            return parts[0] if len(parts) == 1 else self._node(op, tuple(parts))
        constant = prod((_value(part) for part in parts if part.op == ops.NUMBER), start=Fraction(1))
        factors = [part for part in parts if part.op != ops.NUMBER]
        if constant == 0 or not factors:
            return self.number(constant)
        if constant != 1:
            factors.append(self.number(constant))
        return factors[0] if len(factors) == 1 else self._node(op, _sorted(factors))

    def coefficient(self, node: Node) -> tuple[Fraction, Node]:
        """Return a node as a number times the rest."""
        if node.op == ops.MUL and node.args[0].op == ops.NUMBER:
            rest = node.args[1:]
            return _value(node.args[0]), rest[0] if len(rest) == 1 else self._node(ops.MUL, rest)
        return _ONE, node

    def binary(self, op: str, left: Node, right: Node) -> Node:
        """Return a quotient, a rounded one, a least common multiple or a comparison of two numbers."""
        if left.op == right.op == ops.NUMBER and not (op in _DIVISIONS and _divisor(op, left, right) == 0):
            pair = (_value(left), _value(right))
            return self.truth(_TRUTHS[op](*pair)) if op in _TRUTHS else self.number(_NUMBERS[op](*pair))
        if op == ops.DIV and right.op == ops.NUMBER and _value(right):
            return self.mul((self.number(1 / _value(right)), left)) if is_power_of_two(right) else self._node(
                op, (left, right))
        if op == ops.DIV and left.op == ops.NUMBER and _value(left) == 0:
            return left
        if left is right and op in (ops.EQ, ops.LE):
            return self.truth(True)
        if op == ops.DIVIDES and left.op == ops.NUMBER and _value(left) == 1:
            return self.truth(True)
        return self._node(op, (left, right))

    def rounded(self, op: str, value: Node) -> Node:
        """Return a number rounded up or down, or the condition that it is whole."""
        if value.op != ops.NUMBER:
            return self._node(op, (value,))
        result = _OF_QUOTIENTS[op](_value(value))
        return self.truth(result) if isinstance(result, bool) else self.number(result)

    def quotient(self, over: Node, under: Node, reciprocal: Node) -> Node:
        """Return a quotient by way of the reciprocal of its divisor."""
        if over.op == under.op == ops.NUMBER and _value(under):
            return self.number(_value(over) / _value(under))
        return self._node(ops.QUOTIENT, (over, under, reciprocal))

    def extreme(self, op: str, parts: Iterable[Node]) -> Node:
        """Return the largest or smallest of some numbers."""
        flat = {inner: None for part in parts for inner in (part.args if part.op == op else (part,))}
        numbers = [_value(part) for part in flat if part.op == ops.NUMBER]
        rest = [part for part in flat if part.op != ops.NUMBER]
        if numbers:
            rest.append(self.number(max(numbers) if op == ops.MAX else min(numbers)))
        return rest[0] if len(rest) == 1 else self._node(op, _sorted(rest))

    def select(self, condition: Node, yes: Node, no: Node) -> Node:
        """Return ``yes`` where the condition holds, else ``no``."""
        if condition.op == ops.TRUTH:
            return yes if condition.value else no
        return yes if yes is no else self._node(ops.SELECT, (condition, yes, no))

    def logic(self, op: str, parts: Iterable[Node]) -> Node:
        """Return a conjunction or a disjunction."""
        flat = {inner: None for part in parts for inner in (part.args if part.op == op else (part,))}
        decisive = self.truth(op == ops.OR)
        if decisive in flat:
            return decisive
        kept = [part for part in flat if part.op != ops.TRUTH]
        if not kept:
            return self.truth(op == ops.AND)
        return kept[0] if len(kept) == 1 else self._node(op, _sorted(kept))

    def negation(self, condition: Node) -> Node:
        """Return the opposite of a condition."""
        if condition.op == ops.TRUTH:
            return self.truth(not condition.value)
        return condition.args[0] if condition.op == ops.NOT else self._node(ops.NOT, (condition,))

    def rebuilt(self, node: Node, args: tuple[Node, ...]) -> Node:
        """Return the same operation on other arguments, simplified where that is possible now."""
        if node.op == ops.ADD:
            return self.add(args)
        if node.op == ops.MUL:
            return self.mul(args)
        if node.op in (ops.MAX, ops.MIN):
            return self.extreme(node.op, args)
        if node.op in (ops.AND, ops.OR):
            return self.logic(node.op, args)
        if node.op == ops.NOT:
            return self.negation(args[0])
        if node.op == ops.SELECT:
            return self.select(*args)
        if node.op == ops.QUOTIENT:
            return self.quotient(*args)
        if node.op in _OF_QUOTIENTS:
            return self.rounded(node.op, args[0])
        return self.binary(node.op, *args) if args else node

    def replaced(self, roots: Iterable[Node], values: Mapping[Node, Node]) -> list[Node]:
        """Return copies of ``roots`` with some nodes replaced; what becomes constant is computed."""
        done = dict(values)
        for node in ordered(roots):
            if node not in done:
                done[node] = self.rebuilt(node, tuple(done[arg] for arg in node.args))
        return [done[root] for root in roots]


_DIVISIONS = frozenset((ops.DIV, ops.CEIL_DIV, ops.FLOOR_DIV, ops.DIVIDES))


def ordered(roots: Iterable[Node]) -> list[Node]:
    """Return every node below ``roots`` once, arguments before what uses them."""
    return ordered_without(roots, ())


def ordered_without(roots: Iterable[Node], known: Container[Node], leaves: Container[Node] = ()) -> list[Node]:
    """Return the same without nodes that are known already, and what only they or ``leaves`` need."""
    ordered: dict[Node, None] = {}
    stack = [(root, False) for root in reversed(list(roots))]
    while stack:
        node, complete = stack.pop()
        if complete:
            ordered[node] = None
        elif node not in ordered and node not in known:
            stack.append((node, True))
            if node not in leaves:
                stack.extend((arg, False) for arg in reversed(node.args))
    return list(ordered)


def exact(roots: Iterable[Node], values: Mapping[str, int | Fraction]) -> list[Fraction | bool]:
    """Compute ``roots`` as exact fractions and truths: what compiled nests are compared with.

    Raises KeyError for a name without a value, and ZeroDivisionError.
    """
    roots = list(roots)
    known: dict[Node, int | Fraction | bool] = {}
    for node in ordered(roots):
        if node.op == ops.NAME:
            value = values[str(node.value)]
            known[node] = value if type(value) is int else Fraction(value)
        elif node.args:
            known[node] = _EXACT[node.op](*[known[arg] for arg in node.args])
        else:
            known[node] = node.value  # type: ignore[assignment]
    return [value if isinstance(value, bool) else Fraction(value) for value in map(known.__getitem__, roots)]


def _over(over: int | Fraction, under: int | Fraction, _: object = None) -> int | Fraction:
    """Divide, also by way of a reciprocal; a graph takes 0 / 0 as 0."""
    return Fraction(over) / under if over else 0


#: Values of operations from those of their arguments; integers stay integers, with which Python is many times faster.
_EXACT: dict[str, Callable[..., int | Fraction | bool]] = {
    **_NUMBERS, **_OF_QUOTIENTS, **_TRUTHS, ops.DIV: _over, ops.QUOTIENT: _over,
    ops.CEIL_DIV: lambda over, under: -(-over // under), ops.FLOOR_DIV: lambda over, under: over // under,
    ops.ADD: lambda *parts: sum(parts), ops.MUL: lambda *parts: prod(parts), ops.MAX: lambda *parts: max(parts),
    ops.MIN: lambda *parts: min(parts), ops.SELECT: lambda condition, yes, no: yes if condition else no,
    ops.AND: lambda *parts: all(parts), ops.OR: lambda *parts: any(parts), ops.NOT: lambda part: not part,
}


def _value(node: Node) -> Fraction:
    assert isinstance(node.value, Fraction)
    return node.value


def _divisor(op: str, left: Node, right: Node) -> Fraction:
    return _value(left if op == ops.DIVIDES else right)


def is_power_of_two(node: Node) -> bool:
    """Return True for a constant that multiplies floats without rounding, as its inverse does."""
    value = abs(_value(node))
    return value > 0 and (value.numerator & (value.numerator - 1)) == 0 and (
        value.denominator & (value.denominator - 1)) == 0


def _sorted(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """Numbers first, the others in the order of their making: the same on every run."""
    return tuple(sorted(nodes, key=lambda node: (node.op != ops.NUMBER, node.serial)))
