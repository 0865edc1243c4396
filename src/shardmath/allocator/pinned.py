"""PyTorch's allocator of pinned memory on a host: each block is a power of two of bytes, and stays when it is freed.

By ``ATen/core/CachingHostAllocator.h`` of PyTorch 2.13, without thresholds for rounding and caching.
"""

from __future__ import annotations

from collections import Counter


class PinnedAllocator:
    """Blocks of one process; ``total`` are the bytes of all, used or free."""

    def __init__(self) -> None:
        self.total = 0
        self._free: Counter[int] = Counter()

    def allocate(self, size: int) -> int:
        """Return the bytes of the block for a tensor: a free one as large, or else a new one. No bytes need none."""
        block = 1 << (size - 1).bit_length() if size else 0
        if self._free[block]:
            self._free[block] -= 1
        else:
            self.total += block
        return block

    def free(self, block: int) -> None:
        """Take a block back, for later tensors."""
        self._free[block] += 1
