"""Births of what lasts: weights, gradients, optimizer states and buffers of a rank."""

from __future__ import annotations

from collections.abc import Iterator

from shardmath.steps.rows import Row, Rows
from shardmath.steps.trace import Trace

#: Bytes of a bucket in which DistributedDataParallel reduces gradients.
BUCKET = 25 * 2**20
WORKSPACE = "workspace"


class States:
    """Allocate what lasts, exactly as many bytes as the account has of each role."""

    def __init__(self, rows: Rows, trace: Trace) -> None:
        self._rows, self._trace = rows, trace
        self._elements = rows.weights()
        used = {event.removeprefix("use:") for script in rows.scripts.values() for event in script
                if event.startswith("use:")}
        self._late = [row for row in rows.every if row.role == "buffer" and used & {row.name, row.component}
                      for _ in range(self._count(row))]

    def begin(self) -> None:
        """Make all that is there before the first step; parameters that move are freed when they have."""
        moved: list[int] = []
        for name, pieces in self._pieces(late=False):
            if self._rows.states[name][0] == "optimizer":
                self._trace.free_all(moved[::-1])
                moved = []
            if self._rows.states[name][1] == "moved":
                moved = [self._trace.allocate(size, name) for size in self._cut(sum(pieces), "tensor")]
            for size in pieces:
                self._trace.allocate(size, name)
        self._trace.free_all(moved[::-1])
        static = self._rows.static()
        buffers = [row for row in self._rows.every if row.role == "buffer" for _ in range(self._count(row))]
        workspaces, others = ([row for row in buffers if (row.module == WORKSPACE) is first and row not in self._late]
                              for first in (True, False))
        for name, size in [*((row.name, row.size) for row in workspaces), ("input", static["input"]),
                           *((row.name, row.size) for row in others)]:
            self._trace.allocate(size, name)
        assert sum(row.size for row in buffers) == static["buffer"]

    def _count(self, row: Row) -> int:
        instances = self._rows.instances(row)
        return min(1, instances) if row.lifetime == "SHARED" else instances

    def use(self, name: str) -> None:
        """Make the buffers of a name or of a component, the last first, if they are not there yet."""
        made = [row for row in reversed(self._late) if name in (row.name, row.component)]
        for row in made:
            self._late.remove(row)
            self._trace.allocate(row.size, row.name)
        if not made:
            self._trace.allocate(0, name)  # the lag of deferred frees was fitted with uses counted as allocations

    def first_step(self) -> None:
        """Make the states that the first optimizer step makes."""
        for name, pieces in self._pieces(late=True):
            for size in pieces:
                self._trace.allocate(size, name)

    def _pieces(self, late: bool) -> Iterator[tuple[str, list[int]]]:
        """Yield each state with the sizes of its allocations; those of a role have its bytes, to the last one."""
        for role, total in self._rows.static().items():
            known = {name: self._rows.sizes[f"state.{name}"] for name, (of, _, _) in self._rows.states.items()
                     if of == role}
            whole, left = sum(known.values()), total
            for place, (name, each) in enumerate(known.items(), start=1):
                size = left if place == len(known) else total * each // whole
                left -= size
                _, piece, is_late = self._rows.states[name]
                if is_late == late and size:
                    yield name, list(self._cut(size, piece))

    def _cut(self, size: int, piece: str) -> Iterator[int]:
        """Cut a state into its allocations."""
        if piece in ("whole", "moved") or not self._elements:
            yield size
            return
        if piece == "shard":
            yield from self._shard(size)
            return
        elements, before, held = sum(self._elements), 0, 0
        start = 0
        for count in self._elements:
            before += count
            end = size * before // elements
            held += end - start
            start = end
            if piece == "tensor" or held >= BUCKET:
                yield held
                held = 0
        if held:
            yield held

    def _shard(self, size: int) -> Iterator[int]:
        """Cut a state whose shard is a range of the buffer, in which parameters lie from the last to the first."""
        each = next(self._rows.sizes[f"state.{name}"] for name, (_, piece, _) in self._rows.states.items()
                    if piece == "shard")
        for count in reversed(self._elements):
            if size <= 0:
                return
            yield min(size, each * count)
            size -= each * count
        if size > 0:
            yield size
