"""Add up a snapshot: memory by state, what fragmentation costs, who holds it at the peak, and what the ledger says."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from shardmath.account.configured import Configuration
from shardmath.allocator.settings import Settings
from shardmath.allocator.trace import replay
from shardmath.commands.snapshot.answers import Snapshot
from shardmath.commands.snapshot.compared import beside
from shardmath.commands.snapshot.matched import attributed, holders
from shardmath.commands.snapshot.predicted import fullest, prediction
from shardmath.commands.snapshot.read import MOST, STATES, Part, parts, read_snapshot
from shardmath.commands.snapshot.walk import Walk
from shardmath.errors import InputError

#: Segments that are listed.
LISTED = 10


def snapshot(
    path: str | os.PathLike[str], device: int = 0, *, second: str | os.PathLike[str] | None = None,
    configuration: Configuration | None = None, rank: int | None = None,
) -> Snapshot:
    """Read the snapshot of PyTorch's memory at ``path``, for the GPU of index ``device``.

    With a ``configuration`` tensors at the peak are attributed to rows of the ledger on pipeline rank ``rank``, or on
    the one that needs most; with a ``second`` snapshot stacks and rows are compared. Nothing in a file is imported or
    called. Raises InputError for what is no snapshot, for a GPU that it lacks, and for a run whose steps are not
    replayed yet.
    """
    first = _read(path, device, configuration, rank)
    return first if second is None else beside(first, _read(second, device, configuration, rank))


def _read(
    path: str | os.PathLike[str], device: int, configuration: Configuration | None, rank: int | None,
) -> Snapshot:
    values = read_snapshot(path)
    segments = [part for part in parts("segments", values["segments"]) if part.values.get("device", 0) == device]
    traces = values.get("device_traces", [])
    if not isinstance(traces, list):
        raise InputError("device_traces", traces, "must be a list")
    trace = list(parts(f"device_traces[{device}]", traces[device])) if 0 <= device < len(traces) else []
    if not segments and not trace:
        raise InputError("device", device, "must be the index of a GPU that the snapshot has memory or a trace of")
    states = _added(segments)
    sizes = sorted((segment.number("total_size") for segment in segments), reverse=True)
    walk = Walk(segments, trace)
    settings, unknown = _settings(values, segments)
    replayed = None
    if trace and settings is not None:
        replayed = fullest(replay(list(walk.events()), settings, walk.addresses()))
    predicted = None if configuration is None else prediction(configuration, rank, settings)
    rows, others = ((), ()) if predicted is None else attributed(predicted.expected, walk.tensors)
    return Snapshot(
        sum(sizes), *states, len(sizes), tuple(sizes[:LISTED]), len(trace), walk.is_whole, walk.peak,
        walk.rounded_peak, walk.reserved_peak, tuple(holders(walk.tensors)), replayed, unknown,
        None if predicted is None else predicted.answer, rows, others, None, tuple(walk.timeline),
        () if predicted is None else predicted.timeline,
    )


def _added(segments: list[Part]) -> tuple[int, int, int, int, int, int, int]:
    """Return bytes in use, waiting, and lost to rounding; free ones by kind, of the small pool and of other streams."""
    states = dict.fromkeys(STATES, 0)
    rounding = split = cached = small = read = 0
    streams: dict[int, tuple[int, int]] = {}
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
        total = segment.number("total_size")
        if sum(block.number("size") for block in blocks) != total:
            raise InputError(f"{segment.field}.total_size", total, "must be that of its blocks")
        split, cached = (split + free, cached) if used else (split, cached + free)
        small += free if segment.word("segment_type") == "small" else 0
        stream = segment.number("stream") if "stream" in segment.values else 0
        before = streams.get(stream, (0, 0))
        streams[stream] = before[0] + total, before[1] + free
    others = sorted(streams.values(), reverse=True)[1:]
    return (states["active_allocated"], states["active_awaiting_free"] + states["active_pending_free"], rounding, split,
            cached, small, sum(free for _, free in others))


def _settings(values: dict[str, Any], segments: Iterable[Part]) -> tuple[Settings | None, str]:
    """Return the options of the allocator, or None and why they are not modelled; old snapshots say none."""
    recorded = values.get("allocator_settings")
    text = recorded.get("PYTORCH_CUDA_ALLOC_CONF") if isinstance(recorded, dict) else None
    try:
        if isinstance(text, str) and text:
            return Settings.parsed(text), ""
    except InputError as error:
        return None, str(error)
    return Settings(expandable_segments=any(part.values.get("is_expandable") is True for part in segments)), ""
