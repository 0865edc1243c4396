"""Megatron-FSDP: buckets of weights that are gathered ahead, and of gradients that wait for their reduction.

By the source of megatron-core 0.16.1 (``AllGatherPipeline``, ``GradReducePipeline``): a gather takes the next buckets
too, in the order of the pass, until they have enough elements; its memory is that of the gathering stream. The head's
gather takes the first layers once more. A backward pass lets go of them when it first gathers another one. A bucket of
gradients joins a queue when it has all of its own, and the oldest leave that when it has too many elements.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from shardmath.steps.bound import Bound
from shardmath.steps.rows import IN_LAYER, Row, Rows
from shardmath.steps.trace import GATHER, REDUCE, Trace

#: Bytes of a gathered element.
COMPUTE = 2
#: A parameter: its row, and the layer that has it.
Parameter = tuple[str, int]


@dataclass
class _Bucket:
    """A bucket: its padded elements, parameters without a gradient in this pass, and if it is a layer's own."""

    elements: int
    parameters: frozenset[Parameter]
    is_unit: bool = False
    missing: frozenset[Parameter] = frozenset()


class MegatronUnits:
    """Gather and reduce the buckets of a rank; ``bound`` knows which layer is at work."""

    def __init__(self, rows: Rows, trace: Trace, bound: Bound) -> None:
        self._rows, self._trace, self._bound = rows, trace, bound
        values, sizes = rows.values, rows.sizes
        self._ranks = values["data_parallel"] * values["context_parallel"]
        self._gathers = self._ranks > 1 and bool(values["sharded_weights"])
        self._reduces = self._ranks > 1 and bool(values["sharded_gradients"])
        self._limit = sizes["units.queue"]
        self._buckets = list(self._of_units() if values["sharded_weights"] else self._by_size())
        self._place = {parameter: place for place, bucket in enumerate(self._buckets)
                       for parameter in bucket.parameters}
        units = {"FIRST": "embedding", "LAST": "last", **dict.fromkeys(IN_LAYER, "layer")}
        self._units: dict[tuple[str, int], list[int]] = {}
        self._modules: dict[str, list[Row]] = {}
        for row, layer in self._parameters():
            own = self._units.setdefault((units[row.place], layer), [])
            if (place := self._place[row.name, layer]) not in own:
                own.append(place)
        for row in rows.every:
            if row.role == "weight":
                self._modules.setdefault(row.module, []).append(row)
        self._gathered: dict[int, int] = {}
        self._unused: set[int] = set()
        self._is_backward = False
        self._is_late = values["pipeline_rank"] == 0 and values["pipeline_parallel"] > 1
        self._unreduced: dict[int, int] = {}
        self._queue: deque[int] = deque()
        self.words: Mapping[str, Callable[[str], None]] = {
            "open": self._open, "close": self._close, "reopen": self._reopen, "release": self._release,
            "take": self._take, "made": self._make, "shut": self._shut, "turn": self._turn,
        }

    def begin(self) -> None:
        """Begin a step, which finds nothing of the one before."""

    def end(self) -> None:
        """End a backward pass: all gradients are reduced."""
        while self._queue:
            self._leave()
        self._is_backward = False

    def _of_units(self) -> Iterator[_Bucket]:
        """Yield the buckets of weights that are shared out: each layer, and what is outside of the layers."""
        sizes = self._rows.sizes
        ends: dict[str, set[Parameter]] = {"FIRST": set(), "LAST": set()}
        inner: dict[int, set[Parameter]] = {layer: set() for layer in range(self._rows.layers)}
        for row, layer in self._parameters():
            (inner[layer] if row.place in IN_LAYER else ends[row.place]).add((row.name, layer))
        first, last = (frozenset(ends[place]) for place in ("FIRST", "LAST"))
        if first and last and not sizes["units.apart"]:
            outside = [_Bucket(sizes["units.together"], first | last)]
        else:
            outside = [_Bucket(sizes[f"units.{name}"], own)
                       for name, own in (("first", first), ("last", last)) if own]
        layers = [_Bucket(sizes["units.layer"], frozenset(own), is_unit=True) for own in inner.values()]
        yield from (*outside, *layers) if first else (*layers, *outside)

    def _by_size(self) -> Iterator[_Bucket]:
        """Yield the buckets of whole weights: closed when they are large enough, or one of all."""
        values, closing = self._rows.values, self._rows.sizes["units.closing"]
        is_shared = values["tied_embeddings"] and values["pipeline_parallel"] > 1
        own: list[tuple[Parameter, int]] = []
        cut: list[list[tuple[Parameter, int]]] = []
        for row, layer in self._parameters():
            alone = is_shared and row.place not in IN_LAYER and row.name.endswith(("head.weight", "embedding.weight"))
            if alone and own:
                cut.append(own)
                own = []
            own.append(((row.name, layer), row.size))
            if alone or (not values["single_bucket"] and sum(size for _, size in own) >= closing):
                cut.append(own)
                own = []
        for group in [*cut, *([own] if own else [])]:
            elements = sum(size for _, size in group)
            if values["single_bucket"]:
                elements = int(self._rows.account["stage.buffer_elements"])
            yield _Bucket(elements, frozenset(parameter for parameter, _ in group))

    def _parameters(self) -> Iterator[tuple[Row, int]]:
        """Yield the parameters of the rank in the order of its modules, with their layers."""
        seen: dict[str, int] = {}
        for row in self._rows.ordered_weights(experts=False, modules=self._rows.modules):
            yield row, seen.setdefault(row.name, 0)
            seen[row.name] += 1

    def _named(self, modules: str) -> list[Parameter]:
        """Return the parameters of modules at work."""
        return [(row.name, self._bound.layer if row.place in IN_LAYER else 0)
                for module in modules.split("/") for row in self._modules.get(module, ())]

    def _unit(self, unit: str) -> list[int]:
        """Return the places of the buckets with the weights of a unit."""
        return self._units.get((unit, self._bound.layer if unit == "layer" else 0), [])

    def _gather(self, places: list[int], step: int) -> None:
        """Gather buckets, and those that follow by ``step``; 0 gathers none ahead."""
        if not self._gathers or not places:
            return
        self._unused.difference_update(places)
        wanted, ahead = [*places], 0
        place = (max(places) if step > 0 else min(places)) + step
        while step and 0 <= place < len(self._buckets) and ahead < self._limit // 2:
            wanted.append(place)
            ahead += self._buckets[place].elements
            place += step
        for each in sorted(wanted):
            if each not in self._gathered:
                self._unused.discard(each)
                self._free_unused()
                size = COMPUTE * self._buckets[each].elements
                self._gathered[each] = self._trace.allocate(size, "gathered", GATHER)

    def _free_unused(self) -> None:
        for place in sorted(self._unused):
            if place in self._gathered:
                self._trace.free(self._gathered.pop(place))
        self._unused.clear()

    def _open(self, unit: str) -> None:
        """Gather a unit for its forward pass; one that is recomputed gathers nothing ahead."""
        self._gather(self._unit(unit), 0 if self._is_backward else 1)

    def _close(self, unit: str) -> None:
        """Free a unit behind its forward pass; one that is recomputed is let go of when another is gathered."""
        if self._is_backward:
            self._unused.update(self._unit(unit))
        else:
            self._release(unit)

    def _reopen(self, unit: str) -> None:
        """Gather a unit for its backward pass, and those before it."""
        self._gather(self._unit(unit), -1)

    def _release(self, unit: str) -> None:
        for place in self._unit(unit):
            if place in self._gathered:
                self._trace.free(self._gathered.pop(place))

    def _turn(self, name: str) -> None:
        """Begin a backward pass: what was gathered of layers is not used before it is asked for.

        The first of several stages takes note in its last layer, when that is gathered: the last module is there.
        """
        if not name:
            for bucket in self._buckets:
                bucket.missing = bucket.parameters
        if not self._is_backward and (name or not self._is_late):
            self._is_backward = True
            self._unused.update(place for place, bucket in enumerate(self._buckets) if bucket.is_unit)

    def _shut(self, name: str) -> None:
        """Free all that is gathered, at the end of a step."""
        self._unused.update(self._gathered)
        self._free_unused()

    def _take(self, modules: str) -> None:
        """Make the buckets of gradients of modules."""
        for parameter in self._named(modules) if self._reduces else ():
            if (place := self._place[parameter]) not in self._unreduced:
                size = self._rows.values["gradient_bytes"] * self._buckets[place].elements
                self._unreduced[place] = self._trace.allocate(size, "unreduced")

    def _make(self, modules: str) -> None:
        """Take note of the gradients of modules, and send off a bucket that has all of its own."""
        for parameter in self._named(modules) if self._reduces else ():
            bucket = self._buckets[place := self._place[parameter]]
            bucket.missing -= {parameter}
            if not bucket.missing:
                self._reduce(place)

    def _reduce(self, place: int) -> None:
        while sum(self._buckets[each].elements for each in self._queue) > self._limit:
            self._leave()
        size = self._trace.size(self._unreduced[place]) // self._ranks
        self._trace.free(self._trace.allocate(size, "reduced", REDUCE))
        self._queue.append(place)

    def _leave(self) -> None:
        self._trace.free(self._unreduced.pop(self._queue.popleft()))
