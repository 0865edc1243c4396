"""Add up a snapshot: memory by state, what fragmentation costs, and who holds it at the peak of the trace."""

from __future__ import annotations

import os
from collections.abc import Iterable

from shardmath.commands.snapshot.answers import Holder, Snapshot
from shardmath.commands.snapshot.read import MOST, STATES, Part, parts, read_snapshot
from shardmath.errors import InputError

#: Segments that are listed.
LISTED = 10


def snapshot(path: str | os.PathLike[str], device: int = 0) -> Snapshot:
    """Read the snapshot of PyTorch's memory at ``path``, for the GPU of index ``device``.

    Nothing in the file is imported or called. Raises InputError for what is no snapshot, and for a GPU that it lacks.
    """
    values = read_snapshot(path)
    segments = [part for part in parts("segments", values["segments"]) if part.values.get("device", 0) == device]
    traces = values.get("device_traces", [])
    if not isinstance(traces, list):
        raise InputError("device_traces", traces, "must be a list")
    trace = list(parts(f"device_traces[{device}]", traces[device])) if 0 <= device < len(traces) else []
    if not segments and not trace:
        raise InputError("device", device, "must be the index of a GPU that the snapshot has memory or a trace of")
    return _added(segments, trace)


def _added(segments: list[Part], trace: list[Part]) -> Snapshot:
    states = dict.fromkeys(STATES, 0)
    rounding = split = cached = small = read = 0
    for segment in segments:
        blocks = list(segment.parts("blocks"))
        read += len(blocks)
        if read > MOST:
            raise InputError("segments", read, f"must have at most {MOST} blocks")
        free = used = 0
        for block in blocks:
            size, state = block.number("size"), block.word("state")
            if state not in STATES:
                raise InputError(f"{block.field}.state", state, f"must be one of {', '.join(STATES)}")
            states[state] += size
            free += size if state == "inactive" else 0
            used += state != "inactive"
            rounding += size - block.number("requested_size") if state == "active_allocated" else 0
        if free + sum(block.number("size") for block in blocks if block.word("state") != "inactive") != segment.number(
                "total_size"):
            raise InputError(f"{segment.field}.total_size", segment.number("total_size"), "must be that of its blocks")
        split, cached = (split + free, cached) if used else (split, cached + free)
        small += free if segment.word("segment_type") == "small" else 0
    sizes = sorted((segment.number("total_size") for segment in segments), reverse=True)
    walk = _Walk(trace)
    return Snapshot(
        sum(sizes), states["active_allocated"], states["active_awaiting_free"] + states["active_pending_free"],
        rounding, split, cached, small, len(sizes), tuple(sizes[:LISTED]), len(trace), _is_whole(segments, trace, walk),
        walk.peak, walk.reserved_peak, tuple(walk.holders),
    )


def _is_whole(segments: Iterable[Part], trace: list[Part], walk: _Walk) -> bool:
    """Check that the trace makes every byte of the segments and of the blocks in use, and frees no other."""
    reserved = sum(segment.number("total_size") for segment in segments)
    requested = sum(block.number("requested_size") for segment in segments for block in segment.parts("blocks")
                    if block.word("state") == "active_allocated")
    return bool(trace) and not walk.foreign and walk.reserved == reserved and walk.allocated == requested


class _Walk:
    """Sums over the entries of a trace, in their order."""

    def __init__(self, trace: list[Part]) -> None:
        self.allocated = self.peak = self.reserved = self.reserved_peak = 0
        self.foreign = False
        """True if memory was freed whose allocation the trace does not have."""
        live: dict[int, Part] = {}
        at_peak = -1
        for place, entry in enumerate(trace):
            action = entry.word("action")
            if action == "alloc":
                live[entry.number("addr")] = entry
                self.allocated += entry.number("size")
                if self.allocated > self.peak:
                    self.peak, at_peak = self.allocated, place
            elif action == "free_requested":
                if live.pop(entry.number("addr"), None) is None:
                    self.foreign = True
                else:
                    self.allocated -= entry.number("size")
            elif action in ("segment_alloc", "segment_map"):
                self.reserved += entry.number("size")
                self.reserved_peak = max(self.reserved_peak, self.reserved)
            elif action in ("segment_free", "segment_unmap"):
                self.reserved -= entry.number("size")
        self.holders = _holders(trace[: at_peak + 1])


def _holders(trace: list[Part]) -> list[Holder]:
    live: dict[int, Part] = {}
    for entry in trace:
        action = entry.word("action")
        if action == "alloc":
            live[entry.number("addr")] = entry
        elif action == "free_requested":
            live.pop(entry.number("addr"), None)
    stacks: dict[tuple[str, ...], tuple[int, int]] = {}
    for entry in live.values():
        stack = entry.stack()
        size, count = stacks.get(stack, (0, 0))
        stacks[stack] = size + entry.number("size"), count + 1
    held = [Holder(stack, size, count) for stack, (size, count) in stacks.items()]
    return sorted(held, key=lambda holder: (-holder.bytes, holder.stack))
