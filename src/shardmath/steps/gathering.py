"""DeepSpeed's ZeRO in stage 3: parameters that are gathered for modules, and ahead of them, and parts of gradients.

By the source of DeepSpeed 0.19.8 (``deepspeed/runtime/zero/partitioned_param_coordinator.py``, ``stage3.py``): a module
that begins gathers its weight, waits for it, and gathers some of those that follow in one pass of the model, if fewer
elements are there than the limit of live parameters. Those gathered together arrive in one flat tensor, out of which
they are copied when the first of them is waited for; it stays until the last of them is at work. A module that ends
lets go of its weight, unless that is small, is gathered ahead for a later use, or is used again within the reuse
distance. Weights of a recomputed layer stay besides: its checkpoint holds them until the product's backward pass.

Gradients are copied into a bucket, which is there from the start. A full one is reduced in a copy, in which every
parameter is padded, into a tensor of the rank's parts. The optimizer steps by groups of parameters.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from shardmath.steps.partition import NARROW, OF_NORM, WIDE
from shardmath.steps.rows import Row, Rows
from shardmath.steps.states import States
from shardmath.steps.trace import GATHER, REDUCE, Trace

#: Begin of a layer, which is none when it runs again.
AT_WORK = "in:layer"
NAME = "gathered"
_HEAD, _EMBEDDING = "head", "embedding"


class Parameter(NamedTuple):
    """A parameter: its place in the order of the model, and its elements."""

    place: int
    name: str
    elements: int


class _Use(NamedTuple):
    """A module that begins in a pass of the model, and its weight and bias, as far as it has them."""

    module: str
    parameters: Sequence[Parameter]


@dataclass
class _Gathered:
    """Parameters that are gathered together: the flat tensor, and those that have not been waited for."""

    parameters: Sequence[Parameter]
    flat: int
    waiting: set[Parameter]
    is_copied: bool = False


@dataclass
class _Bucket:
    """Gradients to be reduced: elements, and the parameters with the gradients that are not copied."""

    elements: int = 0
    content: list[tuple[Parameter, int | None]] = field(default_factory=list)


def _module(name: str) -> str:
    """Return the name of the module whose weight or bias has a name, and that of a module without."""
    return name.removesuffix(".weight").removesuffix(".bias")


class Gathering:
    """Parameters and gradients of a rank in stage 3; whole ones of ``states`` are its own from the first step on."""

    def __init__(self, rows: Rows, trace: Trace, states: States) -> None:
        self._rows, self._trace, self._states = rows, trace, states
        values = rows.values
        self._ranks = values["data_parallel"] * values["context_parallel"]
        self._overlaps = bool(values["overlap_comm"])
        self._prefetch, self._live = values["prefetch_bucket_size"], values["max_live_parameters"]
        self._reuse, self._threshold = values["max_reuse_distance"], values["param_persistence_threshold"]
        self._parameters = [Parameter(place, row.name, row.size) for place, row in enumerate(
            rows.ordered_weights(experts=False, modules=rows.modules))]
        self._uses = list(self._pass_of_model())
        self._data: dict[Parameter, int] = {}
        self._flying: dict[Parameter, _Gathered] = {}
        self._held: dict[Parameter, int] = {}
        self._active: dict[Parameter, set[str]] = {}
        self._kept_until: dict[tuple[int, int], bool] = {}
        self._queue: deque[tuple[int, Parameter]] = deque()
        self._fetched_for: dict[Parameter, int] = {}
        self._at: dict[str, Sequence[Parameter]] = {}
        self._step = self._available = 0
        self._has_buckets = self._has_stepped = False
        self._bucket = _Bucket()
        self._made: list[tuple[Parameter, int]] = []
        self.is_last = True
        """True in the last micro-batch of a step."""
        self.recomputes = False
        """True while a layer runs forward again."""
        self._events: Mapping[str, Callable[[str], None]] = {
            "begin": self._begin, "in": self._enter, "out": self._leave, "loose": self._loose, "take": self._take,
            "reduce": self._reduce, "widen": self._step_by_groups, "end": lambda name: None}

    def play(self, event: str) -> None:
        """Run one event, ``in:NAME`` and ``out:NAME`` of a module, or of the one whose weight has that name."""
        word, _, name = event.partition(":")
        self._events[word](_module(name))

    def make(self, row: Row, key: int) -> None:
        """Take note of the gradient of a weight of the module at work."""
        parameter, = (each for each in self._at[_module(row.name)] if each.name == row.name)
        self._made.append((parameter, key))

    def _pass_of_model(self) -> Iterator[_Use]:
        """Yield the modules in the order in which they begin in one pass of the model, forward and backward."""
        scripts, layers = self._rows.scripts, range(self._rows.layers)
        modules = self._modules()

        def begun(point: str, layer: int = 0) -> Iterator[_Use]:
            for event in scripts[point]:
                if event.startswith("again") and self._rows.values["recompute_full"]:
                    again = scripts[point.replace("backward", "forward")]
                    for use in (word for word in again[: again.index("end")] if word != f"zero:{AT_WORK}"):
                        yield from of(use, layer)
                yield from of(event, layer)

        def of(event: str, layer: int) -> Iterator[_Use]:
            if event.startswith("zero:in:"):
                name = self._named(_module(event.removeprefix("zero:in:")))
                instances = modules.get(name, [()])
                yield _Use(name, instances[layer if len(instances) > 1 else 0])

        yield from begun("embedding_forward")
        for layer in layers:
            yield from begun("layer_forward", layer)
        for point in ("head_forward", "loss_forward", "loss_backward", "head_backward", "norm_backward"):
            yield from begun(point)
        for layer in reversed(layers):
            yield from begun("layer_backward", layer)
        yield from begun("embedding_backward")

    def _modules(self) -> Mapping[str, Sequence[Sequence[Parameter]]]:
        """Return the parameters of each instance of every module, by its name."""
        by_name: dict[str, list[Parameter]] = {}
        for parameter in self._parameters:
            by_name.setdefault(parameter.name, []).append(parameter)
        modules: dict[str, list[Sequence[Parameter]]] = {}
        for name, instances in by_name.items():
            modules.setdefault(_module(name), []).append(instances)
        return {name: list(zip(*instances, strict=True)) for name, instances in modules.items()}

    def _named(self, name: str) -> str:
        return _EMBEDDING if name == _HEAD and self._rows.values["tied_embeddings"] else name

    def _begin(self, name: str) -> None:
        """Begin a pass of the model."""
        if not self._has_buckets:
            self._make_buckets()
        self._queue = deque((step, each) for step, use in enumerate(self._uses) for each in use.parameters)
        self._fetched_for, self._step, self._available = {}, 0, 0

    def _make_buckets(self) -> None:
        """Make the bucket and the gradients of the rank's part, and cut small parameters out of the states."""
        small = [parameter for parameter in self._parameters if self._persists(parameter)]
        whole = NARROW * sum(map(self._padded, small))
        self._trace.free_all(self._states.weights)
        self._trace.allocate(self._rows.static()["weight"] - whole, "weight")
        self._trace.allocate(int(self._rows.account["stage.gradient"]), "part.gradient")
        self._trace.allocate(NARROW * self._rows.values["reduce_bucket_size"], "part.bucket")
        self._gather_small(small)
        self._has_buckets = True

    def _gather_small(self, small: Sequence[Parameter]) -> None:
        self._data |= {parameter: self._trace.allocate(NARROW * self._padded(parameter), parameter.name)
                       for parameter in small}

    def _enter(self, name: str) -> None:
        """Gather and wait for the parameters of a module, and gather others ahead."""
        module, parameters = self._uses[self._step]
        assert module == self._named(name), (module, name)
        self._at[name] = parameters
        self._gather(parameters)
        for parameter in parameters:
            self._active.setdefault(parameter, set()).add(name)
            self._wait(parameter)
            if self.recomputes:
                self._held[parameter] = self._data[parameter]
        for _ in [each for each in parameters if self._fetched_for.get(each, -1) < self._step]:
            step, first = self._queue.popleft()
            assert first in parameters, (first, parameters)
            self._fetched_for[first] = step
        if self._prefetch:
            self._gather(self._ahead())
        self._step += 1

    def _ahead(self) -> list[Parameter]:
        """Take from the queue what is to be gathered ahead."""
        most = min(self._live - self._available, self._prefetch)
        ahead: list[Parameter] = []
        while self._queue and sum(each.elements for each in ahead) < most:
            step, parameter = self._queue.popleft()
            self._fetched_for[parameter] = max(self._fetched_for.get(parameter, -1), step)
            if parameter not in self._data and parameter not in self._flying and parameter not in ahead:
                ahead.append(parameter)
        return ahead

    def _gather(self, parameters: Sequence[Parameter]) -> None:
        missing = sorted(each for each in parameters if each not in self._data and each not in self._flying)
        self._available += sum(each.elements for each in missing)
        if missing:
            size = NARROW * sum(map(self._padded, missing)) if self._ranks > 1 else 0
            gathered = _Gathered(missing, self._allocate(size, NAME), set(missing))
            self._flying |= dict.fromkeys(missing, gathered)

    def _wait(self, parameter: Parameter) -> None:
        """Wait for a parameter: of several that are gathered together all are copied with the first."""
        gathered = self._flying.pop(parameter, None)
        if gathered is None:
            return
        if len(gathered.parameters) == 1:
            self._data[parameter] = gathered.flat
            return
        if not gathered.is_copied:
            self._data |= {each: self._allocate(NARROW * each.elements * (self._ranks > 1), each.name)
                           for each in gathered.parameters}
            gathered.is_copied = True
        gathered.waiting.remove(parameter)
        if not gathered.waiting:
            self._trace.free(gathered.flat)

    def _leave(self, name: str) -> None:
        """Let go of the parameters of a module that ends."""
        for parameter in self._at[name]:
            self._active[parameter].discard(name)
            key = (parameter.place, self._step)
            if key not in self._kept_until:
                self._kept_until[key] = self._keeps(parameter)
            if not self._kept_until[key] and not self._active[parameter] and parameter in self._data:
                self._release(parameter)
                self._available -= parameter.elements

    def _keeps(self, parameter: Parameter) -> bool:
        """Return True for a parameter that stays: a small one, one gathered ahead, or one that is used soon."""
        if self._persists(parameter) or self._fetched_for.get(parameter, -1) > self._step:
            return True
        passed = 0
        for use in self._uses[self._step:]:
            if passed >= self._reuse:
                return False
            if parameter in use.parameters:
                return True
            passed += sum(each.elements for each in use.parameters)
        return False

    def _release(self, parameter: Parameter) -> None:
        """Free a parameter, unless a checkpoint holds it."""
        key = self._data.pop(parameter)
        if self._held.get(parameter) != key:
            self._trace.free(key)

    def _loose(self, name: str) -> None:
        """Let the checkpoint of a recomputed layer go of the parameters of the module at work."""
        for parameter in self._at[name]:
            key = self._held.pop(parameter, None)
            if key is not None and self._data.get(parameter) != key:
                self._trace.free(key)

    def _take(self, name: str) -> None:
        """Copy new gradients into the bucket; one that is larger stays as it is until it is reduced."""
        size = self._rows.values["reduce_bucket_size"]
        for parameter, key in self._made:
            if self._bucket.content and self._bucket.elements + parameter.elements > size:
                self._reduce("")
            fits = self._bucket.elements + parameter.elements <= size
            if fits:
                self._trace.free(key)
            self._bucket.content.append((parameter, None if fits else key))
            self._bucket.elements += parameter.elements
        self._made = []

    def _reduce(self, name: str) -> None:
        """Reduce what is in the bucket in a copy, in which each gradient is padded as its parts are."""
        stream, content = REDUCE if self._overlaps else None, self._bucket.content
        copies: list[int] = []
        if len(content) > 1 or any(self._padded(parameter) != parameter.elements for parameter, _ in content):
            copies = [self._trace.allocate(NARROW * missing, f"{NAME}.padding", stream)
                      for rank in range(self._ranks) for parameter, _ in sorted(content)
                      if (missing := self._part(parameter) - self._inside(parameter, rank))]
            copies.append(self._trace.allocate(
                NARROW * sum(self._padded(parameter) for parameter, _ in content), f"{NAME}.reduced", stream))
        for _, key in content:
            if key is not None:
                self._trace.free(key)
        self._trace.free_all(copies)
        self._bucket = _Bucket()

    def _step_by_groups(self, name: str) -> None:
        """Take norms of the parts of gradients, and update group by group with a copy of each in fp32."""
        small = [parameter for parameter in self._data if self._persists(parameter)]
        for parameter in list(self._data):
            self._release(parameter)
        parts = [self._part(parameter) for parameter in self._parameters]
        for part in parts:
            self._trace.free(self._trace.allocate(OF_NORM * part, f"{NAME}.norm"))
        groups = list(self._groups(parts))
        for group in groups:
            flat = self._trace.allocate(NARROW * sum(group) * (len(group) > 1), f"{NAME}.flat")
            copy = self._trace.allocate(WIDE * sum(group), f"{NAME}.copy")
            self._trace.free_all([copy, flat])
        if not self._has_stepped:
            self._trace.allocate(WIDE * (len(groups) - 1), f"{NAME}.counters")
            self._has_stepped = True
        self._gather_small(small)

    def _groups(self, parts: Sequence[int]) -> Iterator[list[int]]:
        """Cut the parts into groups: one ends with the part that reaches the size of a group."""
        group: list[int] = []
        for part in parts:
            group.append(part)
            if sum(group) >= self._rows.values["sub_group_size"]:
                yield group
                group = []
        if group:
            yield group

    def _allocate(self, size: int, row: str) -> int:
        return self._trace.allocate(size, row, GATHER if self._overlaps else None)

    def _persists(self, parameter: Parameter) -> bool:
        return parameter.elements <= self._threshold

    def _part(self, parameter: Parameter) -> int:
        return -(-parameter.elements // self._ranks)

    def _padded(self, parameter: Parameter) -> int:
        return self._part(parameter) * self._ranks

    def _inside(self, parameter: Parameter, rank: int) -> int:
        """Count the elements of a parameter that are in the part of a rank."""
        part = self._part(parameter)
        return max(0, min(parameter.elements - rank * part, part))
