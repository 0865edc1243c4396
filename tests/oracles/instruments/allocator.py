"""Allocations and frees of the CPU allocator in PyTorch's profiler: the cross-check of ``Live``."""

from __future__ import annotations

import gc
from types import TracebackType

from torch.profiler import ProfilerActivity, profile


class AllocatorLog:
    """Log every allocation and every release inside of the ``with`` block; sizes are as asked for, not rounded.

    Other than ``Live`` it sees the scratch memory inside of operations, so its peak is at least that of ``Live``.
    Tensors in circles, of tests before, are released ahead of it: inside they would be taken for its own.
    """

    def __init__(self) -> None:
        self._profile = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
        self.changes: list[int] = []

    def __enter__(self) -> AllocatorLog:
        """Start the log."""
        gc.collect()
        gc.disable()
        self._profile.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the log and read it."""
        self._profile.__exit__(kind, error, trace)
        gc.enable()
        events = self._profile.profiler.kineto_results.events()
        memory = [event for event in events if event.name() == "[memory]"]
        self.changes = [event.nbytes() for event in sorted(memory, key=lambda event: event.start_ns())]

    @property
    def net(self) -> int:
        """Bytes allocated and not released."""
        return sum(self.changes)

    @property
    def peak(self) -> int:
        """Largest sum of bytes allocated and not yet released."""
        now = most = 0
        for change in self.changes:
            now += change
            most = max(most, now)
        return most
