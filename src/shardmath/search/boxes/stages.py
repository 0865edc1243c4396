"""Programs for the children along an axis: what is lent by their parents, what says if they count, and their keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardmath.compiler.expressions.graph import Node
from shardmath.search.boxes import blocks
from shardmath.search.boxes.programs import Program

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Known:
    """Share among programs of all axes: values of nodes of no axis, places of tables, least values of arguments.

    ``columns`` has for a node in a table the number of the table, and where its column begins.
    """

    common: Mapping[Node, float]
    columns: Mapping[Node, tuple[int, int]]
    least: Mapping[Node, tuple[float, ...]]


@dataclass(frozen=True)
class Nodes:
    """The nodes of an axis, arguments first.

    ``lent`` keep the bounds of parents; ``first`` say which children count; ``then`` give the keys of those.
    """

    lent: Sequence[Node]
    first: Sequence[Node]
    then: Sequence[Node]


@dataclass(frozen=True)
class Stages:
    """The instructions of an axis, as the machine takes them: see ``blocks.children``.

    ``counting`` are slots of what counts for each question, ``changing`` the same of what changes along the axis alone.
    A key that does not change is ``lent``. Without ``every`` end they say what closes boxes, and no more: see
    ``closing``. There a key in no slot is that of the parent.
    """

    code: Integers
    stages: Integers
    numbers: NDArray[np.float64]
    counting: Integers
    changing: Integers
    kept: Integers
    keys: Integers
    lent: Integers
    slots: int
    outer_slots: int
    every: int = 1

    @classmethod
    def of(
        cls, nodes: Nodes, known: Known, conditions: Sequence[Node], counting: Sequence[Node], keys: Sequence[Node],
    ) -> Stages:
        """Write the programs of an axis.

        A child counts for a question where all ``conditions`` hold and its node of ``counting`` does.
        """
        numbers: dict[float, int] = {0.0: 0}
        wanted = {arg for node in (*nodes.first, *nodes.then) if node not in known.columns for arg in node.args}
        outer = _Writing(Program(numbers), known, None)
        outer.write(nodes.lent, {*wanted, *conditions, *counting, *keys})
        outer.find({known.columns[node][0] for node in (*nodes.first, *nodes.then) if node in known.columns})
        inner = _Writing(Program(numbers), known, outer.slots.__getitem__)
        later = {*keys, *(arg for node in nodes.then if node not in known.columns for arg in node.args)}
        inner.write(nodes.first, {*conditions, *counting, *later})
        changed = {*nodes.first, *nodes.then}
        own_holds = inner.all_of([node for node in conditions if node in changed])
        own = [inner.all_of([own_holds, *{node} & changed]) for node in counting]
        holds = inner.all_of([node for node in conditions if node not in changed])
        counts = [inner.all_of([slot, holds, *{node} - changed]) for slot, node in zip(own, counting, strict=True)]
        kept = [inner.slots[node] for node in nodes.first if node in later]
        stop = len(inner.program.code)
        inner.forget(set(nodes.first) - later)
        inner.write(nodes.then, set(keys))
        slots = [inner.slot(inner.argument(key)) for key in keys]
        code = [*outer.program.code, *inner.program.code]
        before = len(outer.program.code)
        return cls(
            np.asarray(code, np.int64).reshape(-1, 7), np.asarray([0, before, before + stop, len(code)]),
            np.asarray(list(numbers)),
            np.asarray(counts, np.int64), np.asarray(own, np.int64),
            np.asarray([*kept, *counts, *own], np.int64), np.asarray(slots, np.int64),
            np.asarray([key not in changed and key not in known.common for key in keys], np.int64),
            inner.program.slots, outer.program.slots,
        )


def writing_of_keys(nodes: Sequence[Node], known: Known, keys: Sequence[Node]) -> tuple[Program, list[int]]:
    """Return a program of its own for keys, from their ``nodes``, arguments first, and the slots of the keys."""
    writing = _Writing(Program({0.0: 0}), known, None)
    writing.write(nodes, set(keys))
    return writing.program, [writing.slot(writing.argument(key)) for key in keys]


class _Writing:
    """A program in the making: slots of nodes, and ``lender``, which says where parents have bounds of a node."""

    def __init__(self, program: Program, known: Known, lender: Callable[[Node], int] | None) -> None:
        self.program, self.known, self.lender = program, known, lender
        self.slots: dict[Node, int] = {}
        self._lent: set[Node] = set()
        self._tables: set[int] = set()

    def write(self, nodes: Sequence[Node], lasting: set[Node]) -> None:
        """Add instructions for some nodes, and use slots again but for those of ``lasting`` nodes."""
        last: dict[Node, int] = {}
        for number, node in enumerate(nodes):
            if node not in self.known.columns:
                last.update(dict.fromkeys(node.args, number))
        self._tables.clear()
        for number, node in enumerate(nodes):
            column = self.known.columns.get(node)
            if column is None:
                args = [self.argument(arg) for arg in node.args]
                self.slots[node] = self.program.operate(node, args, self.known.least[node])
                self._drop(arg for arg in dict.fromkeys(node.args) if last[arg] == number and arg not in lasting)
                continue
            table, start = column
            self.find({table})
            self.slots[node] = self.program.emit(blocks.GATHER, start, table, 1)

    def find(self, tables: set[int]) -> None:
        """Add instructions that find the rows of tables, once each in what is written together."""
        for table in sorted(tables - self._tables):
            self.program.rows(blocks.OUTER_ROWS if self.lender is None else blocks.ROWS, table)
        self._tables |= tables

    def argument(self, node: Node) -> int | float:
        """Return the slot or the number of a node, which parents lend if it is not here."""
        if node in self.known.common:
            return self.known.common[node]
        if node not in self.slots:
            assert self.lender is not None
            self.slots[node] = self.program.emit(blocks.LEND, self.lender(node))
            self._lent.add(node)
        return self.slots[node]

    def slot(self, value: int | float) -> int:
        """Return a slot with a value."""
        return self.program.emit(blocks.FILL, number=value) if isinstance(value, float) else value

    def all_of(self, truths: Sequence[Any]) -> int:
        """Return a new slot that says whether all hold: nodes, or slots."""
        slots = [self.slot(self.argument(item) if isinstance(item, Node) else item) for item in truths]
        result = self.program.emit(blocks.FILL, number=1.0)
        for slot in slots:
            before, result = result, self.program.emit(blocks.MINIMUM, result, slot)
            self.program.drop(before)
        return result

    def forget(self, nodes: Iterable[Node]) -> None:
        """Use the slots of some nodes again, and of all that was lent."""
        self._drop({*nodes, *self._lent} & set(self.slots))
        self._lent.clear()

    def _drop(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            if node in self.slots:
                self.program.drop(self.slots.pop(node))
                self._lent.discard(node)
