"""Programs of the machine of bounds: instructions for nodes of a graph, and the slots that hold their bounds.

Where both ends of all arguments are equal, so are those of the result, and they are what the operation gives for that
one value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardmath.compiler.expressions import ops
from shardmath.compiler.expressions.graph import Node
from shardmath.compiler.native.objects import native
from shardmath.search.boxes import blocks

_PLAIN: Mapping[str, int] = {
    ops.LCM: blocks.MULTIPLE, ops.EQ: blocks.EQUAL, ops.DIVIDES: blocks.DIVIDES, ops.LE: blocks.AT_MOST,
    ops.LT: blocks.LESS, ops.NOT: blocks.NOT, ops.SELECT: blocks.SELECT,
}
_ROUNDED: Mapping[str, int] = {ops.CEIL_DIV: blocks.CEIL, ops.FLOOR_DIV: blocks.FLOOR}
#: Operations on any number of arguments, two at a time; truths are 0 and 1.
_FOLDED: Mapping[str, int] = {
    ops.ADD: blocks.ADD, ops.MAX: blocks.MAXIMUM, ops.MIN: blocks.MINIMUM, ops.AND: blocks.MINIMUM,
    ops.OR: blocks.MAXIMUM,
}


class Program:
    """Instructions of the machine, and the numbers in them; slots are used again when nothing needs them."""

    def __init__(self, numbers: dict[float, int]) -> None:
        """Begin without instructions; ``numbers`` are those of all programs, with their places."""
        self.code: list[tuple[int, int, int, int, int, int, int]] = []
        self._numbers = numbers
        self.slots = 0
        self._unused: list[int] = []

    @property
    def numbers(self) -> NDArray[np.float64]:
        """The numbers of all programs, in the order of their places."""
        return np.asarray(list(self._numbers))

    def emit(self, operation: int, *args: int, number: float = 0.0) -> int:
        """Add an instruction, and return the slot of its result, which is none of those in use."""
        slot = self.room()
        self._add(operation, slot, args, number)
        return slot

    def room(self) -> int:
        """Return a slot that is not in use."""
        if self._unused:
            return self._unused.pop()
        self.slots += 1
        return self.slots - 1

    def rows(self, operation: int, table: int) -> None:
        """Add an instruction that finds the rows of a table."""
        self._add(operation, 0, (table,), 0.0)

    def drop(self, slot: int) -> None:
        """Let later instructions use a slot."""
        self._unused.append(slot)

    def operate(self, node: Node, args: Sequence[int | float], least: Sequence[float]) -> int:
        """Add what bounds ``node``, whose arguments are in slots or numbers (floats) and nowhere below ``least``.

        Return its slot. Raises KeyError for an operation that spaces do not have.
        """
        if node.op == ops.MUL:
            return self._product(args, least)
        if node.op in _FOLDED:
            return self._folded(_FOLDED[node.op], args)
        if node.op == ops.DIV:
            return int(self._quotient(args, least))
        if node.op in _ROUNDED:
            return int(self._then(_ROUNDED[node.op], self._quotient(args, least)))
        return int(self._with_slots(_PLAIN[node.op], args))

    def _folded(self, operation: int, args: Sequence[int | float]) -> int:
        first, *others = args
        for other in others:
            if operation == blocks.ADD and isinstance(first, float) and isinstance(other, float):
                first = first + other
            elif operation == blocks.ADD and isinstance(first, float):
                first = self._own(blocks.ADD_NUMBER, other, number=first)
            elif operation == blocks.ADD and isinstance(other, float):
                first = self._then(blocks.ADD_NUMBER, first, number=other)
            else:
                before, first = first, self._with_slots(operation, [first, other])
                self._forget(before)
        return self._result(first)

    def _product(self, args: Sequence[int | float], least: Sequence[float]) -> int:
        unbounded = min(least) == -np.inf
        (first, *others), positive = args, least[0] >= 0
        for other, smallest in zip(others, least[1:], strict=True):
            if isinstance(first, float) and isinstance(other, float):
                first = first * other
            elif isinstance(first, float) and first and not unbounded:
                first = self._own(blocks.SCALE if first > 0 else blocks.FLIP, other, number=first)
            elif isinstance(other, float) and other and not unbounded:
                first = self._then(blocks.SCALE if other > 0 else blocks.FLIP, first, number=other)
            else:
                pair = [other, first] if positive and smallest < 0 else [first, other]
                operation = (blocks.TIMES_UNBOUNDED if unbounded else blocks.MULTIPLY if positive and smallest >= 0
                             else blocks.TIMES_POSITIVE if positive or smallest >= 0 else blocks.TIMES)
                before, first = first, self._with_slots(operation, pair)
                self._forget(before)
            positive = positive and smallest >= 0
        return self._result(first)

    def _quotient(self, args: Sequence[int | float], least: Sequence[float]) -> _Own:
        dividend, divisor = args
        if isinstance(divisor, float) and divisor > 0 and least[0] > -np.inf and not isinstance(dividend, float):
            return self._own(blocks.DIVIDE_NUMBER, dividend, number=divisor)
        if least[0] >= 0 and least[1] > 0:
            return self._with_slots(blocks.DIVIDE, args)
        flags = (blocks.UNBOUNDED * (least[0] == -np.inf) | blocks.NOT_NEGATIVE * (least[0] >= 0)
                 | blocks.POSITIVE * (least[1] > 0))
        return self._with_slots(blocks.DIVIDE_ANY, args, flags)

    def _result(self, value: int | float) -> int:
        return self.emit(blocks.FILL, number=value) if isinstance(value, float) else int(value)

    def _own(self, operation: int, *args: int | float, number: float = 0.0) -> _Own:
        return _Own(self.emit(operation, *map(int, args), number=number))

    def _then(self, operation: int, slot: int | float, number: float = 0.0) -> _Own:
        result = self._own(operation, slot, number=number)
        self._forget(slot)
        return result

    def _forget(self, value: int | float) -> None:
        if isinstance(value, _Own):
            self.drop(int(value))

    def _with_slots(self, operation: int, args: Sequence[int | float], flags: int = 0) -> _Own:
        """Add an instruction, with numbers in slots while it reads them."""
        slots = [self._own(blocks.FILL, number=arg) if isinstance(arg, float) else arg for arg in args]
        third = () if len(slots) == 3 else (flags,)
        result = self._own(operation, *slots, *third)
        for arg, slot in zip(args, slots, strict=True):
            if isinstance(arg, float):
                self._forget(slot)
        return result

    def _add(self, operation: int, slot: int, args: Sequence[int], number: float) -> None:
        place = self._numbers.setdefault(number, len(self._numbers))
        first, second, third, *_ = (*args, 0, 0, 0)
        self.code.append((operation, slot, first, second, third, place, blocks.BOTH))


def least_anywhere(
    nodes: Sequence[Node], common: Mapping[Node, float], ends: Mapping[Node, tuple[float, float]],
) -> dict[Node, tuple[float, ...]]:
    """Return for every node, arguments first, the least values of its arguments anywhere in a part.

    ``common`` are values of nodes of no axis, ``ends`` the least and largest values of those that have tables.
    """
    numbers: dict[float, int] = {0.0: 0}
    program, least = Program(numbers), dict[Node, tuple[float, ...]]()
    machine, slots = _Machine(program, 1), dict[Node, int]()
    for node in nodes:
        if node in ends:
            slots[node] = program.room()
            machine.put(slots[node], *ends[node])
            continue
        args = [common[arg] if arg in common else slots[arg] for arg in node.args]
        least[node] = tuple(arg if isinstance(arg, float) else float(machine.ends(arg)[0][0]) for arg in args)
        slots[node] = program.operate(node, args, least[node])
        machine.run()
    return least


def ranged(
    node: Node, args: Sequence[tuple[NDArray[np.float64], NDArray[np.float64]] | float], least: Sequence[float],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the bounds of an operation on columns of bounds or numbers, which are nowhere below ``least``.

    Raises KeyError for an operation that spaces do not have.
    """
    program, values = Program({0.0: 0}), list[int | float]()
    machine = _Machine(program, next(len(arg[0]) for arg in args if not isinstance(arg, float)))
    for arg in args:
        if isinstance(arg, float):
            values.append(arg)
        else:
            values.append(program.room())
            machine.put(int(values[-1]), *arg)
    slot = program.operate(node, values, least)
    machine.run()
    return machine.ends(slot)


class _Machine:
    """The machine on one block, for instructions that are run as they are written."""

    def __init__(self, program: Program, width: int) -> None:
        self._program, self._done = program, 0
        self._low, self._high = (np.empty((0, width)) for _ in "lh")
        self._run = native(blocks, "run")
        self._none, self._table = np.empty(0, np.int64), np.empty((0, 0), np.int64)

    def put(self, slot: int, low: Any, high: Any) -> None:
        """Say what a slot holds."""
        self._grow()
        self._low[slot], self._high[slot] = low, high

    def ends(self, slot: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the least and the largest values in a slot."""
        return self._low[slot], self._high[slot]

    def run(self) -> None:
        """Run the instructions that were written since."""
        self._grow()
        code = np.asarray(self._program.code[self._done:], np.int64).reshape(-1, 7)
        self._done += len(code)
        none, table, ends = self._none, self._table, np.empty(0)
        self._run(code, 0, len(code), self._low.shape[1], self._low, self._high, self._program.numbers, ends, ends,
                  table, table, table, table, 0, table, none, none, none, self._low[:0], self._high[:0])

    def _grow(self) -> None:
        if len(self._low) < self._program.slots:
            more = ((0, 2 * self._program.slots - len(self._low)), (0, 0))
            self._low, self._high = np.pad(self._low, more), np.pad(self._high, more)


class _Own(int):
    """A slot that holds a part of an operation, for use again behind it."""
