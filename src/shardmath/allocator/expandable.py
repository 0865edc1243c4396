"""Expandable segments: ranges of addresses to which memory is mapped in pages, and from which it is unmapped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardmath.allocator.blocks import Block, Pool
from shardmath.allocator.settings import LARGE_SEGMENT, SMALL_SEGMENT

if TYPE_CHECKING:
    from shardmath.allocator.caching import CachingAllocator

#: Bytes of a range of addresses where the memory of the GPU has no bound.
UNBOUNDED = 2**48


class Pages:
    """Map and unmap the memory of an allocator's expandable segments.

    A page has 2 MiB in the small pool and 20 MiB in the large one. A segment has addresses for 9/8 of the GPU's memory.
    """

    def __init__(self, allocator: CachingAllocator) -> None:
        self._allocator = allocator

    def block(self, pool: Pool, size: int, stream: int) -> Block | None:
        """Return a free block of at least ``size`` bytes in no pool, at the lowest address; None without memory."""
        block = self._lowest(pool, size, stream)
        if not block.mapped and not self._map(pool, block, min(block.size, size)):
            return None
        while block.size < size:
            behind = block.behind
            assert behind is not None
            if not self._map(pool, behind, min(size - block.size, behind.size)):
                return None
            block = behind
        pool.remove(block)
        return block

    def unmap(self, pool: Pool, block: Block) -> None:
        """Give the whole pages of a cached block back to the driver."""
        page, start = block.segment.page, block.segment.address
        low = start + -(-(block.address - start) // page) * page
        high = start + (block.address + block.size - start) // page * page
        if low >= high:
            return
        pool.remove(block)
        before, behind = low - block.address, block.address + block.size - high
        if before:
            kept = Block(block.segment, block.address, before)
            if block.before is None:
                self._allocator.firsts[block.address] = kept
            else:
                block.before.behind = kept
            kept.before, kept.behind, block.before = block.before, block, kept
            pool.add(kept)
        if behind:
            kept = Block(block.segment, high, behind)
            block.insert_behind(kept)
            pool.add(kept)
        block.address, block.size, block.mapped = low, high - low, False
        self._allocator.statistics.release(block.size)
        for other in (block.before, block.behind):
            self._allocator.merge(pool, block, other)
        if block.is_split:
            pool.add(block)
        else:
            del self._allocator.firsts[block.address]

    def _lowest(self, pool: Pool, size: int, stream: int) -> Block:
        for _, unmapped in pool.unmapped.get(stream, []):
            block = unmapped
            if block.before is not None and block.before.is_free:
                block = block.before
            if _room(block, size) >= size:
                return block
        page = SMALL_SEGMENT if pool.small else LARGE_SEGMENT
        capacity = self._allocator.settings.capacity_bytes
        reach = UNBOUNDED if capacity is None else capacity + capacity // 8
        block = self._allocator.segment(-(-reach // page) * page, stream, pool.small, page)
        pool.add(block)
        return block

    def _map(self, pool: Pool, block: Block, size: int) -> bool:
        """Map pages at the start of a range without memory, merge it with free neighbours and cache it."""
        page = block.segment.page
        mapped = -(-size // page) * page
        if not self._allocator.has_room(mapped):
            return False
        pool.remove(block)
        block.mapped = True
        if mapped < block.size:
            rest = Block(block.segment, block.address + mapped, block.size - mapped, mapped=False)
            block.size = mapped
            block.insert_behind(rest)
            pool.add(rest)
        for other in (block.before, block.behind):
            self._allocator.merge(pool, block, other)
        pool.add(block)
        self._allocator.statistics.reserve(mapped)
        return True


def _room(block: Block, enough: int) -> int:
    """Add up the free bytes from a block on, with and without memory, until they are enough."""
    room = 0
    behind: Block | None = block
    while behind is not None and behind.is_free and room < enough:
        room += behind.size
        behind = behind.behind
    return room
