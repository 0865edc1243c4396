"""DeepSpeed's ZeRO in stage 2: buckets of gradients, what a rank keeps of them, and the copies of its optimizer step.

By the source of DeepSpeed 0.19.8 (``deepspeed/runtime/zero/stage_1_and_2.py``), where one bucket has all gradients. The
first gradient makes the bucket, each is copied into it and freed. Behind the last one it is reduced in a flat copy, and
gradients of the rank's part are kept, each tensor whole. The optimizer step takes their norms in fp64, joins what is
of the part, and makes an fp32 copy. With ``overlap_comm`` there are two buckets, and a stream reduces them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shardmath.errors import InputError
from shardmath.steps.rows import Rows
from shardmath.steps.trace import REDUCE, Trace

#: Bytes of a gradient, of its fp32 copy, and of the copy whose norm is taken.
NARROW, WIDE, OF_NORM = 2, 4, 8
NAME = "part"
#: Event that puts a gradient into the bucket.
TAKE = "take"


class Partition:
    """Gradients of rank number ``shard``, from the first bucket to the optimizer step."""

    def __init__(self, rows: Rows, trace: Trace, shard: int) -> None:
        self._rows, self._trace, self._shard = rows, trace, shard
        self._buckets: list[int] = []
        self._kept: list[int] = []
        self._copy: list[int] = []
        self._events: Mapping[str, Callable[[], None]] = {
            TAKE: self._take, "reduce": self._reduce, "widen": self._widen, "end": self._end}

    def play(self, event: str) -> None:
        """Run one event. Raises InputError where one bucket does not have all gradients."""
        self._events[event]()

    def _take(self) -> None:
        if self._buckets:
            return
        size, elements = self._rows.values["reduce_bucket_size"], sum(self._parameters())
        if size < elements:
            rule = f"must be at least {elements}, all parameters: steps with several buckets are not replayed yet"
            raise InputError("reduce_bucket_size", size, rule, str(elements))
        for _ in range(1 + self._rows.values["overlap_comm"]):
            self._buckets.append(self._trace.allocate(NARROW * size, f"{NAME}.bucket"))

    def _reduce(self) -> None:
        stream = REDUCE if self._rows.values["overlap_comm"] else None
        if self._ranks > 1:  # one rank alone reduces the bucket itself
            self._trace.free(self._trace.allocate(NARROW * sum(self._parameters()), f"{NAME}.reduced", stream))
        pieces = self._pieces()
        for elements in (sum(whole for whole, _ in pieces), self._part - sum(own for _, own in pieces)):
            self._kept.append(self._trace.allocate(NARROW * elements, f"{NAME}.gradient", stream))
        self._trace.free_all(self._buckets)
        self._buckets = []

    def _widen(self) -> None:
        pieces = self._pieces()
        for _, own in pieces:
            self._trace.free(self._trace.allocate(OF_NORM * own, f"{NAME}.norm"))
        is_joined = len(pieces) > 1 or pieces[0][1] < self._part
        flat = self._trace.allocate(NARROW * self._part * is_joined, f"{NAME}.flat")
        self._copy = [self._trace.allocate(WIDE * self._part, f"{NAME}.copy")]
        self._trace.free_all([*self._kept, flat])
        self._kept = []

    def _end(self) -> None:
        self._trace.free_all(self._copy)
        self._copy = []

    @property
    def _ranks(self) -> int:
        return int(self._rows.account["stage.buffer_elements"]) // self._part

    @property
    def _part(self) -> int:
        return int(self._rows.account["stage.shard_elements"])

    def _parameters(self) -> list[int]:
        """List the elements of every parameter, in the order of the model."""
        return self._rows.weights(experts=False, modules=self._rows.modules)

    def _pieces(self) -> list[tuple[int, int]]:
        """List the tensors that the rank's part cuts: elements of each, and those inside of the part."""
        start, end, before = self._shard * self._part, (self._shard + 1) * self._part, 0
        pieces = []
        for whole in self._parameters():
            own = min(before + whole, end) - max(before, start)
            before += whole
            if own > 0:
                pieces.append((whole, own))
        return pieces
