"""Attribute measured allocations to rows of the ledger: by size, by words of the stack, and by order."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from shardmath.allocator.settings import SMALLEST_BLOCK
from shardmath.commands.snapshot.answers import Holder, RowFound
from shardmath.commands.snapshot.walk import Tensor

#: One part in so many by which a size may differ, for padding and alignment, before the stack must speak for a row.
CLOSE = 32
#: Ways in which tensors are attributed, the surest first.
SIZE, ROUNDED, PADDED, STACK = "size", "rounded size", "size within 3 %", "stack"
#: Words of stacks in which tensors of a role are made, beside those of their row.
_WORDS: Mapping[str, tuple[str, ...]] = {"optimizer": ("optim", "optimizer", "adam", "adamw"),
                                         "gradient": ("backward", "grad")}
_WORD = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True, slots=True)
class Expected:
    """An allocation of the replay at its peak: its row, the role of that, and its bytes."""

    row: str
    role: str
    size: int


@dataclass
class _Found:
    bytes: int = 0
    tensors: int = 0
    ways: dict[str, int] = field(default_factory=dict)
    stacks: dict[tuple[str, ...], int] = field(default_factory=dict)


def attributed(
    expected: Sequence[Expected], measured: Sequence[Tensor],
) -> tuple[tuple[RowFound, ...], tuple[Holder, ...]]:
    """Return every row with what of the measured tensors is its own, and the stacks of the others, largest first.

    Both have their tensors in the order in which they were made. Each tensor is attributed once, or not at all: the
    bytes of rows and others are those that were measured.
    """
    attributed_to: dict[str, _Found] = {item.row: _Found() for item in expected}
    rows, tensors = list(enumerate(expected)), list(enumerate(measured))
    for way, size_class in ((SIZE, _exact), (ROUNDED, _in_blocks)):
        rows, tensors = _pass(rows, tensors, attributed_to, way, size_class)
    tensors = _by_stack(_nearly(rows, tensors, attributed_to), attributed_to)
    predicted: dict[str, list[int]] = {}
    roles: dict[str, str] = {}
    for item in expected:
        predicted.setdefault(item.row, []).append(item.size)
        roles[item.row] = item.role
    listed = [
        RowFound(row, roles[row], sum(sizes), held.bytes, sum(sizes) - held.bytes, len(sizes), held.tensors,
                 tuple(held.ways), min(held.stacks, key=_largest(held.stacks), default=()))
        for row, sizes in predicted.items() for held in (attributed_to[row],)
    ]
    listed.sort(key=lambda item: (-max(item.predicted_bytes, item.measured_bytes), item.row))
    return tuple(listed), tuple(holders(tensor for _, tensor in tensors))


def holders(tensors: Iterable[Tensor]) -> list[Holder]:
    """Add up tensors by their stacks, largest first."""
    stacks: dict[tuple[str, ...], tuple[int, int]] = {}
    for tensor in tensors:
        size, count = stacks.get(tensor.stack, (0, 0))
        stacks[tensor.stack] = size + tensor.size, count + 1
    held = [Holder(stack, size, count) for stack, (size, count) in stacks.items()]
    return sorted(held, key=lambda holder: (-holder.bytes, holder.stack))


_Rows = list[tuple[int, Expected]]
_Tensors = list[tuple[int, Tensor]]


def _exact(size: int) -> int:
    return size


def _in_blocks(size: int) -> int:
    return -(-size // SMALLEST_BLOCK)


def _pass(
    rows: _Rows, tensors: _Tensors, attributed_to: Mapping[str, _Found], way: str, size_class: Callable[[int], int],
) -> tuple[_Rows, _Tensors]:
    """Attribute tensors to rows of the same size class; return rows and tensors that are left."""
    by_size: dict[int, tuple[_Rows, _Tensors]] = {}
    for line in rows:
        by_size.setdefault(size_class(line[1].size), ([], []))[0].append(line)
    for item in tensors:
        by_size.setdefault(size_class(item[1].size), ([], []))[1].append(item)
    left_rows, left_tensors = [], []
    for same_rows, same_tensors in by_size.values():
        pairs = _paired(same_rows, same_tensors) if same_rows and same_tensors else {}
        taken: dict[str, int] = {}
        for place, tensor in same_tensors:
            if place in pairs:
                taken[pairs[place]] = taken.get(pairs[place], 0) + 1
                _attribute(attributed_to[pairs[place]], tensor, way)
            else:
                left_tensors.append((place, tensor))
        for place, expected in same_rows:
            if taken.get(expected.row):
                taken[expected.row] -= 1
            else:
                left_rows.append((place, expected))
    return sorted(left_rows, key=_place), sorted(left_tensors, key=_place)


def _largest(stacks: Mapping[tuple[str, ...], int]) -> Callable[[tuple[str, ...]], tuple[int, tuple[str, ...]]]:
    """Return the key by which the stack with most bytes comes first."""
    return lambda stack: (-stacks[stack], stack)


def _place(item: tuple[int, object]) -> int:
    return item[0]


def _paired(rows: _Rows, tensors: _Tensors) -> dict[int, str]:
    """Return the row of tensors of one size, by place: most words first, then equal counts, then the order."""
    expected: dict[str, list[int]] = {}
    words: dict[str, frozenset[str]] = {}
    for order, (_, item) in enumerate(rows):
        expected.setdefault(item.row, []).append(order)
        words[item.row] = frozenset(_WORD.findall(item.row.lower())) | frozenset(_WORDS.get(item.role, ()))
    stacks: dict[tuple[str, ...], list[tuple[int, int]]] = {}
    for order, (place, tensor) in enumerate(tensors):
        stacks.setdefault(tensor.stack, []).append((order, place))
    said = {stack: frozenset(_WORD.findall(" ".join(stack).lower())) for stack in stacks}
    costs = sorted(
        (-len(words[row] & said[stack]), len(orders) != len(places),
         abs(orders[0] * len(tensors) - places[0][0] * len(rows)), orders[0], places[0][0], row, stack)
        for row, orders in expected.items() for stack, places in stacks.items()
    )
    pairs: dict[int, str] = {}
    free, waiting = {row: len(orders) for row, orders in expected.items()}, {**stacks}
    for *_, row, stack in costs:
        for _, place in waiting[stack][: free[row]]:
            pairs[place] = row
        count = min(free[row], len(waiting[stack]))
        free[row] -= count
        waiting[stack] = waiting[stack][count:]
    return pairs


def _nearly(rows: _Rows, tensors: _Tensors, attributed_to: Mapping[str, _Found]) -> _Tensors:
    """Attribute tensors to rows of the nearest size, padded by at most one part in ``CLOSE``."""
    left = sorted(rows, key=lambda item: item[1].size)
    others: _Tensors = []
    for place, tensor in tensors:
        behind = bisect_left(left, tensor.size, key=lambda item: item[1].size)
        near = min(left[max(0, behind - 1): behind + 1], key=lambda item: abs(item[1].size - tensor.size), default=None)
        if near and tensor.size >= SMALLEST_BLOCK and abs(near[1].size - tensor.size) * CLOSE <= near[1].size:
            left.remove(near)
            _attribute(attributed_to[near[1].row], tensor, PADDED)
        else:
            others.append((place, tensor))
    return others


def _by_stack(tensors: _Tensors, attributed_to: Mapping[str, _Found]) -> _Tensors:
    """Attribute tensors of other sizes to the one row that has tensors of the same stack."""
    owners: dict[tuple[str, ...], set[str]] = {}
    for row, item in attributed_to.items():
        for stack in item.stacks:
            owners.setdefault(stack, set()).add(row)
    left: _Tensors = []
    for place, tensor in tensors:
        rows = owners.get(tensor.stack, set()) if tensor.stack else set()
        if len(rows) == 1:
            _attribute(attributed_to[next(iter(rows))], tensor, STACK)
        else:
            left.append((place, tensor))
    return left


def _attribute(item: _Found, tensor: Tensor, way: str) -> None:
    item.bytes += tensor.size
    item.tensors += 1
    item.ways[way] = item.ways.get(way, 0) + 1
    if tensor.stack:
        item.stacks[tensor.stack] = item.stacks.get(tensor.stack, 0) + tensor.size
