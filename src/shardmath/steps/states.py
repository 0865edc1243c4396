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
        self.workspaces = {row.name: row.size for row in rows.every if row.module == WORKSPACE and rows.instances(row)}
        """Bytes of workspaces that are not made yet."""

    def begin(self) -> None:
        """Make all that is there before the first step."""
        for name, pieces in self._pieces(late=False):
            for size in pieces:
                self._trace.allocate(size, name)
        static, used = self._rows.static(), {name for script in self._rows.scripts.values() for name in script}
        for name in [name for name in self.workspaces if f"use:{name}" not in used]:
            self.use(name)
        self._trace.allocate(static["input"], "input")
        buffers = [row for row in self._rows.every if row.role == "buffer" for _ in range(self._count(row))]
        for row in buffers:
            if row.module != WORKSPACE:
                self._trace.allocate(row.size, row.name)
        assert sum(row.size for row in buffers) == static["buffer"]

    def _count(self, row: Row) -> int:
        instances = self._rows.instances(row)
        return min(1, instances) if row.lifetime == "SHARED" else instances

    def use(self, name: str) -> None:
        """Make a workspace if it is not there yet."""
        self._trace.allocate(self.workspaces.pop(name, 0), name)

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
        if piece == "whole" or not self._elements:
            yield size
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
