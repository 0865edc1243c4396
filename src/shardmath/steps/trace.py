"""The events of a trace, written one after another: allocations, frees, and what other streams still hold back."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from shardmath.allocator.trace import Action, Event

#: Streams whose work holds frees back: of tensor parallelism, of what is sent between pipeline stages, and of tokens
#: that are sent to experts.
TENSOR, PIPELINE, EXPERTS = 1, 2, 6
#: Streams with memory of their own: on which FSDP2 gathers parameters, on which it reduces gradients, and on which
#: context parallelism puts in order what arrives.
GATHER, REDUCE, EXCHANGE = 3, 4, 5
#: Allocations after which the events of a deferred free have passed: the host runs ahead of the GPU by as many, also
#: over the end of a step. Fitted to nanotron's runs with TP 2; no other number here is fitted.
LAG = 900


class Trace:
    """Events in their order, with the bytes that are in use."""

    def __init__(self, lag: int = LAG) -> None:
        self.events: list[Event] = []
        self.now = self.peak = 0
        """Bytes as they are asked for, without rounding: now, and most of all."""
        self.stream = 0
        """Stream of allocations that do not name one."""
        self.point = self.peak_point = ""
        """Point of the step: now, and where most is in use."""
        self._peak_event = 0
        self._lag, self._count = lag, 0
        self._sizes: dict[int, int] = {}
        self._used: dict[int, int] = {}
        self._deferred: deque[tuple[int, int]] = deque()

    def allocate(self, size: int, row: str, stream: int | None = None) -> int:
        """Allocate bytes for a row; return the key of the tensor. Nothing is allocated for 0 bytes."""
        self._count += 1
        while self._deferred and self._deferred[0][0] <= self._count:
            self._reach_oldest()
        key = self._count
        self._sizes[key] = size
        if size:
            self.events.append(Event(Action.ALLOCATE, key, size, self.stream if stream is None else stream, row))
            self.now += size
            if self.now > self.peak:
                self.peak, self.peak_point, self._peak_event = self.now, self.point, len(self.events)
        return key

    @property
    def rows_at_peak(self) -> frozenset[str]:
        """Rows of the tensors that are in use where most is."""
        held: dict[int, str] = {}
        for event in self.events[: self._peak_event]:
            if event.action is Action.ALLOCATE:
                held[event.key] = event.row
            elif event.action is Action.FREE:
                held.pop(event.key)
        return frozenset(held.values())

    def size(self, key: int) -> int:
        """Return the bytes of a tensor that is in use."""
        return self._sizes[key]

    def free(self, key: int, stream: int | None = None) -> None:
        """Free a tensor; one that another ``stream`` used comes back when that has done its work."""
        size, stream = self._sizes.pop(key), self._used.pop(key, stream)
        if not size:
            return
        if stream is not None:
            self.events.append(Event(Action.RECORD, key, stream=stream))
        if stream in (TENSOR, EXPERTS):
            self._deferred.append((self._count + self._lag, stream))
        self.events.append(Event(Action.FREE, key))
        self.now -= size

    def use(self, key: int, stream: int) -> None:
        """Let another stream use a tensor: whenever it is freed, it comes back when that has done its work."""
        self._used[key] = stream

    def wait(self) -> None:
        """Let the host wait for the GPU: all that was freed comes back."""
        while self._deferred:
            self._reach_oldest()

    def _reach_oldest(self) -> None:
        _, stream = self._deferred.popleft()
        self.events.append(Event(Action.REACH, size=1, stream=stream))

    def free_all(self, keys: Sequence[int]) -> None:
        """Free tensors, the last first."""
        for key in reversed(keys):
            self.free(key)

    def empty_cache(self) -> None:
        """Give all cached segments back to the driver."""
        self.events.append(Event(Action.EMPTY))

    def receive(self) -> None:
        """Let a message of another stage arrive: the pipeline's stream has done what was before it."""
        self.events.append(Event(Action.REACH, stream=PIPELINE))
