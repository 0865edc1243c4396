"""DeepSpeed's ZeRO in stages 1 and 2: buckets of gradients, what a rank keeps, and copies of its optimizer step.

By the source of DeepSpeed 0.19.8 (``deepspeed/runtime/zero/stage_1_and_2.py``). The first gradient makes the bucket,
each is copied into it and freed. A bucket that the next one does not fit into is reduced in a flat copy, and so is the
last one. One larger than a bucket stays as it is until then, or in stage 1, if another rank's, until all are. The first
reduced gradient of the rank's part makes a tensor for all of them, each of which is whole there. The optimizer step
takes norms in fp64, joins what is of the part, and makes an fp32 copy. With ``overlap_comm`` there are two buckets, and
a stream reduces them.

Stage 1 adds up whole gradients, and has one more pass over them in the end of the last backward pass of a step; with
``overlap_comm`` that backward pass itself copies them. Stage 2 adds up what the rank keeps of each micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate, groupby
from typing import NamedTuple

from shardmath.steps.rows import Row, Rows
from shardmath.steps.states import States
from shardmath.steps.trace import REDUCE, Trace

#: Bytes of a gradient, of its fp32 copy, and of the copy whose norm is taken.
NARROW, WIDE, OF_NORM = 2, 4, 8
NAME = "part"


class Gradient(NamedTuple):
    """A whole gradient: where it starts among all parameters, its elements, and its tensor where it is in no bucket."""

    start: int
    elements: int
    key: int | None


class Partition:
    """Gradients of a rank, from the first bucket to the optimizer step; ``states`` are those of its part."""

    def __init__(self, rows: Rows, trace: Trace, states: States) -> None:
        self._rows, self._trace, self._shard = rows, trace, states.shard
        self._starts: dict[str, list[int]] = {}
        self._made: list[Gradient] = []
        self._whole: dict[int, Gradient] = {}
        self._buckets: list[int] = []
        self._bucket: list[Gradient] = []
        self._others: list[int] = []
        self._new: list[int] = []
        self._kept: list[int] = []
        self._copy: list[int] = []
        self.is_last = True
        """True in the last micro-batch of a step."""
        self.recomputes = False
        """True while a layer runs forward again."""
        self._events: Mapping[str, Callable[[], None]] = {
            "take": self._take, "reduce": self._end_backward, "widen": self._widen, "end": self._end}

    def play(self, event: str) -> None:
        """Run one event."""
        self._events[event]()

    def make(self, row: Row, key: int) -> None:
        """Take note of a gradient of a row: that of the last layer of which there is none yet in this backward pass."""
        if not self._starts:
            before = 0
            for parameter in self._parameters():
                self._starts.setdefault(parameter.name, []).append(before)
                before += parameter.size
        self._made.append(Gradient(self._starts[row.name].pop(), row.size, key))

    def _take(self) -> None:
        """Copy new gradients into the bucket, or let them stay whole, added to those of earlier micro-batches."""
        if self._made and not self._buckets:
            size = NARROW * self._rows.values["reduce_bucket_size"]
            self._buckets = [self._trace.allocate(size, f"{NAME}.bucket") for _ in range(1 + self._overlaps)]
        for new in self._made:
            added = self._whole.pop(new.start, new)
            if added is not new and new.key is not None:
                self._trace.free(new.key)
            if self._is_stage_2 or (self._overlaps and self.is_last):
                self._put(added)
            else:
                self._whole[added.start] = added
        self._made = []

    def _put(self, gradient: Gradient) -> None:
        """Copy a gradient into the bucket, if it is not larger; one that is full is reduced before."""
        size = self._rows.values["reduce_bucket_size"]
        if sum(each.elements for each in self._bucket) + gradient.elements > size:
            self._reduce()
        if gradient.elements <= size and gradient.key is not None:
            self._trace.free(gradient.key)
            gradient = gradient._replace(key=None)
        self._bucket.append(gradient)

    def _reduce(self) -> None:
        stream = REDUCE if self._overlaps else None
        for elements in self._flattened():
            self._trace.free(self._trace.allocate(NARROW * elements, f"{NAME}.reduced", stream))
        own = [self._inside(gradient.start, gradient.elements) for gradient in self._bucket]
        if any(own) and not self._new:
            whole = NARROW * sum(elements for elements, _ in self._pieces())
            self._new = [self._trace.allocate(whole, f"{NAME}.gradient", stream)]
        for (_, _, key), inside in zip(self._bucket, own, strict=True):
            if key is not None:  # stage 1 lets go of those of other ranks in the end
                (self._trace.free if self._is_stage_2 or inside else self._others.append)(key)
        self._bucket = []

    def _flattened(self) -> Iterator[int]:
        """Yield the elements of each flat copy: neighbours of one rank's part are a view, which is reduced itself."""
        of_ranks = [(rank, min(start + elements, (rank + 1) * self._part) - max(start, rank * self._part))
                    for start, elements, _ in self._bucket
                    for rank in range(start // self._part, -(-(start + elements) // self._part))]
        flat: list[int] = []
        for _, pieces in groupby(of_ranks, lambda piece: piece[0]):
            flat.append(sum(elements for _, elements in pieces))
            if sum(flat) > self._rows.values["reduce_bucket_size"]:
                if len(flat) > 1:
                    yield sum(flat)
                flat = []
        if len(flat) > 1:
            yield sum(flat)

    def _end_backward(self) -> None:
        self._starts = {}
        if not self._is_stage_2 and not self.is_last:
            return
        for start in sorted(self._whole):
            self._put(self._whole.pop(start))
        self._reduce()
        stream, added = REDUCE if self._overlaps else None, self._new if self._kept else []
        if not self._kept:
            self._kept = self._new
        if self.is_last:
            padding = self._part - sum(own for _, own in self._pieces())
            self._kept.append(self._trace.allocate(NARROW * padding, f"{NAME}.gradient", stream))
        self._trace.free_all([*self._buckets, *added, *self._others])
        self._new, self._buckets, self._others = [], [], []

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
    def _is_stage_2(self) -> bool:
        return bool(self._rows.values["sharded_gradients"])

    @property
    def _overlaps(self) -> bool:
        return bool(self._rows.values["overlap_comm"])

    @property
    def _part(self) -> int:
        return int(self._rows.account["stage.shard_elements"])

    def _parameters(self) -> list[Row]:
        """List the parameters in the order of the model."""
        return self._rows.ordered_weights(experts=False, modules=self._rows.modules)

    def _inside(self, start: int, elements: int) -> int:
        """Count the elements of a parameter that are in the rank's part."""
        first, end = self._shard * self._part, (self._shard + 1) * self._part
        return max(0, min(start + elements, end) - max(start, first))

    def _pieces(self) -> list[tuple[int, int]]:
        """List the tensors that the rank's part cuts: elements of each, and those inside of the part."""
        sizes = [parameter.size for parameter in self._parameters()]
        pieces = ((size, self._inside(end - size, size)) for size, end in zip(sizes, accumulate(sizes), strict=True))
        return [(size, own) for size, own in pieces if own]
