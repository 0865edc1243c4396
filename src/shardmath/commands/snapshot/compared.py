"""Two snapshots side by side: stacks and rows whose memory at the peak differs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from shardmath.commands.snapshot.answers import Grown, Second, Snapshot


def beside(first: Snapshot, second: Snapshot) -> Snapshot:
    """Return the first snapshot with what differs in the second, the largest difference first."""
    stacks = _grown({" < ".join(item.stack): item.bytes for item in first.holders},
                    {" < ".join(item.stack): item.bytes for item in second.holders})
    rows = _grown({item.row: item.measured_bytes for item in first.rows},
                  {item.row: item.measured_bytes for item in second.rows})
    return replace(first, second=Second(
        second.reserved_bytes, second.peak_allocated_bytes, second.peak_reserved_bytes, stacks, rows,
    ))


def _grown(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[Grown, ...]:
    names = dict.fromkeys([*before, *after])
    listed = [Grown(name, before.get(name, 0), after.get(name, 0), after.get(name, 0) - before.get(name, 0))
              for name in names]
    return tuple(sorted((item for item in listed if item.grown_bytes),
                        key=lambda item: (-abs(item.grown_bytes), item.name)))
