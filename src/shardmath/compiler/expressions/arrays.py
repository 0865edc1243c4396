"""Nodes of a graph on columns of NumPy: nothing is compiled, so the first answer comes at once.

Numbers are float64, whole ones exact below 2**53. Where a condition is broken, such as that a divisor is not 0, a value
is any number.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import reduce
from typing import Any, TypeAlias

import numpy as np

from shardmath.compiler.expressions import ops
from shardmath.compiler.expressions.graph import Node, ordered

#: A node to compute, and the nodes that are not needed after it.
Step: TypeAlias = tuple[Node, tuple[Node, ...]]


def constants(nodes: Iterable[Node]) -> dict[Node, Any]:
    """Return the values of those nodes that are numbers or truths."""
    return {node: constant(node) for node in nodes if node.op in (ops.NUMBER, ops.TRUTH)}


def constant(node: Node) -> Any:
    """Return the value of a node that is a number or a truth."""
    return np.bool_(node.value) if node.op == ops.TRUTH else np.float64(_quotient(node))


def operated(node: Node, values: Mapping[Node, Any]) -> Any:
    """Return the value of an operation on values of its arguments."""
    return _OPERATIONS[node.op]([values[arg] for arg in node.args])


def steps_of(nodes: Sequence[Node], lasting: Container[Node]) -> tuple[Step, ...]:
    """Return the steps that compute ``nodes``, which come after their arguments, and keep those that are ``lasting``.

    What is neither is not forgotten if no step uses it: a caller may have values for its own use.
    """
    used: set[Node] = set()
    steps: list[Step] = []
    for node in reversed(nodes):
        last = tuple(arg for arg in dict.fromkeys(node.args) if arg.args and arg not in used and arg not in lasting)
        used.update(node.args)
        steps.append((node, last))
    return tuple(reversed(steps))


def computed(steps: Iterable[Step], values: dict[Node, Any]) -> None:
    """Add to ``values`` those of all steps, and drop from it what no later step needs: memory that is used again."""
    with np.errstate(all="ignore"):
        for node, last in steps:
            values[node] = operated(node, values)
            for arg in last:
                del values[arg]


class Computation:
    """Some nodes over names, computed as often as wanted."""

    def __init__(self, roots: Sequence[Node]) -> None:
        nodes = ordered(roots)
        self._roots = tuple(roots)
        self._constants = constants(nodes)
        self._names = {node: str(node.value) for node in nodes if node.op == ops.NAME}
        self._steps = steps_of([node for node in nodes if node.args], self._roots)

    def __call__(self, values: Mapping[str, Any]) -> list[Any]:
        """Return the values of the nodes, where names have these: numbers or columns of float64."""
        known = {**self._constants, **{node: values[name] for node, name in self._names.items()}}
        computed(self._steps, known)
        return [known[root] for root in self._roots]


def _quotient(node: Node) -> float:
    assert node.op == ops.NUMBER
    assert isinstance(node.value, Fraction)
    return node.value.numerator / node.value.denominator


def _folded(function: np.ufunc) -> Callable[[Sequence[Any]], Any]:
    return lambda args: reduce(function, args)


def _multiple(args: Sequence[Any]) -> Any:
    return np.lcm(*(np.asarray(arg).astype(np.int64) for arg in args)).astype(np.float64)


def _divides(args: Sequence[Any]) -> Any:
    """Return a quotient that is not whole differs from whole numbers by more than its rounding."""
    quotient = np.divide(args[1], args[0])
    return np.floor(quotient) == quotient


_OPERATIONS: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    ops.ADD: _folded(np.add), ops.MUL: _folded(np.multiply), ops.MAX: _folded(np.maximum), ops.MIN: _folded(np.minimum),
    ops.AND: _folded(np.logical_and), ops.OR: _folded(np.logical_or), ops.NOT: lambda args: np.logical_not(args[0]),
    ops.DIV: lambda args: np.divide(*args), ops.CEIL_DIV: lambda args: np.ceil(np.divide(*args)),
    ops.FLOOR_DIV: lambda args: np.floor(np.divide(*args)), ops.LCM: _multiple, ops.DIVIDES: _divides,
    ops.EQ: lambda args: np.equal(*args), ops.LE: lambda args: np.less_equal(*args),
    ops.LT: lambda args: np.less(*args),
    ops.SELECT: lambda args: np.where(*args),
}
