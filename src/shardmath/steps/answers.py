"""The answer of a replay: what the allocator reserves for a rank's steps, and what it cannot give away again."""

from __future__ import annotations

from dataclasses import dataclass

from shardmath.answers import Answer


@dataclass(frozen=True)
class Replay(Answer):
    """Two training steps of the peak rank, allocation by allocation, through a model of PyTorch's allocator."""

    reserved_bytes: int
    """Most bytes that the allocator reserves."""
    allocated_bytes: int
    """Most bytes that are allocated, as they are asked for: the peak of the account."""
    rounding_bytes: int
    """Of what is reserved when it is most: rounding of sizes."""
    awaiting_bytes: int
    """Of it: freed, but held back by another stream."""
    split_bytes: int
    """Of it: free parts of segments that are in use."""
    cached_bytes: int
    """Of it: free segments."""
    segments: int
    """Segments at the end, without expandable ones."""
    retries: int
    """Requests for which all cached segments went back to the driver first."""
    capacity_bytes: int
    """Bytes of the GPU that PyTorch can get: without CUDA context and NCCL."""
    fits: bool
    """False if a request cannot be served; the other numbers are then those of a GPU without end."""
    events: int
    """Allocations and frees that were replayed."""
