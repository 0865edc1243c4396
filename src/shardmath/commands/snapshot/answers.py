"""The answer of ``snapshot``: memory of one GPU as PyTorch recorded it."""

from __future__ import annotations

from dataclasses import dataclass

from shardmath.answers import Answer


@dataclass(frozen=True)
class Holder(Answer):
    """Memory that one stack holds at the peak of the trace."""

    stack: tuple[str, ...]
    """Frames, innermost first: file, line and function; empty where none was recorded."""
    bytes: int
    """Bytes that were asked for."""
    tensors: int
    """Allocations."""


@dataclass(frozen=True)
class Snapshot(Answer):
    """Memory of one GPU when the snapshot was taken, and over its trace."""

    reserved_bytes: int
    """Memory of all segments."""
    allocated_bytes: int
    """Memory of blocks in use."""
    awaiting_bytes: int
    """Memory of freed blocks that wait for another stream."""
    rounding_bytes: int
    """Bytes of blocks in use that were not asked for."""
    split_bytes: int
    """Free memory in segments that are in use in part: it cannot go back to the driver."""
    cached_bytes: int
    """Free memory of whole segments, which `torch.cuda.empty_cache()` would give back."""
    small_pool_bytes: int
    """Free memory of the small pool, counted in one of the two above too."""
    segments: int
    """Segments."""
    largest_segments: tuple[int, ...]
    """Bytes of the largest segments, largest first."""
    events: int
    """Entries of the trace; 0: no history was recorded."""
    is_whole: bool
    """True if the trace begins before the first allocation: then the peak below is that of the process."""
    peak_allocated_bytes: int
    """Largest sum of sizes asked for and not yet freed, in the trace."""
    peak_reserved_bytes: int
    """Largest memory of segments in the trace."""
    holders: tuple[Holder, ...]
    """Stacks that hold memory at the peak of the trace, largest first."""
