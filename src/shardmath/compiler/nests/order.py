"""The order of the loops: which axes are fused into one table, and how the others are nested.

An axis is cheap inside if few operations depend on it. The innermost loop runs over a table of the fused axes, several
entries at a time; whatever depends on none of them is computed once for all entries.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from ..expressions import ops
from ..expressions.graph import Node, ordered
from .problem import Best, NestAxis, Problem, Rows

#: Most entries of the table: its rows then stay in the fastest caches.
MOST_ENTRIES = 768
#: Most turns of the loops that are a block, for the same reason.
MOST_TURNS = 96
#: Entries that a processor works on at the same time.
LANES = 8
#: Cost of one turn of a loop, and of one table, in operations; and of a block besides that.
_TURN, _BLOCK = 12, 64
#: Cost of finding the legal turns of a block, for each turn.
_TESTED = 6
#: Share of the turns of outer loops that meet a condition; conditions on the same axes count once.
_MET = 0.85
#: Combinations of the outermost axes that are shared out between threads and machines: at least so many.
_SHARDS = 256
#: Configurations of one shard whose rows are all held in memory: at most so many, where the axes allow it.
_ROWS = 1 << 18
_COSTS = {ops.DIV: 8, ops.CEIL_DIV: 10, ops.FLOOR_DIV: 10, ops.DIVIDES: 10, ops.LCM: 12}
_FREE = frozenset((ops.NAME, ops.NUMBER, ops.TRUTH))


@dataclass(frozen=True)
class Order:
    """``shard`` are the outermost axes, counted through as one; ``loops`` nest in them; ``fused`` is the table.

    Between them, ``block`` are loops that are one: what differs between their turns and not between the entries of the
    table is computed for several turns at the same time. The turns are tested outside of the last ``between`` of the
    ``loops``, on which no condition on a turn depends: each of those then goes over the legal turns only.
    """

    shard: tuple[NestAxis, ...]
    loops: tuple[NestAxis, ...]
    fused: tuple[NestAxis, ...]
    block: tuple[NestAxis, ...] = ()
    between: int = 0

    @property
    def outer(self) -> tuple[NestAxis, ...]:
        """All axes outside the table and the block, outermost first."""
        return self.shard + self.loops

    @property
    def levels(self) -> tuple[tuple[NestAxis, ...], ...]:
        """The axes of each loop outside the table, outermost first; those of a block where its turns are tested.

        What is computed for each turn inside all loops comes last, without axes.
        """
        loops = [self.shard, *((axis,) for axis in self.loops)]
        if self.block:
            loops.insert(len(loops) - self.between, self.block)
            loops.append(())
        return tuple(loops)

    @property
    def tested(self) -> int | None:
        """The level on which the turns of a block are tested, counted from 1; None without a block."""
        return len(self.levels) - 1 - self.between if self.block else None

    @property
    def turns(self) -> int:
        """Turns of the block."""
        return prod(axis.size for axis in self.block)

    @property
    def entries(self) -> int:
        """Entries of the table."""
        return prod(axis.size for axis in self.fused)


def dependencies(roots: Iterable[Node], axes: Sequence[NestAxis]) -> dict[Node, int]:
    """Return the axes that every node depends on, as bits."""
    bits = {parameter: 1 << number for number, axis in enumerate(axes) for parameter in axis.parameters}
    masks: dict[Node, int] = {}
    for node in ordered(roots):
        mask = bits.get(str(node.value), 0) if node.op == ops.NAME else 0
        for arg in node.args:
            mask |= masks[arg]
        masks[node] = mask
    return masks


def chosen_order(problem: Problem, *, blocks: bool, between: bool = True) -> Order:
    """Get the order with the least counted operations that a greedy search finds; only with ``blocks`` it has a block.

    Only with ``between``, loops may stand between the tests of its turns and the table.
    """
    axes = problem.axes
    masks = dependencies(problem.roots, axes)
    weights = _weights(masks)
    conditions = {masks[node] for _, node in problem.conditions if masks[node]}
    grouping = {name for question in problem.questions if isinstance(question, Best) for name in question.per}
    free = [number for number, axis in enumerate(axes) if axis.name not in grouping]
    fused: frozenset[int] = frozenset()
    best = _nested(axes, weights, conditions, fused)
    while True:
        tried = [
            _nested(axes, weights, conditions, fused | {number}) for number in free
            if number not in fused and _entries(axes, fused | {number}) <= MOST_ENTRIES
        ]
        better = min(tried, default=best, key=lambda item: item[0])
        if better[0] >= best[0] and fused:
            break
        if not tried:
            break
        best, fused = better, better[2]
    most = _ROWS if any(isinstance(question, Rows) for question in problem.questions) else None
    order = _order(axes, best[1], best[2], most)
    if not blocks:
        return order
    return _with_block(order, axes, weights, grouping, conditions if between else None)


def nested_order(problem: Problem) -> Order:
    """Return the order without a table or a block, where each loop computes for many turns at once."""
    axes = problem.axes
    masks = dependencies(problem.roots, axes)
    conditions = {masks[node] for _, node in problem.conditions if masks[node]}
    return _order(axes, _nested(axes, _weights(masks), conditions, frozenset())[1], frozenset(), None)


def _weights(masks: Mapping[Node, int]) -> dict[int, int]:
    """Return operations by the axes that they depend on, as bits."""
    weights: dict[int, int] = {}
    for node, mask in masks.items():
        if node.op not in _FREE and mask:
            weights[mask] = weights.get(mask, 0) + _COSTS.get(node.op, max(1, len(node.args) - 1))
    return weights


def _entries(axes: Sequence[NestAxis], fused: Iterable[int]) -> int:
    return prod(axes[number].size for number in fused)


def _nested(
    axes: Sequence[NestAxis], weights: Mapping[int, int], conditions: Collection[int], fused: frozenset[int],
) -> tuple[float, list[int], frozenset[int]]:
    """Nest what is not fused, cheapest axis innermost; give the operations per configuration as well.

    A loop is passed over where a condition on outer axes is broken; ``conditions`` are the axes of each.
    """
    table = sum(1 << number for number in fused)
    entries = _entries(axes, fused)
    per_turn = {
        mask: weight * (-(-entries // LANES) if mask & table else 1.0) for mask, weight in weights.items()
    }
    left = [number for number in range(len(axes)) if number not in fused]
    order: list[int] = []
    cost, share = 0.0, 1.0 / entries
    tests = [mask for mask in conditions if not mask & table]
    while left:
        inside = {
            number: _TURN + sum(weight for mask, weight in per_turn.items() if mask >> number & 1) for number in left
        }
        saved = {number: inside[number] * (1 - 1 / max(axes[number].size, 1.5)) for number in left}
        innermost = min(left, key=saved.__getitem__)
        tests = [mask for mask in tests if not mask >> innermost & 1]
        cost += share * inside[innermost] * _MET ** len(tests)
        share /= axes[innermost].size
        per_turn = {mask: weight for mask, weight in per_turn.items() if not mask >> innermost & 1}
        left.remove(innermost)
        order.insert(0, innermost)
    return cost, order, fused


def _order(axes: Sequence[NestAxis], nested: Sequence[int], fused: frozenset[int], most: int | None) -> Order:
    """Split the nested axes into shards, of ``most`` configurations if that is given, and loops."""
    outer = [axes[number] for number in nested]
    least = _SHARDS if most is None else max(_SHARDS, prod(axis.size for axis in axes) // most)
    count = 0
    while count < len(outer) - 1 and prod(axis.size for axis in outer[:count]) < least:
        count += 1
    count = max(count, min(1, len(outer)))
    return Order(tuple(outer[:count]), tuple(outer[count:]), tuple(axes[number] for number in sorted(fused)))


def _with_block(
    order: Order, axes: Sequence[NestAxis], weights: Mapping[int, int], grouping: Collection[str],
    conditions: Collection[int] | None,
) -> Order:
    """Make the innermost loops a block, as many of them as save operations.

    ``conditions`` are the axes of each, as bits: loops that no condition on a turn depends on may then stand inside
    the tests of the turns. Without them, none do.
    """
    bits = {axis: 1 << number for number, axis in enumerate(axes)}
    tried = []
    for split in range(len(order.loops), -1, -1):
        blocked = replace(order, loops=order.loops[:split], block=order.loops[split:])
        if blocked.turns > MOST_TURNS or any(axis.name in grouping for axis in blocked.block):
            break
        tried.append(blocked)
        if conditions is None:
            continue
        turned = sum(bits[axis] for axis in blocked.block)
        tests = [mask for mask in conditions if mask & turned]
        free = [axis for axis in blocked.loops if not any(mask & bits[axis] for mask in tests)]
        if blocked.block and free:
            loops = (*(axis for axis in blocked.loops if axis not in free), *free)
            tried.append(replace(blocked, loops=loops, between=len(free)))
    return min(tried, key=lambda blocked: _operations(blocked, bits, weights))


def _operations(order: Order, bits: Mapping[NestAxis, int], weights: Mapping[int, int]) -> float:
    """Operations inside one shard."""
    table, turned = (sum(bits[axis] for axis in axes) for axes in (order.fused, order.block))
    between = sum(bits[axis] for axis in order.loops[len(order.loops) - order.between:])
    lanes, vectors = -(-order.turns // LANES), max(1.0, order.entries / LANES)
    times = [1]  # how often the body of each loop is gone through
    for axis in order.loops:
        times.append(times[-1] * axis.size)
    tests, inside = times[len(order.loops) - order.between], times[-1]
    total: float = _TURN * (sum(times[1:]) + inside * order.turns)
    if order.block:
        total += tests * (_BLOCK + _TESTED * order.turns)
    for mask, weight in weights.items():
        if mask & turned and mask & table:
            total += weight * inside * order.turns * vectors
        elif mask & turned:
            total += weight * lanes * (inside if mask & between else tests)
        else:
            depth = max((place + 1 for place, axis in enumerate(order.loops) if mask & bits[axis]), default=0)
            total += weight * times[depth] * (vectors if mask & table else 1)
    return total
