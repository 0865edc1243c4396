"""The caching allocator beside a naive program of its rules, and beside values of PyTorch's own tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmath.allocator.caching import CachingAllocator, OutOfDeviceMemoryError
from shardmath.allocator.settings import MIB, Settings
from shardmath.allocator.trace import Action, Event, replay
from shardmath.errors import InputError

SIZES = st.one_of(st.integers(0, 4000), st.integers(1, 2 * MIB), st.integers(1, 60 * MIB))
#: Size to allocate on a stream, or the place of the block to free among those in use.
STEPS = st.lists(st.tuples(st.booleans(), SIZES, st.integers(0, 2), st.integers(0, 100)), max_size=60)


@dataclass
class Naive:
    """Segments as lists of [size, key or None], searched from end to end; written from the rules alone."""

    split_below: int | None = None
    capacity: int | None = None
    segments: list[tuple[int, bool, list[list]]] = field(default_factory=list)

    def reserved(self) -> int:
        return sum(size for _, _, parts in self.segments for size, _ in parts)

    def allocated(self) -> int:
        return sum(size for _, _, parts in self.segments for size, key in parts if key is not None)

    def allocate(self, key: int, requested: int, stream: int) -> bool:
        size = max(512, (requested + 511) // 512 * 512)
        small, large = size <= 1 << 20, self.split_below is not None and size >= self.split_below
        free = [(part[0], number, place) for number, (owner, tiny, parts) in enumerate(self.segments)
                for place, part in enumerate(parts)
                if part[1] is None and owner == stream and tiny == small and part[0] >= size]
        if free and self.split_below is not None:
            best = min(free)[0]
            if (not large and best >= self.split_below) or (large and best >= size + 20 * MIB):
                free = []
        if not free:
            asked = 2 * MIB if small else 20 * MIB if size < 10 * MIB else (size + 2 * MIB - 1) // (2 * MIB) * 2 * MIB
            if self.capacity is not None and self.reserved() + asked > self.capacity:
                self.segments = [segment for segment in self.segments
                                 if len(segment[2]) > 1 or segment[2][0][1] is not None]
                if self.reserved() + asked > self.capacity:
                    return False
            self.segments.append((stream, small, [[asked, None]]))
            free = [(asked, len(self.segments) - 1, 0)]
        _, number, place = min(free)
        parts = self.segments[number][2]
        rest = parts[place][0] - size
        if rest >= 512 if small else rest > MIB and not large:
            parts[place: place + 1] = [[size, key], [rest, None]]
        else:
            parts[place][1] = key
        return True

    def free(self, key: int) -> None:
        for _, _, parts in self.segments:
            for part in parts:
                if part[1] == key:
                    part[1] = None
            for place in range(len(parts) - 1, 0, -1):
                if parts[place][1] is None and parts[place - 1][1] is None:
                    parts[place - 1][0] += parts.pop(place)[0]


def layout(allocator: CachingAllocator) -> list[list[tuple[int, bool]]]:
    return [[(block.size, block.allocated) for block in blocks] for blocks in allocator.blocks().values()]


@pytest.mark.parametrize("capacity", [None, 100 * MIB])
@given(steps=STEPS)
def test_every_segment_and_block_is_that_of_a_naive_program(capacity: int | None, steps: list) -> None:
    allocator, naive, live = CachingAllocator(Settings(capacity_bytes=capacity)), Naive(capacity=capacity), {}
    for key, (frees, size, stream, place) in enumerate(steps):
        if frees and live:
            chosen = sorted(live)[place % len(live)]
            allocator.free(live.pop(chosen))
            naive.free(chosen)
        elif naive.allocate(key, size, stream):
            live[key] = allocator.allocate(size, stream)
        else:
            with pytest.raises(OutOfDeviceMemoryError):
                allocator.allocate(size, stream)
        assert layout(allocator) == [[(size, key is not None) for size, key in parts] for _, _, parts in naive.segments]
        assert allocator.statistics.reserved_bytes == naive.reserved()
        assert allocator.statistics.allocated_bytes == naive.allocated()
        assert allocator.statistics.inactive_split_bytes == sum(
            part[0] for _, _, parts in naive.segments if len(parts) > 1 for part in parts if part[1] is None)


@given(steps=STEPS)
def test_blocks_that_are_not_split_are_those_of_the_naive_program(steps: list) -> None:
    allocator, naive, live = CachingAllocator(Settings(max_split_size_mb=24)), Naive(split_below=24 * MIB), {}
    for key, (frees, size, stream, place) in enumerate(steps):
        if frees and live:
            chosen = sorted(live)[place % len(live)]
            allocator.free(live.pop(chosen))
            naive.free(chosen)
        else:
            assert naive.allocate(key, size, stream)
            live[key] = allocator.allocate(size, stream)
        assert layout(allocator) == [[(size, key is not None) for size, key in parts] for _, _, parts in naive.segments]


@given(steps=STEPS, expandable=st.booleans(), waits=st.lists(st.integers(0, 2), max_size=60))
def test_blocks_tile_their_segments_and_are_counted_once(steps: list, expandable: bool, waits: list[int]) -> None:
    """Also with uses on other streams, expandable segments and too little memory."""
    allocator = CachingAllocator(Settings(expandable_segments=expandable, capacity_bytes=200 * MIB))
    live = []
    for place, (frees, size, stream, chosen) in enumerate(steps):
        if frees and live:
            block = live.pop(chosen % len(live))
            allocator.record_stream(block, stream)
            allocator.free(block)
        else:
            try:
                live.append(allocator.allocate(size, stream))
            except OutOfDeviceMemoryError:
                allocator.empty_cache()
        if place < len(waits):
            allocator.reach(waits[place])
        segments = allocator.blocks()
        blocks = [block for inner in segments.values() for block in inner]
        for inner in segments.values():
            for before, behind in pairwise(inner):
                assert before.address + before.size == behind.address
                assert before.behind is behind
                assert behind.before is before
                assert not (before.is_free and behind.is_free and before.mapped == behind.mapped)
            assert sum(block.size for block in inner) == inner[0].segment.reach
        statistics = allocator.statistics
        assert statistics.reserved_bytes == sum(block.size for block in blocks if block.mapped) <= 200 * MIB
        assert statistics.allocated_bytes == sum(block.size for block in live)
        assert statistics.active_bytes == sum(block.size for block in blocks if not block.is_free)
        assert {id(block) for block in live} == {id(block) for block in blocks if block.allocated}
    for block in live:
        allocator.free(block)
    allocator.empty_cache()
    assert not allocator.statistics.reserved_bytes
    assert not allocator.blocks()


# Requests of `test_allocator_settings` in PyTorch's test/test_cuda.py, rounded by hand as its `power2_div` says; MiB.
@pytest.mark.parametrize(("divisions", "requested", "expected"), [
    (0, 84, 84), (4, 84, 96), (8, 84, 88), (2, 400, 512), (1, 84, 84), (4, 64, 64),
])
def test_powers_of_two_are_divided_as_in_pytorch(divisions: int, requested: int, expected: int) -> None:
    allocator = CachingAllocator(Settings(roundup_power2_divisions=divisions))
    allocator.allocate(requested * MIB)
    assert allocator.statistics.active_bytes == expected * MIB
    assert allocator.statistics.requested_bytes == requested * MIB


def test_what_a_stream_still_uses_is_not_given_away() -> None:
    """As ``test_record_stream`` of PyTorch: the next request gets another address until the stream is done."""
    allocator = CachingAllocator()
    block = allocator.allocate(MIB)
    first = block.address
    allocator.record_stream(block, 1)
    allocator.free(block)
    assert (allocator.statistics.allocated_bytes, allocator.statistics.active_bytes) == (0, MIB)
    assert allocator.allocate(MIB).address != first
    allocator.reach(1)
    assert allocator.allocate(MIB).address == first


def test_a_stream_reaches_its_oldest_events_first() -> None:
    events = [Event(Action.ALLOCATE, key, 30 * MIB) for key in (1, 2)]
    for key in (1, 2):
        events += [Event(Action.RECORD, key, stream=1), Event(Action.FREE, key)]
    one, both = Event(Action.REACH, size=1, stream=1), Event(Action.REACH, stream=1)
    more = [Event(Action.ALLOCATE, key, 30 * MIB) for key in (3, 4)]
    assert replay([*events, *more]).reserved_peak == 120 * MIB
    assert replay([*events, one, *more]).reserved_peak == 90 * MIB
    assert replay([*events, one, one, *more]).reserved_peak == replay([*events, both, *more]).reserved_peak == 60 * MIB


def test_streams_have_pools_of_their_own() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.allocate(30 * MIB, 1))
    allocator.allocate(30 * MIB, 0)
    assert allocator.statistics.reserved_bytes == 60 * MIB


def test_old_blocks_are_collected_above_the_threshold() -> None:
    settings = Settings(garbage_collection_threshold=0.5, fraction_bytes=200 * MIB)
    allocator = CachingAllocator(settings)
    allocator.free(allocator.allocate(60 * MIB))
    kept = allocator.allocate(80 * MIB)
    assert allocator.statistics.reserved_bytes == 140 * MIB
    allocator.allocate(90 * MIB)  # above half of 200 MiB: the cached 60 MiB go back first
    assert allocator.statistics.reserved_bytes == 170 * MIB
    assert allocator.statistics.retries == 0
    assert kept.allocated


def test_expandable_segments_tile_what_fixed_ones_leave_as_holes() -> None:
    """Sizes that grow step by step: PyTorch's reason for expandable segments (note in CUDACachingAllocator.cpp)."""
    reserved = {}
    for expandable in (False, True):
        allocator = CachingAllocator(Settings(expandable_segments=expandable, capacity_bytes=2**35))
        for size in (100, 120, 140):
            blocks = [allocator.allocate(size * MIB) for _ in range(3)]
            for block in blocks:
                allocator.free(block)
        reserved[expandable] = allocator.statistics.reserved_bytes
    assert reserved == {False: 3 * (100 + 120 + 140) * MIB, True: 420 * MIB}


def test_a_replay_has_its_peak_its_rows_and_its_end() -> None:
    events = [
        Event(Action.ALLOCATE, 1, 30 * MIB, row="weights"), Event(Action.ALLOCATE, 2, 50 * MIB, row="saved"),
        Event(Action.FREE, 2), Event(Action.ALLOCATE, 3, 45 * MIB, row="gradients"), Event(Action.EMPTY),
        Event(Action.ALLOCATE, 4, 100 * MIB, row="gathered"),
    ]
    answer = replay(events)
    assert answer.peak.event == 5
    assert answer.holders == {"gathered": 100 * MIB, "gradients": 45 * MIB, "weights": 30 * MIB}
    assert answer.reserved_peak == 180 * MIB
    assert [moment.reserved // MIB for moment in answer.timeline] == [30, 80, 80, 80, 80, 180]
    assert replay(events, Settings(capacity_bytes=150 * MIB)).failed_at == 5


@pytest.mark.parametrize("events", [
    [Event(Action.FREE, 1)], [Event(Action.RECORD, 1)], [Event(Action.ALLOCATE, 1, -1)],
    [Event(Action.ALLOCATE, 1, 1), Event(Action.ALLOCATE, 1, 1)],
])
def test_traces_that_contradict_themselves_are_refused(events: list[Event]) -> None:
    with pytest.raises(InputError, match=r"events\[\d\]"):
        replay(events)


@pytest.mark.parametrize(("field", "value"), [
    ("max_split_size_mb", 20), ("max_non_split_rounding_mb", 19), ("roundup_power2_divisions", 3),
    ("garbage_collection_threshold", 1.0), ("capacity_bytes", 0), ("fraction_bytes", 0),
])
def test_settings_that_pytorch_refuses_are_refused(field: str, value: float) -> None:
    with pytest.raises(InputError, match=field):
        Settings(**{field: value})
