"""Training steps of one pipeline rank as a trace: what is allocated and freed, in the order of its schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from shardmath.allocator.trace import Event
from shardmath.errors import InputError
from shardmath.generated.definitions import SPLIT_BACKWARD, num_microbatches
from shardmath.steps.rows import IN_LAYER, LOSS, Row, Rows
from shardmath.steps.states import States
from shardmath.steps.trace import LAG, PIPELINE, TENSOR, Trace

#: Steps after which nothing new is allocated: the second finds the optimizer states of the first.
STEPS = 2
#: Micro-batches beyond those in flight after which the others only repeat.
BEYOND = 2
FORWARD = "F"
_NOTHING: Mapping[str, list[Row]] = {}


def refuse_unreplayed(choices: Mapping[str, str], values: Mapping[str, int]) -> None:
    """Raise InputError for a configuration whose steps are not replayed yet."""
    more = "steps of others are not replayed yet"
    if choices["pipeline"] != "own":
        rule = f"must be 1 with PyTorch's schedules: {more}"
        raise InputError("pipeline_parallel", values["pipeline_parallel"], rule, "1")
    if choices["layers"] != "dense":
        raise InputError("layers", choices["layers"], f"must be dense: {more}", "dense")
    if choices["schedule"] in SPLIT_BACKWARD:
        raise InputError("schedule", choices["schedule"], f"must not split the backward pass: {more}", "1f1b")
    if values["recompute_full"] and choices["recompute_method"] != "each":
        raise InputError("recompute_method", choices["recompute_method"], f"must be each: {more}", "each")
    if choices["stages"] == "uneven" or (choices["stages"] == "listed" and values["virtual_pipeline"] > 1):
        raise InputError("stages", choices["stages"], f"must be even, or listed with one chunk: {more}", "even")


class Steps:
    """Write the trace of a rank's steps."""

    def __init__(self, rows: Rows, schedule: str, group: int, lag: int = LAG, microbatches: int | None = None) -> None:
        self.trace = Trace(lag)
        self._rows, self._schedule, self._group = rows, schedule, group
        self._states = States(rows, self.trace)
        self._microbatches = microbatches
        self._streams = {"^": PIPELINE, **({"~": TENSOR} if rows.values["tensor_parallel"] > 1 else {})}
        self._moment = {name: rows.transients(name) for name in rows.scripts}
        self._passing: dict[str, list[int]] = {}
        self._components: dict[str, dict[str, list[Row]]] = {
            "embedding": rows.saved(("FIRST",)), "layer": rows.saved(IN_LAYER), "last": rows.saved(("LAST",)),
        }
        self._gradients: dict[str, list[int]] = {}
        for row in rows.every:
            if row.role == "weight":
                self._gradients.setdefault(row.component, []).append(rows.sizes["state.kept_gradient"] * row.size)

    def run(self, steps: int = STEPS) -> list[Event]:
        """Return the events of the first steps."""
        self._states.begin()
        for step in range(steps):
            self._step()
            if not step:
                self._states.first_step()
            self._at("optimizer_step")
        return self.trace.events

    @cached_property
    def _chunks(self) -> int:
        return self._rows.values["virtual_pipeline"] if self._schedule != "1f1b" else 1

    def _walked(self) -> int:
        """Count the micro-batches of a step that are walked through."""
        values = self._rows.values
        count: int = num_microbatches(**values)
        if self._microbatches is not None:
            return min(count, self._microbatches)
        if self._schedule == "gpipe":
            return count
        if self._chunks == 1:
            return min(count, values["pipeline_parallel"] - values["pipeline_rank"] + BEYOND)
        return count if count <= 3 * self._group else 2 * self._group + count % self._group

    def _step(self) -> None:
        from shardmath.symbolic.parallel.walk import actions

        values = self._rows.values
        p, rank = values["pipeline_parallel"], values["pipeline_rank"]
        layers = self._rows.layers // self._chunks
        shared = [self.trace.allocate(row.size, row.name) for row in self._rows.shared]
        in_flight: dict[tuple[int, int], tuple[dict[str, list[int]], ...]] = {}
        for kind, chunk, microbatch in actions(self._schedule, p, self._walked(), self._chunks, self._group, rank):
            is_first, is_last = rank == chunk == 0, rank == p - 1 and chunk == self._chunks - 1
            if kind == FORWARD:
                in_flight[chunk, microbatch] = self._forward(layers, is_first, is_last)
            else:
                self._backward(in_flight.pop((chunk, microbatch)), is_first, is_last)
        self.trace.free_all(shared)
        self._at("last_reduce")

    def _forward(self, layers: int, is_first: bool, is_last: bool) -> tuple[dict[str, list[int]], ...]:
        """Run the forward pass of a chunk; return the tensors that it saved: embedding, layers, and head with loss."""
        parts = self._components
        embedding: dict[str, list[int]] = {}
        self._at("chunk_forward", here_too=not is_first)
        if is_first:
            self._at("embedding_forward", parts["embedding"], embedding, True)
        saved: list[dict[str, list[int]]] = []
        for _ in range(layers):
            saved.append({})
            self._at("layer_forward", parts["layer"], saved[-1], True)
        head: dict[str, list[int]] = {}
        loss: dict[str, list[int]] = {}
        last = parts["last"] if is_last else {}
        self._at("head_forward", {name: rows for name, rows in last.items() if name != LOSS}, head, is_last)
        self._at("loss_forward", {name: rows for name, rows in last.items() if name == LOSS}, loss, is_last)
        self._at("after_forward", here_too=not is_last)
        return embedding, *saved, head, loss

    def _backward(self, parts: Sequence[dict[str, list[int]]], is_first: bool, is_last: bool) -> None:
        """Run the backward pass of a chunk, which frees what its forward pass saved."""
        embedding, *layers, head, loss = parts
        self._at("backward_start")
        self._at("loss_backward", held=loss, here_too=is_last)
        self._at("head_backward", held=head, here_too=is_last)
        self._at("head_reduce")
        self._at("stage_exchange", here_too=not is_last)
        for layer in reversed(layers):
            self._at("layer_backward", held=layer, here_too=True)
        self._at("embedding_backward", held=embedding, here_too=is_first)
        self._at("backward_end")

    def _at(
        self, point: str, saves: Mapping[str, list[Row]] = _NOTHING, held: dict[str, list[int]] | None = None,
        here_too: bool = False,
    ) -> None:
        """Run the script of a point: ``saves`` are tensors to save, ``held`` those that are saved, by component.

        Tensors that only pass do so where the work of the point is ``here_too``, on this rank and chunk.
        """
        held = {} if held is None else held
        trace, moment = self.trace, self._moment[point]
        here: dict[str, int] = {}
        for event in self._rows.scripts[point]:
            word, _, name = event.partition(":")
            sign, tensor = event[0], event[1:]
            if event == "+*":
                here |= {item: trace.allocate(size, item) for item, size in moment.items() if item not in here}
            elif event == "-*":
                trace.free_all(list(here.values()))
                here = {}
            elif event == "-all":
                trace.free_all([key for keys in self._passing.values() for key in keys])
                self._passing = {}
            elif word == "save":
                for component, rows in saves.items():
                    if name in ("", component):
                        held[component] = [trace.allocate(row.size, row.name) for row in rows]
            elif word == "free":
                for component in [item for item in reversed(held) if name in ("", item)]:
                    trace.free_all(held.pop(component))
            elif word == "grad":
                for size in self._gradients.get(name, ()) if here_too else ():
                    self._passing.setdefault("grad", []).append(trace.allocate(size, f"{name}.gradient"))
            elif event == "receive":
                if here_too:
                    trace.receive()
            elif word == "use":
                self._states.use(name)
            elif sign == "+":
                if tensor in moment:
                    here[tensor] = trace.allocate(moment[tensor], tensor)
                elif here_too and (size := self._rows.sizes.get(f"passing.{tensor}", 0)):
                    self._passing.setdefault(tensor, []).append(trace.allocate(size, tensor))
            elif tensor in here:
                trace.free(here.pop(tensor), self._streams.get(sign))
            elif self._passing.get(tensor):
                trace.free(self._passing[tensor].pop(), self._streams.get(sign))
