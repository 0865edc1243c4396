"""A snapshot in the terminal: memory by state, fragmentation, and the stacks that hold most at the peak."""

from __future__ import annotations

from shardmath.commands.snapshot.answers import Snapshot
from shardmath.reports.tables import console, table

#: Stacks and frames of each that are shown.
STACKS, FRAMES = 10, 3


def show(answer: Snapshot) -> None:
    """Print a snapshot."""
    rows = [
        ("reserved", answer.reserved_bytes), ("  allocated", answer.allocated_bytes),
        ("    of it rounding", answer.rounding_bytes), ("  waits for another stream", answer.awaiting_bytes),
        ("  free in segments in use", answer.split_bytes), ("  free in whole segments", answer.cached_bytes),
        ("  free in the small pool, counted above", answer.small_pool_bytes),
    ]
    out = console()
    out.print(table(("memory", "bytes", "GiB"), [(name, f"{size:,}", _gib(size)) for name, size in rows], right=(1, 2)))
    largest = ", ".join(_gib(size) for size in answer.largest_segments)
    out.print(f"{answer.segments:,} segments; the largest, GiB: {largest}", soft_wrap=True)
    if not answer.events:
        out.print("The snapshot has no trace: torch.cuda.memory._record_memory_history() was not called.")
        return
    out.print(f"{answer.events:,} entries of the trace, "
              f"{'the whole history' if answer.is_whole else 'a part of the history'}; peak of what was asked for: "
              f"{_gib(answer.peak_allocated_bytes)} GiB, of what was reserved: {_gib(answer.peak_reserved_bytes)} GiB",
              soft_wrap=True)
    out.print(table(("GiB at the peak", "tensors", "stack"), [
        (_gib(holder.bytes), f"{holder.tensors:,}", " < ".join(holder.stack[:FRAMES]) or "no frames recorded")
        for holder in answer.holders[:STACKS]
    ], right=(0, 1)))


def _gib(size: int) -> str:
    return f"{size / 2**30:.3f}"
