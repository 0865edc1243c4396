"""The caching allocator of PyTorch, by the rules of ``c10/cuda/CUDACachingAllocator.cpp``, without memory behind it."""

from __future__ import annotations

from collections import deque
from itertools import islice

from shardmath.allocator.blocks import Addresses, Block, Pool, Segment
from shardmath.allocator.expandable import Pages
from shardmath.allocator.settings import LARGEST_SMALL, MIB, SMALLEST_BLOCK, Settings, segment_bytes
from shardmath.allocator.statistics import Statistics


class OutOfDeviceMemoryError(MemoryError):
    """Neither the cache nor the driver has a block for a request."""

    def __init__(self, requested: int, statistics: Statistics) -> None:
        super().__init__(requested)
        self.requested, self.statistics = requested, statistics

    def __str__(self) -> str:
        return (f"{self.requested} bytes are asked for; {self.statistics.allocated_bytes} are allocated and "
                f"{self.statistics.reserved_bytes} reserved")


class CachingAllocator:
    """Serve requests for memory of one GPU as PyTorch does, and count what is reserved.

    Streams are integers; 0 is the default stream. Segments of ``cudaMalloc`` get ascending addresses, or those of
    ``addresses``: of free blocks of one size that with the lowest address is taken.
    """

    def __init__(self, settings: Settings = Settings(), addresses: Addresses | None = None) -> None:  # noqa: B008
        self.settings = settings
        self.statistics = Statistics()
        self.small, self.large = Pool(small=True), Pool(small=False)
        self.firsts: dict[int, Block] = {}
        """First block of every segment, by address."""
        self._addresses = Addresses() if addresses is None else addresses
        self._pages = Pages(self)
        self._pending: dict[int, deque[list[Block | bool]]] = {}

    def allocate(self, requested: int, stream: int = 0) -> Block:
        """Return a block of at least ``requested`` bytes for work on a stream.

        Raises OutOfDeviceMemoryError when it fits into no cached block and the driver has no memory, even after all
        cached blocks went back to it.
        """
        self._collect_passed_events()
        size = self.settings.rounded(requested)
        pool = self.small if size <= LARGEST_SMALL else self.large
        block = self._cached(pool, size, stream)
        if block is None:
            block = self._from_driver(pool, size, stream)
        if block is None:
            raise OutOfDeviceMemoryError(requested, self.statistics)
        return self._use(pool, block, size, requested)

    def free(self, block: Block) -> None:
        """Take a block back; streams that were recorded for it hold it until they reach this moment."""
        block.allocated = False
        self.statistics.allocated_bytes -= block.size
        if not block.used_by:
            self._cache(block)
            return
        for stream in sorted(block.used_by):
            block.events += 1
            self._pending.setdefault(stream, deque()).append([block, False])
        block.used_by.clear()

    def record_stream(self, block: Block, stream: int) -> None:
        """Say that another stream uses a block, as ``Tensor.record_stream`` does."""
        if stream != block.segment.stream:
            block.used_by.add(stream)

    def reach(self, stream: int, count: int | None = None) -> None:
        """Say that a stream has done all work that was queued so far: its events have passed at the next request.

        With a ``count`` so many of its events have, the oldest that had not.
        """
        waiting = (event for event in self._pending.get(stream, ()) if not event[1])
        for event in islice(waiting, count):
            event[1] = True

    def empty_cache(self) -> None:
        """Wait for all events and give all blocks that are not split back, as ``torch.cuda.empty_cache`` does."""
        for stream in list(self._pending):
            self.reach(stream)
        self._collect_passed_events()
        for pool in (self.large, self.small):
            mapped = []
            for block in pool.blocks():
                if block.segment.expandable:
                    mapped.append(block)
                elif not block.is_split:
                    self._release(pool, block)
            for block in mapped:
                self._pages.unmap(pool, block)

    def blocks(self) -> dict[int, list[Block]]:
        """List the blocks of every segment from its first address on, with ranges without memory."""
        segments: dict[int, list[Block]] = {}
        for address, first in sorted(self.firsts.items()):
            blocks = segments[address] = [first]
            while (behind := blocks[-1].behind) is not None:
                blocks.append(behind)
        return segments

    def _collect_passed_events(self) -> None:
        for stream in list(self._pending):
            events = self._pending[stream]
            while events and events[0][1]:
                block = events.popleft()[0]
                assert isinstance(block, Block)
                block.events -= 1
                if not block.events:
                    self._cache(block)
            if not events:
                del self._pending[stream]

    def _cached(self, pool: Pool, size: int, stream: int) -> Block | None:
        """Take the best cached block of a stream out of its pool."""
        pool.searches += 1
        blocks = pool.at_least(stream, size)
        block = next(blocks, None)
        if block is None:
            return None
        if block.segment.expandable:
            # The room that an expandable block could still grow by counts as its size.
            for other in blocks:
                if not block.segment.expandable or _reach(other) >= _reach(block):
                    break
                block = other
        limit = self.settings.max_split_bytes
        rounding = self.settings.max_non_split_rounding_mb * MIB
        if (size < limit <= block.size) or (size >= limit and block.size >= size + rounding):
            return None
        pool.remove(block)
        return block

    def _from_driver(self, pool: Pool, size: int, stream: int) -> Block | None:
        if self.settings.fraction_bytes is not None and self.settings.garbage_collection_threshold > 0:
            self._collect_garbage()
        block = self._new(pool, size, stream)
        if block is None and self._release_oversize(pool, size, stream):
            block = self._new(pool, size, stream)
        if block is None:
            self.empty_cache()
            self.statistics.retries += 1
            block = self._new(pool, size, stream)
        return block

    def _new(self, pool: Pool, size: int, stream: int) -> Block | None:
        """Get memory for a request from the driver; None if it has too little."""
        asked = segment_bytes(size)
        fraction = self.settings.fraction_bytes
        if fraction is not None and self.statistics.reserved_bytes + asked > fraction:
            return None
        if self.settings.expandable_segments:
            return self._pages.block(pool, size, stream)
        if not self.has_room(asked):
            return None
        block = self.segment(asked, stream, pool.small)
        self.statistics.reserve(asked)
        self.statistics.segments += 1
        return block

    def has_room(self, size: int) -> bool:
        """Say if the driver can give ``size`` bytes more."""
        capacity = self.settings.capacity_bytes
        return capacity is None or self.statistics.reserved_bytes + size <= capacity

    def segment(self, size: int, stream: int, small: bool, page: int = 0) -> Block:
        """Return the one block of a new segment; ``page`` is the quantum of memory of an expandable one."""
        address = self._addresses.take(size)
        block = Block(Segment(address, size, stream, small, page), address, size, mapped=not page)
        self.firsts[address] = block
        return block

    def _use(self, pool: Pool, block: Block, size: int, requested: int) -> Block:
        """Bring a block into use, and cache the rest of it where it may be split."""
        was_split, counted = block.is_split, not block.segment.expandable
        if self._splits(pool, block, size):
            rest = Block(block.segment, block.address + size, block.size - size)
            block.size = size
            block.insert_behind(rest)
            pool.add(rest)
            if counted:
                self.statistics.inactive_split_bytes += -size if was_split else rest.size
        elif was_split and counted:
            self.statistics.inactive_split_bytes -= block.size
        block.allocated, block.requested = True, requested
        self.statistics.use(block.size, requested)
        return block

    def _splits(self, pool: Pool, block: Block, size: int) -> bool:
        rest = block.size - size
        if pool.small or self.settings.expandable_segments:
            return rest >= SMALLEST_BLOCK
        return size < self.settings.max_split_bytes and rest > LARGEST_SMALL

    def _cache(self, block: Block) -> None:
        """Put a block that nothing uses into its pool, merged with free neighbours."""
        size, merged = block.size, 0
        pool = self.small if block.segment.small else self.large
        for other in (block.before, block.behind):
            merged += self.merge(pool, block, other)
        pool.add(block)
        if not block.segment.expandable:
            self.statistics.inactive_split_bytes += (block.size if block.is_split else 0) - merged
        self.statistics.active_bytes -= size
        self.statistics.requested_bytes -= block.requested

    def merge(self, pool: Pool, block: Block, other: Block | None) -> int:
        """Make a free neighbour part of a block that is in no pool; return the bytes that it had."""
        if other is None or not other.is_free or other.mapped != block.mapped:
            return 0
        pool.remove(other)
        if other is block.before:
            if other.before is None:
                self.firsts[other.address] = block
            else:
                other.before.behind = block
            block.address, block.before = other.address, other.before
        else:
            if other.behind is not None:
                other.behind.before = block
            block.behind = other.behind
        block.size += other.size
        return other.size

    def _release(self, pool: Pool, block: Block) -> None:
        """Give the segment of a cached block that is not split back to the driver."""
        pool.remove(block)
        del self.firsts[block.address]
        self.statistics.release(block.size)
        self.statistics.segments -= 1

    def _release_oversize(self, pool: Pool, size: int, stream: int) -> bool:
        """Give blocks of ``max_split_size_mb`` or more back, the smallest that suffices or the largest in turn."""
        limit = self.settings.max_split_bytes
        if limit == float("inf"):
            return False
        least = max(size, int(limit))
        block = next(pool.at_least(stream, least), None)
        if block is not None:
            self._release(pool, block)
            return True
        released = 0
        for _, _, block in pool.cached.get(stream, [])[::-1]:
            if released >= least or block.size < limit:
                break
            released += block.size
            self._release(pool, block)
        return released >= least

    def _collect_garbage(self) -> None:
        """Give back large blocks that were cached for longer than their mean, until memory is below the threshold."""
        assert self.settings.fraction_bytes is not None
        threshold = int(self.settings.garbage_collection_threshold * self.settings.fraction_bytes)
        excess, pool = self.statistics.reserved_bytes - threshold, self.large
        ages = {block: pool.searches - block.born for block in pool.blocks()
                if not block.is_split and not block.segment.expandable}
        while excess > 0 and ages:
            mean = sum(ages.values()) / len(ages)
            for block in [block for block, age in ages.items() if age >= mean]:
                excess -= block.size
                del ages[block]
                self._release(pool, block)


def _reach(block: Block) -> int:
    behind = block.behind
    return block.size + (behind.size if behind is not None and not behind.mapped else 0)

