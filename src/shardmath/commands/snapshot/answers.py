"""The answer of ``snapshot``: memory of one GPU as PyTorch recorded it."""

from __future__ import annotations

from dataclasses import dataclass

from shardmath.answers import Answer, Drawn, Hidden


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
class RowFound(Answer):
    """One row of the ledger at the predicted peak, beside the measured tensors that are attributed to it."""

    row: str
    """Row, or state of the optimizer or of gradients."""
    role: str
    """Why the rank keeps it."""
    predicted_bytes: int
    """Bytes that the replay of the run holds at its peak."""
    measured_bytes: int
    """Bytes of attributed tensors at the peak of the trace."""
    difference_bytes: int
    """Predicted minus measured."""
    predicted_tensors: int
    """Allocations of the replay."""
    measured_tensors: int
    """Allocations that are attributed."""
    ways: tuple[str, ...]
    """Ways in which they are, the surest first: by size, rounded size, size within 3 % or stack."""
    stack: tuple[str, ...]
    """Stack that holds most of it; empty where none is attributed, or none was recorded."""


@dataclass(frozen=True)
class Fullest(Answer):
    """Memory by cause at the moment of a replay at which most is reserved."""

    reserved_bytes: int
    """Memory of all segments: the sum of the next, of what waits and of both kinds of free memory."""
    allocated_bytes: int
    """Blocks in use."""
    rounding_bytes: int
    """Bytes of blocks in use, or waiting, that were not asked for."""
    awaiting_bytes: int
    """Freed, but held back by another stream."""
    split_bytes: int
    """Free parts of segments that are in use."""
    cached_bytes: int
    """Free segments, and all free memory of expandable ones."""


@dataclass(frozen=True)
class Predicted(Answer):
    """Memory of the run as the ledger has it, on the pipeline rank that is compared."""

    rank: int
    """Pipeline rank."""
    allocated_bytes: int
    """Peak of what is asked for."""
    fullest: Fullest | None
    """The replay when most is reserved; null with options of the allocator that are not modelled yet."""


@dataclass(frozen=True)
class Grown(Answer):
    """One stack, or one row, in two snapshots."""

    name: str
    """Frames with ` < ` between them, or the row."""
    before_bytes: int
    """Bytes at the peak of the first."""
    after_bytes: int
    """Bytes at the peak of the second."""
    grown_bytes: int
    """Second minus first."""


@dataclass(frozen=True)
class Second(Answer):
    """A second snapshot beside the first."""

    reserved_bytes: int
    """Memory of all segments."""
    peak_allocated_bytes: int
    """Largest sum of sizes asked for and not yet freed, in the trace."""
    peak_reserved_bytes: int
    """Largest memory of segments in the trace."""
    stacks: tuple[Grown, ...]
    """Stacks whose memory differs, the largest difference first."""
    rows: tuple[Grown, ...]
    """Rows whose memory differs, if a run is compared."""


@dataclass(frozen=True)
class Snapshot(Drawn, room="snapshot", table="holders"):
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
    other_streams_bytes: int
    """Free memory in pools of other streams than that of most segments: its work cannot use it. Counted above too."""
    segments: int
    """Segments."""
    largest_segments: tuple[int, ...]
    """Bytes of the largest segments, largest first."""
    events: int
    """Entries of the trace; 0: no history was recorded."""
    is_whole: bool
    """True if the trace begins before the first allocation: then the peak below is that of the process."""
    peak_allocated_bytes: int
    """Largest sum of sizes asked for and not yet freed, from the first entry of the trace on, with all before it."""
    peak_block_bytes: int
    """Largest sum of blocks for them, as `torch.cuda.max_memory_allocated()` counts."""
    peak_reserved_bytes: int
    """Largest memory of segments from the first entry of the trace on."""
    holders: tuple[Holder, ...]
    """Stacks that hold memory at the peak of the trace, largest first."""
    replayed: Fullest | None
    """The trace through the model of the allocator; null without a trace, or if its options are not modelled yet."""
    replay_unknown: str
    """Why nothing is replayed."""
    predicted: Predicted | None
    """The run that the snapshot is compared with; null if none is named."""
    rows: tuple[RowFound, ...]
    """Rows of the ledger beside what is attributed to them."""
    unexplained: tuple[Holder, ...]
    """Stacks of tensors at the peak that belong to no row, largest first."""
    second: Second | None
    """A second snapshot; null if none is read."""
    timeline: Hidden[tuple[tuple[int, int], ...]]
    """Bytes asked for and reserved after every entry of the trace."""
    predicted_timeline: Hidden[tuple[tuple[int, int], ...]]
    """The same of the replay of the run."""
