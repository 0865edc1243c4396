"""Memory over a snapshot's trace: what was there before it, every moment of it, and what was in use at its peak."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from shardmath.allocator.blocks import Given
from shardmath.allocator.settings import SMALLEST_BLOCK
from shardmath.allocator.trace import Action, Event
from shardmath.commands.snapshot.read import Part

MADE, FREED, PASSED = "alloc", "free_requested", "free_completed"
#: Entries that add to what is reserved, and those that take from it.
GROWS, SHRINKS = ("segment_alloc", "segment_map"), ("segment_free", "segment_unmap")
#: Keys of streams that hold one freed block back each, above all that PyTorch has.
_HOLDING = 2**64


@dataclass(frozen=True, slots=True)
class Tensor:
    """An allocation that is in use: bytes that were asked for, its stack, its stream, and its entry of the trace."""

    size: int
    stack: tuple[str, ...]
    stream: int = 0
    born: int = -1
    """Place of its entry; negative if the trace begins later."""


class Walk:
    """Sums over the entries of a trace, in their order, on top of what was there before the first."""

    def __init__(self, segments: Sequence[Part], trace: Sequence[Part]) -> None:
        self._trace = trace
        self._stacks: dict[int, tuple[str, ...]] = {}
        self._before = self._first(segments)
        self.allocated = sum(tensor.size for _, tensor in self._before)
        reserved = sum(part.number("total_size") for part in segments)
        self.reserved = reserved - sum(_grown(entry) for entry in trace)
        self.is_whole = bool(trace) and not self._before and not self.reserved
        """True if the trace makes every byte that is there, and frees no other."""
        self.peak, self.reserved_peak, self._at_peak = self.allocated, self.reserved, -1
        rounded = sum(_rounded(tensor.size) for _, tensor in self._before)
        self.rounded_peak = rounded
        self.timeline: list[tuple[int, int]] = []
        """Bytes asked for and reserved after every entry."""
        for place, entry in enumerate(trace):
            change, block = _asked(entry)
            self.allocated += change
            rounded += block
            self.reserved += _grown(entry)
            if self.allocated > self.peak:
                self.peak, self._at_peak = self.allocated, place
            self.rounded_peak = max(self.rounded_peak, rounded)
            self.reserved_peak = max(self.reserved_peak, self.reserved)
            self.timeline.append((self.allocated, self.reserved))

    @cached_property
    def tensors(self) -> list[Tensor]:
        """Allocations in use at the first peak of what was asked for, in the order in which they were made."""
        live = dict(self._before)
        for place, entry in enumerate(self._trace[: self._at_peak + 1]):
            if entry.word("action") == MADE:
                live[entry.number("addr")] = self._tensor(entry, place)
            elif entry.word("action") == FREED:
                live.pop(entry.number("addr"), None)
        return sorted(live.values(), key=lambda tensor: tensor.born)

    def events(self) -> Iterator[Event]:
        """Yield the trace for a replay; what another stream holds back passes where the trace says that it did."""
        keys: dict[int, int] = {}
        for key, (start, tensor) in enumerate(self._before):
            keys[start] = key
            yield Event(Action.ALLOCATE, key, tensor.size, tensor.stream)
        held: dict[int, int] = {}
        releasing = False
        for place, entry in enumerate(self._trace):
            action = entry.word("action")
            address = entry.number("addr") if action in (MADE, FREED, PASSED) else -1
            if action in SHRINKS and not releasing:
                yield Event(Action.EMPTY)
            releasing = action in SHRINKS
            if action == MADE:
                key = keys[address] = len(self._before) + place
                yield Event(Action.ALLOCATE, key, entry.number("size"), _stream(entry))
            elif action == FREED and address in keys:
                key = keys.pop(address)
                behind = self._trace[place + 1] if place + 1 < len(self._trace) else None
                if behind is None or behind.word("action") != PASSED or behind.values.get("addr") != address:
                    held[address] = _HOLDING + key
                    yield Event(Action.RECORD, key, stream=_HOLDING + key)
                yield Event(Action.FREE, key)
            elif action == PASSED and address in held:
                yield Event(Action.REACH, stream=held.pop(address))

    def addresses(self) -> Given:
        """Return where the driver put the segments of a whole trace; nothing is known of those made before."""
        made = (entry for entry in self._trace if self.is_whole and entry.word("action") == GROWS[0])
        return Given((entry.number("addr"), entry.number("size")) for entry in made)

    def _first(self, segments: Iterable[Part]) -> list[tuple[int, Tensor]]:
        """List what was in use before the first entry: no entry makes it, and one frees it or it is still there."""
        live: set[int] = set()
        before: list[tuple[int, Tensor]] = []
        for entry in self._trace:
            action = entry.word("action")
            if action == MADE:
                live.add(entry.number("addr"))
            elif action == FREED:
                address = entry.number("addr")
                if address not in live:
                    before.append((address, Tensor(entry.number("size"), (), _stream(entry))))
                live.discard(address)
        for address, stream, block in _blocks(segments):
            if block.word("state") == "active_allocated" and address not in live:
                before.append((address, Tensor(block.number("requested_size"), self._stack(block), stream)))
        return sorted(before, key=lambda item: item[0])

    def _tensor(self, entry: Part, place: int) -> Tensor:
        return Tensor(entry.number("size"), self._stack(entry), _stream(entry), place)

    def _stack(self, part: Part) -> tuple[str, ...]:
        """Return a stack; lists of frames that the pickle shares are read once."""
        frames = part.values.get("frames")
        if id(frames) not in self._stacks:
            self._stacks[id(frames)] = part.stack()
        return self._stacks[id(frames)]


def _blocks(segments: Iterable[Part]) -> Iterator[tuple[int, int, Part]]:
    """Yield address, stream and entry of every block; old snapshots have addresses of segments alone."""
    for segment in segments:
        address = segment.number("address")
        for block in segment.parts("blocks"):
            yield block.values.get("address") or address, _stream(segment), block
            address += block.number("size")


def _stream(part: Part) -> int:
    return part.number("stream") if "stream" in part.values else 0


def _asked(entry: Part) -> tuple[int, int]:
    """Return the change of what is asked for, and of the blocks for it."""
    action = entry.word("action")
    sign = {MADE: 1, FREED: -1}.get(action, 0)
    size = entry.number("size") if sign else 0
    return sign * size, sign * _rounded(size)


def _rounded(size: int) -> int:
    return -(-size // SMALLEST_BLOCK) * SMALLEST_BLOCK


def _grown(entry: Part) -> int:
    action = entry.word("action")
    if action in GROWS:
        return entry.number("size")
    return -entry.number("size") if action in SHRINKS else 0
