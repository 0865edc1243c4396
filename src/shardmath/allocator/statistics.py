"""Statistics of the allocator, as ``torch.cuda.memory_stats`` names them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Statistics:
    """Bytes and counts now, and at their peaks since the start or the last reset."""

    allocated_bytes: int = 0
    """Bytes of blocks in use."""
    active_bytes: int = 0
    """Bytes of blocks in use, or held back by an event of another stream."""
    requested_bytes: int = 0
    """Bytes of ``active_bytes`` that were asked for, without rounding."""
    reserved_bytes: int = 0
    """Bytes that the driver gave."""
    inactive_split_bytes: int = 0
    """Bytes of cached blocks whose segment is in use in part: they cannot go back to the driver."""
    segments: int = 0
    """Segments that are not expandable."""
    retries: int = 0
    """Requests for which all cached blocks were released."""
    driver_allocations: int = 0
    driver_frees: int = 0
    allocated_peak: int = 0
    active_peak: int = 0
    requested_peak: int = 0
    reserved_peak: int = 0

    @property
    def rounding_bytes(self) -> int:
        """Bytes of blocks in use, or held back, that were not asked for."""
        return self.active_bytes - self.requested_bytes

    @property
    def awaiting_bytes(self) -> int:
        """Bytes of freed blocks that an event of another stream holds back."""
        return self.active_bytes - self.allocated_bytes

    @property
    def cached_bytes(self) -> int:
        """Bytes of cached blocks that can go back to the driver."""
        return self.reserved_bytes - self.active_bytes - self.inactive_split_bytes

    def reserve(self, size: int) -> None:
        """Count memory that the driver gave."""
        self.reserved_bytes += size
        self.driver_allocations += 1
        self.reserved_peak = max(self.reserved_peak, self.reserved_bytes)

    def release(self, size: int) -> None:
        """Count memory that went back to the driver."""
        self.reserved_bytes -= size
        self.driver_frees += 1

    def use(self, size: int, requested: int) -> None:
        """Count a block that came into use."""
        self.allocated_bytes += size
        self.active_bytes += size
        self.requested_bytes += requested
        self.allocated_peak = max(self.allocated_peak, self.allocated_bytes)
        self.active_peak = max(self.active_peak, self.active_bytes)
        self.requested_peak = max(self.requested_peak, self.requested_bytes)

    def reset_peaks(self) -> None:
        """Begin the peaks anew, as ``torch.cuda.reset_peak_memory_stats`` does."""
        self.allocated_peak, self.active_peak = self.allocated_bytes, self.active_bytes
        self.requested_peak, self.reserved_peak = self.requested_bytes, self.reserved_bytes
