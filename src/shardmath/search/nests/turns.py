"""The loops of a problem on columns: each turn that broke no condition so far is a row of the next loop.

Values are computed in the outermost loop that they depend on, and conditions tested there, for many turns at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from shardmath.compiler.expressions import ops
from shardmath.compiler.expressions.arrays import Step, computed, constants, steps_of
from shardmath.compiler.expressions.graph import Node, ordered
from shardmath.compiler.nests.order import Order
from shardmath.compiler.nests.problem import Problem
from shardmath.search.nests.nest import steps
from shardmath.search.spaces import Axis

#: Turns that are computed at a time: columns of them stay in the processor's cache.
_TURNS = 1 << 13

Integers = NDArray[np.int64]
Truths = NDArray[np.bool_]
#: The values of nodes in a loop, and for every turn further inside the one of these that it is in.
Around: TypeAlias = tuple[Mapping[Node, Any], Integers]


@dataclass(frozen=True)
class Loop:
    """A loop over some axes, counted through as one.

    ``tests`` are conditions with their places. ``tested`` computes what they need, ``kept`` the rest for the turns that
    meet them; of the results, ``lasting`` ones are wanted further inside. For both, nodes of outer loops are lent, each
    with its depth. A turn stands for ``below`` configurations.
    """

    axes: tuple[Axis, ...]
    tests: tuple[tuple[int, Node], ...]
    lent_to_tests: tuple[tuple[int, Node], ...]
    tested: tuple[Step, ...]
    lent_to_kept: tuple[tuple[int, Node], ...]
    kept: tuple[Step, ...]
    lasting: tuple[Node, ...]
    below: int

    @property
    def size(self) -> int:
        """Turns inside one turn of the loop around."""
        return prod(axis.size for axis in self.axes)

    def operations(self, turns: int, legal: int) -> int:
        """Return operations for so many turns, of which some are legal."""
        return turns * len(self.tested) + legal * len(self.kept)


@dataclass(frozen=True)
class Turns:
    """Legal configurations: their numbers, and the values of nodes for them."""

    numbers: Integers
    values: Mapping[Node, Any]

    def column(self, node: Node) -> NDArray[Any]:
        """Return the value of a node for each."""
        return np.broadcast_to(self.values[node], self.numbers.shape)


#: Which of some turns are wanted further.
Choose: TypeAlias = Callable[[Turns], Truths]
#: Is called with the place of a loop, and how many turns it computed at once, all and legal ones.
Weigh: TypeAlias = Callable[[int, int, int], None]


class _EnoughError(Exception):
    """More operations than anybody wants to know the number of."""


class Loops:
    """The loops for the conditions of a problem, for what is wanted of legal configurations, and of some of those.

    ``axes`` have the values of names, ``fixed`` those of all other ones. ``tried`` are the places of the conditions in
    the order in which they are tried.
    """

    def __init__(
        self, problem: Problem, order: Order, axes: Sequence[Axis], fixed: Mapping[str, int],
        of_legal: Sequence[Node] = (), of_some: Sequence[Node] = (),
    ) -> None:
        own = {axis.name: axis for axis in axes}
        nested = [tuple(own[axis.name] for axis in some)
                  for some in (order.shard, *((axis,) for axis in (*order.loops, *order.fused)), ())]
        conditions = [(number, node) for number, (_, node) in enumerate(problem.conditions)]
        first = ordered([*(node for _, node in conditions), *of_legal])
        nodes = ordered([*(node for _, node in conditions), *of_legal, *of_some])
        depth = _depths(nodes, nested)
        # Values that only some configurations need are computed in a loop of a single turn inside all others.
        depth |= {node: len(nested) for node in set(nodes).difference(first)
                  if node.args and depth[node] == len(nested) - 1}
        self._conditions = len(conditions)
        self._names = {str(node.value): node for node in nodes if node.op == ops.NAME}
        self._common = constants(nodes)
        self._common |= {node: np.float64(fixed[name]) for name, node in self._names.items() if not depth[node]}
        computed(steps_of([node for node in nodes if node.args and not depth[node]], nodes), self._common)
        self._everywhere = [(number, node) for number, node in conditions if not depth[node]]
        wanted = {len(nested) - 1: of_legal, len(nested): of_some}
        self.loops: list[Loop] = []
        inward: set[Node] = set()  # what loops further inside need of this one
        for number in range(len(nested), 0, -1):
            tests = [item for item in conditions if depth[item[1]] == number]
            inner = [node for node in nodes if node.args and depth[node] == number]
            before = set(ordered([node for _, node in tests]))
            tested, kept = ([node for node in inner if (node in before) is early] for early in (True, False))
            asked = wanted.get(number, ())
            lent = {node: _lent([arg for item in some for arg in item.args], more, number, depth)
                    for node, some, more in ((0, tested, ()), (1, kept, asked))}
            lasting = inward.union(asked)
            used = lasting.union(node for _, node in tests).union(arg for node in kept for arg in node.args)
            self.loops.insert(0, Loop(
                nested[number - 1], tuple(tests), lent[0], steps_of(tested, used), lent[1], steps_of(kept, lasting),
                tuple(node for node in nodes if node in asked or (node in inward and depth[node] == number)),
                prod(axis.size for others in nested[number:] for axis in others),
            ))
            inward.update(arg for node in inner for arg in node.args)
            inward.update(asked)
        self.tried = tuple(number for tests in (self._everywhere, *(loop.tests for loop in self.loops))
                           for number, _ in tests)
        self._steps = steps(axes)
        self._tests = Loops(problem, order, axes, fixed) if of_legal or of_some else self

    def exceed(self, operations: int, shards: int) -> bool:
        """Return True if all shards take more operations on single numbers than that, testing conditions only."""
        spent = 0

        def weigh(place: int, turns: int, legal: int) -> None:
            nonlocal spent
            spent += self.loops[place].operations(turns, legal)
            if spent > operations:
                raise _EnoughError

        try:
            for _ in self._tests.legal(0, shards, np.zeros(self._conditions, np.int64), weigh=weigh):
                pass
        except _EnoughError:
            return True
        return False

    def legal(
        self, start: int, stop: int, broken: Integers, chosen: Choose | None = None, weigh: Weigh | None = None,
    ) -> Iterator[Turns]:
        """Yield the legal configurations of shards ``start`` to ``stop`` that are ``chosen``, in loop order.

        The configurations that break a condition are added to ``broken``, by the first one that is tried.
        """
        for number, node in self._everywhere:
            if not self._common[node]:
                broken[number] += (stop - start) * self.loops[0].below
                return
        yield from self._inside(0, (start, stop), np.zeros(1, np.int64), (), broken, chosen, weigh)

    def _inside(
        self, depth: int, places: tuple[int, int], numbers: Integers, around: Sequence[Around], broken: Integers,
        chosen: Choose | None, weigh: Weigh | None,
    ) -> Iterator[Turns]:
        """Yield the legal turns of a loop between two ``places``, inside turns with ``numbers``."""
        loop, size = self.loops[depth], places[1] - places[0]
        for first in range(0, len(numbers) * size, _TURNS):
            row, place = np.divmod(np.arange(first, min(first + _TURNS, len(numbers) * size)), size)
            inner, values = numbers[row], dict(self._common)
            for axis, at in zip(loop.axes, _unravelled(place + places[0], loop.axes), strict=True):
                inner += at * self._steps[axis.name]
                values |= {self._names[name]: np.asarray(candidates, np.float64)[at]
                           for name, candidates in axis.values.items() if name in self._names}
            rows = [at[row] for _, at in around]
            values |= {node: around[outer - 1][0][node][rows[outer - 1]] for outer, node in loop.lent_to_tests}
            computed(loop.tested, values)
            legal = np.ones(len(inner), np.bool_)
            for number, node in loop.tests:
                lost = legal & ~values[node]
                broken[number] += np.count_nonzero(lost) * loop.below
                legal ^= lost
            if weigh is not None:
                weigh(depth, len(legal), int(np.count_nonzero(legal)))
            if not legal.all():
                places_of_legal = np.flatnonzero(legal)
                inner, rows = inner[places_of_legal], [at[places_of_legal] for at in rows]
                values = {node: value[places_of_legal] if np.ndim(value) else value for node, value in values.items()}
            if not len(inner):
                continue
            values |= {node: around[outer - 1][0][node][rows[outer - 1]] for outer, node in loop.lent_to_kept}
            computed(loop.kept, values)
            values = {node: values[node] for node in loop.lasting}
            if depth == len(self.loops) - 1:
                yield Turns(inner, values)
                continue
            own = np.arange(len(inner))
            if depth == len(self.loops) - 2 and chosen is not None:
                own = np.flatnonzero(chosen(Turns(inner, values)))
                inner, rows = inner[own], [at[own] for at in rows]
            here = [*((known, at) for (known, _), at in zip(around, rows, strict=True)), (values, own)]
            yield from self._inside(depth + 1, (0, self.loops[depth + 1].size), inner, here, broken, chosen, weigh)


def _depths(nodes: Sequence[Node], nested: Sequence[Sequence[Axis]]) -> dict[Node, int]:
    """Return the loop that each node changes in, counted from 1 outside inwards; 0 for what is the same everywhere."""
    loop_of = {name: number for number, axes in enumerate(nested, 1) for axis in axes for name in axis.values}
    depths: dict[Node, int] = {}
    for node in nodes:
        inside = (depths[arg] for arg in node.args)
        depths[node] = loop_of.get(str(node.value), 0) if node.op == ops.NAME else max(inside, default=0)
    return depths


def _unravelled(places: Integers, axes: Sequence[Axis]) -> Sequence[Integers]:
    """Return the place on each of some axes, the last of which runs fastest."""
    return np.unravel_index(places, [axis.size for axis in axes]) if axes else ()


def _lent(
    used: Sequence[Node], asked: Sequence[Node], number: int, depth: Mapping[Node, int],
) -> tuple[tuple[int, Node], ...]:
    """Return nodes of outer loops among those that are used, each with its depth."""
    return tuple((depth[node], node) for node in dict.fromkeys([*used, *asked]) if 0 < depth[node] < number)
