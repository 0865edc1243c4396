"""Blocks of memory, linked to their neighbours in a segment, and pools of those that are cached."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Iterator


class Segment:
    """Range of addresses that the driver gave: in whole, or for an expandable one, page by page."""

    __slots__ = ("address", "expandable", "page", "reach", "small", "stream")

    def __init__(self, address: int, reach: int, stream: int, small: bool, page: int = 0) -> None:
        self.address, self.reach, self.stream, self.small = address, reach, stream, small
        self.page, self.expandable = page, page > 0


class Block:
    """Part of a segment: in use, cached, or a range of an expandable segment without memory."""

    __slots__ = ("address", "allocated", "before", "behind", "born", "events", "mapped", "requested", "segment",
                 "size", "used_by")

    def __init__(self, segment: Segment, address: int, size: int, mapped: bool = True) -> None:
        self.segment, self.address, self.size, self.mapped = segment, address, size, mapped
        self.requested = 0
        self.allocated = False
        self.before: Block | None = None
        self.behind: Block | None = None
        self.events = 0
        """Events of other streams that must pass before the block is cached."""
        self.used_by: set[int] = set()
        """Other streams that used the block."""
        self.born = 0
        """Searches that its pool had seen when the block was cached."""

    @property
    def is_split(self) -> bool:
        """True of a block that has neighbours in its segment."""
        return self.before is not None or self.behind is not None

    @property
    def is_free(self) -> bool:
        """True of a block that nothing uses and no event holds back."""
        return not self.allocated and not self.events and not self.used_by

    def insert_behind(self, other: Block) -> None:
        """Link ``other`` in between this block and the one behind it."""
        other.before, other.behind = self, self.behind
        if self.behind is not None:
            self.behind.before = other
        self.behind = other


class Pool:
    """Cached blocks of one size class, by stream, size and address, and ranges without memory by address."""

    def __init__(self, small: bool) -> None:
        self.small = small
        self.searches = 0
        self.cached: dict[int, list[tuple[int, int, Block]]] = {}
        self.unmapped: dict[int, list[tuple[int, Block]]] = {}

    def add(self, block: Block) -> None:
        """Cache a block, or keep a range without memory."""
        stream = block.segment.stream
        if block.mapped:
            block.born = self.searches
            insort(self.cached.setdefault(stream, []), (block.size, block.address, block))
        else:
            insort(self.unmapped.setdefault(stream, []), (block.address, block))

    def remove(self, block: Block) -> None:
        """Take a block out that was added."""
        stream = block.segment.stream
        if block.mapped:
            blocks = self.cached[stream]
            del blocks[bisect_left(blocks, (block.size, block.address))]
        else:
            ranges = self.unmapped[stream]
            del ranges[bisect_left(ranges, (block.address,))]

    def at_least(self, stream: int, size: int) -> Iterator[Block]:
        """Yield the cached blocks of a stream that have ``size`` bytes or more, smallest and lowest first."""
        blocks = self.cached.get(stream, [])
        start = bisect_left(blocks, (size,))
        return (blocks[place][2] for place in range(start, len(blocks)))

    def blocks(self) -> list[Block]:
        """List all cached blocks."""
        return [block for stream in sorted(self.cached) for _, _, block in self.cached[stream]]


class Addresses:
    """Addresses of segments, each above all that were given before."""

    def __init__(self, start: int = 2**40, alignment: int = 2**21) -> None:
        self._next, self._alignment = start, alignment

    def take(self, size: int) -> int:
        """Return the lowest address of ``size`` bytes that no other segment had."""
        address = self._next
        self._next += -(-size // self._alignment) * self._alignment
        return address


class Given(Addresses):
    """Addresses that a driver gave, one after another with its size; those of what it did not give lie above all."""

    def __init__(self, segments: Iterable[tuple[int, int]]) -> None:
        super().__init__()
        self._given = deque(segments)
        self._next = max([self._next, *(address + size for address, size in self._given)])

    def __len__(self) -> int:
        return len(self._given)

    def take(self, size: int) -> int:
        """Return the driver's address of this segment; of another size than the driver's, one above all others."""
        address, own = self._given.popleft() if self._given else (0, 0)
        return address if own == size else super().take(size)
