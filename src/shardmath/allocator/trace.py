"""Traces: allocations and frees in their order, named after rows of the ledger, and their replay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from shardmath.allocator.blocks import Addresses, Block
from shardmath.allocator.caching import CachingAllocator, OutOfDeviceMemoryError
from shardmath.allocator.settings import Settings
from shardmath.allocator.statistics import Statistics
from shardmath.errors import InputError


class Action(Enum):
    """Kinds of events."""

    ALLOCATE = "allocate"
    FREE = "free"
    RECORD = "record_stream"
    REACH = "reach"
    EMPTY = "empty_cache"


class Event(NamedTuple):
    """One event: ``key`` tells tensors apart, ``row`` names the row of the ledger that a tensor belongs to."""

    action: Action
    key: int = 0
    size: int = 0
    """Bytes that ``ALLOCATE`` asks for; events that ``REACH`` is about, the oldest ones, 0 for all."""
    stream: int = 0
    row: str = ""


class Moment(NamedTuple):
    """Memory after an event; bytes."""

    event: int
    allocated: int
    active: int
    reserved: int


@dataclass
class Replay:
    """Memory over a trace."""

    allocator: CachingAllocator
    timeline: list[Moment] = field(default_factory=list)
    """Memory after every event."""
    holders: dict[str, int] = field(default_factory=dict)
    """Bytes in use by rows, largest first, after the event at which most is allocated for the first time."""
    fullest: Statistics = field(default_factory=Statistics)
    """Statistics after the event at which most was reserved for the first time."""
    failed_at: int | None = None
    """Event that ran out of memory, at which the replay ends; None: none did."""

    @property
    def peak(self) -> Moment:
        """The first moment at which most is allocated."""
        return max(self.timeline, key=lambda moment: moment.allocated, default=Moment(-1, 0, 0, 0))

    @property
    def reserved_peak(self) -> int:
        """Most bytes that were reserved, during events too."""
        return self.allocator.statistics.reserved_peak


def replay(
    events: Sequence[Event], settings: Settings = Settings(), addresses: Addresses | None = None,  # noqa: B008
) -> Replay:
    """Replay a trace through a new allocator, whose segments lie at ``addresses``; a request without memory ends it.

    Raises InputError for a key that is allocated twice or used while it is not allocated, and for negative sizes.
    """
    answer = Replay(CachingAllocator(settings, addresses))
    allocator, blocks = answer.allocator, dict[int, Block]()
    sizes: dict[int, int] = {}
    for place, event in enumerate(events):
        _check(place, event, blocks)
        match event.action:
            case Action.ALLOCATE:
                try:
                    block = blocks[event.key] = allocator.allocate(event.size, event.stream)
                except OutOfDeviceMemoryError:
                    answer.failed_at = place
                    break
                sizes[place] = block.size
            case Action.FREE:
                allocator.free(blocks.pop(event.key))
            case Action.RECORD:
                allocator.record_stream(blocks[event.key], event.stream)
            case Action.REACH:
                allocator.reach(event.stream, event.size or None)
            case Action.EMPTY:
                allocator.empty_cache()
        statistics = allocator.statistics
        if statistics.reserved_bytes > answer.fullest.reserved_bytes:
            answer.fullest = replace(statistics)
        answer.timeline.append(Moment(
            place, statistics.allocated_bytes, statistics.active_bytes, statistics.reserved_bytes,
        ))
    answer.holders = _holders(events[: answer.peak.event + 1], sizes)
    return answer


def _check(place: int, event: Event, blocks: dict[int, Block]) -> None:
    if event.action is Action.ALLOCATE:
        if event.key in blocks:
            raise InputError(f"events[{place}].key", event.key, "must not be allocated twice")
        if event.size < 0:
            raise InputError(f"events[{place}].size", event.size, "must be at least 0", "0")
    elif event.action in (Action.FREE, Action.RECORD) and event.key not in blocks:
        raise InputError(f"events[{place}].key", event.key, "must be allocated")


def _holders(events: Iterable[Event], sizes: dict[int, int]) -> dict[str, int]:
    """Add up the bytes of blocks that are in use after the events, by row; ``sizes`` has them by event."""
    live: dict[int, tuple[str, int]] = {}
    for place, event in enumerate(events):
        if event.action is Action.ALLOCATE:
            live[event.key] = event.row, sizes[place]
        elif event.action is Action.FREE:
            del live[event.key]
    rows: dict[str, int] = {}
    for row, size in live.values():
        rows[row] = rows.get(row, 0) + size
    return dict(sorted(rows.items(), key=lambda held: (-held[1], held[0])))
