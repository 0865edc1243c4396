"""Training steps of one pipeline rank as a trace: what is allocated and freed, in the order of its schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from shardmath.allocator.trace import Event
from shardmath.errors import InputError
from shardmath.generated.definitions import SPLIT_BACKWARD, num_microbatches
from shardmath.steps.rows import LOSS, PARTS, PLACES, Rows
from shardmath.steps.script import Held, Player
from shardmath.steps.states import States
from shardmath.steps.trace import LAG, Trace

#: Steps after which nothing new is allocated: the second finds the optimizer states of the first.
STEPS = 2
#: Micro-batches beyond those in flight after which the others only repeat.
BEYOND = 2
FORWARD = "F"
#: Recomputed parts of a layer with experts whose order is not known.
_UNKNOWN = tuple(part for part in PARTS if part != "recompute_core_attention")


def refuse_unreplayed(choices: Mapping[str, str], values: Mapping[str, int]) -> None:
    """Raise InputError for a configuration whose steps are not replayed yet."""
    more = "steps of others are not replayed yet"
    if choices["pipeline"] != "own":
        rule = f"must be 1 with PyTorch's schedules: {more}"
        raise InputError("pipeline_parallel", values["pipeline_parallel"], rule, "1")
    if choices["layers"] == "experts":
        _refuse_unreplayed_experts(choices, values)
    if choices["schedule"] in SPLIT_BACKWARD:
        raise InputError("schedule", choices["schedule"], f"must not split the backward pass: {more}", "1f1b")
    if (choices["peak"], choices["data_parallel"]) == ("torch", "ddp") and values.get("data_parallel", 1) > 1:
        rule = "must be 1: buckets of DistributedDataParallel in PyTorch's own step are not replayed yet"
        raise InputError("data_parallel", values["data_parallel"], rule, "1")
    if values["recompute_full"] and choices["recompute_method"] != "each":
        raise InputError("recompute_method", choices["recompute_method"], f"must be each: {more}", "each")
    if choices["stages"] == "uneven" or (choices["stages"] == "listed" and values["virtual_pipeline"] > 1):
        raise InputError("stages", choices["stages"], f"must be even, or listed with one chunk: {more}", "even")


def _refuse_unreplayed_experts(choices: Mapping[str, str], values: Mapping[str, int]) -> None:
    """Raise InputError for layers with experts whose order of allocations, or whose place, is not known."""
    more = "steps of others are not replayed yet"
    if choices["peak"] != "megatron_te" or choices["weight_gradient"] != "fused":
        rule = f"must be dense without Transformer Engine and its weight gradients in place: {more}"
        raise InputError("layers", "experts", rule, "dense")
    for name in _UNKNOWN:
        if values.get(name):
            raise InputError(name, values[name], f"must be 0 with experts: {more}", "0")
    if values.get("num_mtp_layers"):
        raise InputError("num_mtp_layers", values["num_mtp_layers"], f"must be 0 with experts: {more}", "0")
    if choices["stages"] != "even":
        raise InputError("stages", choices["stages"], f"must be even with experts: {more}", "even")
    alike = not values["first_dense_layers"] and values["moe_layer_step"] == 1
    for name, most in (("virtual_pipeline", 1), ("recompute_full", 0)):
        if values[name] > most and not alike:
            raise InputError(name, values[name], f"must be {most} where some layers are dense: {more}", str(most))


class Steps:
    """Write the trace of a rank's steps."""

    def __init__(self, rows: Rows, schedule: str, group: int, lag: int = LAG, microbatches: int | None = None,
                 shard: int = 0) -> None:
        self.trace = Trace(lag)
        self.rows, self._schedule, self._group = rows, schedule, group
        self._states = States(rows, self.trace, shard)
        self._microbatches = microbatches
        self._player = Player(rows, self.trace, self._states)
        self._at = self._player.play
        places = {"embedding": ("FIRST",), **PLACES, "last": ("LAST",)}
        self._saved = {name: [row for own in rows.saved(of).values() for row in own] for name, of in places.items()}

    def run(self, steps: int = STEPS) -> list[Event]:
        """Return the events of the first steps."""
        self._states.begin()
        self.trace.peak = self.trace.now  # the account is of steps: parameters that move may need more before them
        for step in range(steps):
            self._step()
            if not step:
                self._states.first_step()
            self._at("optimizer_step", here_too=True)
        return self.trace.events

    @cached_property
    def _chunks(self) -> int:
        return self.rows.values["virtual_pipeline"] if self._schedule != "1f1b" else 1

    def _walked(self) -> int:
        """Count the micro-batches of a step that are walked through."""
        values = self.rows.values
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

        values = self.rows.values
        p, rank = values["pipeline_parallel"], values["pipeline_rank"]
        kinds = self.rows.layer_kinds[: self.rows.layers // self._chunks]
        if self._player.units is not None:
            self._player.units.begin()
        self._at("step_begin", here_too=True)
        in_flight: dict[tuple[int, int], tuple[Held, ...]] = {}
        for kind, chunk, microbatch in actions(self._schedule, p, self._walked(), self._chunks, self._group, rank):
            is_first, is_last = rank == chunk == 0, rank == p - 1 and chunk == self._chunks - 1
            if kind == FORWARD:
                in_flight[chunk, microbatch] = self._forward(kinds, is_first, is_last)
            else:
                self._backward(kinds, in_flight.pop((chunk, microbatch)), is_first, is_last)
        self._at("last_reduce", here_too=True)

    def _forward(self, kinds: Sequence[str], is_first: bool, is_last: bool) -> tuple[Held, ...]:
        """Run the forward pass of a chunk; return the tensors that it saved: embedding, layers, and head with loss."""
        parts = self._saved
        embedding: Held = {}
        self._at("chunk_forward", here_too=not is_first)
        if is_first:
            self._at("embedding_forward", parts["embedding"], embedding, True)
        saved: list[Held] = []
        for kind in kinds:
            saved.append({})
            self._at(f"{kind}_forward", parts[kind], saved[-1], True)
        head: Held = {}
        loss: Held = {}
        last = parts["last"] if is_last else []
        self._at("head_forward", [row for row in last if row.component != LOSS], head, is_last)
        self._at("loss_forward", [row for row in last if row.component == LOSS], loss, is_last)
        self._at("after_forward", here_too=not is_last)
        return embedding, *saved, head, loss

    def _backward(self, kinds: Sequence[str], parts: Sequence[Held], is_first: bool, is_last: bool) -> None:
        """Run the backward pass of a chunk, which frees what its forward pass saved."""
        embedding, *layers, head, loss = parts
        self._at("backward_start")
        self._at("loss_backward", held=loss, here_too=is_last)
        self._at("head_backward", held=head, here_too=is_last)
        self._at("head_reduce", held=head, here_too=is_last)
        self._at("stage_exchange", here_too=not is_last)
        for kind, layer in zip(reversed(kinds), reversed(layers), strict=True):
            self._at(f"{kind}_backward", held=layer, here_too=True)
        self._at("embedding_backward", held=embedding, here_too=is_first)
        self._at("backward_end")
        if self._player.units is not None:
            self._player.units.end()
