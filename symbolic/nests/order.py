"""The order of the loops: which axes are fused into one table, and how the others are nested.

An axis is cheap inside if few operations depend on it. The innermost loop runs over a table of the fused axes, several
entries at a time; whatever depends on none of them is computed once for all entries.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from .graph import CEIL_DIV, DIV, DIVIDES, FLOOR_DIV, LCM, NAME, NUMBER, TRUTH, Node, ordered
from .problem import Best, NestAxis, Problem, Rows

#: Most entries of the table: its rows then stay in the fastest caches.
MOST_ENTRIES = 768
#: Most turns of the loops that are a block, for the same reason.
MOST_TURNS = 96
#: Entries that a processor works on at the same time.
LANES = 8
#: Cost of one turn of a loop, and of one table, in operations; and of a block besides that.
_TURN, _BLOCK = 12, 64
#: Combinations of the outermost axes that are shared out between threads and machines: at least so many.
_SHARDS = 256
#: Configurations of one shard whose rows are all held in memory: at most so many, where the axes allow it.
_ROWS = 1 << 18
_COSTS = {DIV: 8, CEIL_DIV: 10, FLOOR_DIV: 10, DIVIDES: 10, LCM: 12}
_FREE = frozenset((NAME, NUMBER, TRUTH))


@dataclass(frozen=True)
class Order:
    """``shard`` are the outermost axes, counted through as one; ``loops`` nest in them; ``fused`` is the table.

    Between them, ``block`` are loops that are one: what differs between their turns and not between the entries of the
    table is computed for several turns at the same time, before the first of them.
    """

    shard: tuple[NestAxis, ...]
    loops: tuple[NestAxis, ...]
    fused: tuple[NestAxis, ...]
    block: tuple[NestAxis, ...] = ()

    @property
    def outer(self) -> tuple[NestAxis, ...]:
        """All axes outside the table and the block, outermost first."""
        return self.shard + self.loops

    @property
    def levels(self) -> tuple[tuple[NestAxis, ...], ...]:
        """The axes of each loop outside the table, outermost first."""
        loops = (self.shard, *((axis,) for axis in self.loops))
        return (*loops, self.block) if self.block else loops

    @property
    def turns(self) -> int:
        """Turns of the block."""
        return prod(axis.size for axis in self.block)

    @property
    def entries(self) -> int:
        """Entries of the table."""
        return prod(axis.size for axis in self.fused)


def dependencies(roots: Iterable[Node], axes: Sequence[NestAxis]) -> dict[Node, int]:
    """The axes that every node depends on, as bits."""
    bits = {parameter: 1 << number for number, axis in enumerate(axes) for parameter in axis.parameters}
    masks: dict[Node, int] = {}
    for node in ordered(roots):
        mask = bits.get(str(node.value), 0) if node.op == NAME else 0
        for arg in node.args:
            mask |= masks[arg]
        masks[node] = mask
    return masks


def chosen_order(problem: Problem, *, blocks: bool) -> Order:
    """The order with the least counted operations that a greedy search finds; only with ``blocks`` it has a block."""
    axes = problem.axes
    weights: dict[int, int] = {}
    for node, mask in dependencies(problem.roots, axes).items():
        if node.op not in _FREE and mask:
            weights[mask] = weights.get(mask, 0) + _COSTS.get(node.op, max(1, len(node.args) - 1))
    grouping = {name for question in problem.questions if isinstance(question, Best) for name in question.per}
    free = [number for number, axis in enumerate(axes) if axis.name not in grouping]
    fused: frozenset[int] = frozenset()
    best = _nested(axes, weights, fused)
    while True:
        tried = [
            _nested(axes, weights, fused | {number}) for number in free
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
    return _with_block(order, axes, weights, grouping) if blocks else order


def _entries(axes: Sequence[NestAxis], fused: Iterable[int]) -> int:
    return prod(axes[number].size for number in fused)


def _nested(
    axes: Sequence[NestAxis], weights: Mapping[int, int], fused: frozenset[int],
) -> tuple[float, list[int], frozenset[int]]:
    """Nest what is not fused, cheapest axis innermost; give the operations per configuration as well."""
    table = sum(1 << number for number in fused)
    entries = _entries(axes, fused)
    per_turn = {
        mask: weight * (max(1.0, entries / LANES) if mask & table else 1.0) for mask, weight in weights.items()
    }
    left = [number for number in range(len(axes)) if number not in fused]
    order: list[int] = []
    cost, share = 0.0, 1.0 / entries
    while left:
        inside = {
            number: _TURN + sum(weight for mask, weight in per_turn.items() if mask >> number & 1) for number in left
        }
        saved = {number: inside[number] * (1 - 1 / max(axes[number].size, 1.5)) for number in left}
        innermost = min(left, key=saved.__getitem__)
        cost += share * inside[innermost]
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
) -> Order:
    """Make the innermost loops a block, as many of them as save operations."""
    tried = []
    for split in range(len(order.loops), -1, -1):
        blocked = replace(order, loops=order.loops[:split], block=order.loops[split:])
        if blocked.turns > MOST_TURNS or any(axis.name in grouping for axis in blocked.block):
            break
        tried.append(blocked)
    return min(tried, key=lambda blocked: _operations(blocked, axes, weights))


def _operations(order: Order, axes: Sequence[NestAxis], weights: Mapping[int, int]) -> float:
    """Operations inside one shard."""
    bits = {axis: 1 << number for number, axis in enumerate(axes)}
    table = sum(bits[axis] for axis in order.fused)
    left, total = dict(weights), 0.0
    turns = prod(axis.size for level in order.levels[1:] for axis in level)
    for level in reversed(order.levels[1:]):
        here = sum(bits[axis] for axis in level)
        alike = sum(weight for mask, weight in left.items() if mask & here and not mask & table)
        apart = sum(weight for mask, weight in left.items() if mask & here and mask & table)
        total += turns * (_TURN + apart * max(1.0, order.entries / LANES))
        if level is order.block:
            turns //= order.turns
            total += turns * (_BLOCK + alike * -(-order.turns // LANES))
        else:
            total += turns * alike
            turns //= prod(axis.size for axis in level)
        left = {mask: weight for mask, weight in left.items() if not mask & here}
    return total
