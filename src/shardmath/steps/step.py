"""Training steps of one pipeline rank as a trace: what is allocated and freed, in the order of its schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from shardmath.allocator.trace import Event
from shardmath.errors import InputError
from shardmath.generated.definitions import IMPLEMENTATIONS, SPLIT_BACKWARD, num_microbatches
from shardmath.steps.rows import LOSS, PARTS, Rows
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


class Limit(NamedTuple):
    """The most that a parameter may be where a step is replayed.

    ``blamed`` is the axis of kernels that forbids more, if the parameter is not to blame itself; ``beside`` a parameter
    without which more is replayed. ``on_last`` limits hold on the last pipeline rank alone.
    """

    name: str
    most: int
    rule: str
    blamed: str = ""
    beside: str = ""
    on_last: bool = False


def refuse_unreplayed(choices: Mapping[str, str], values: Mapping[str, int]) -> None:
    """Raise InputError for a configuration whose steps are not replayed yet, on a rank if ``values`` have one."""
    if choices["pipeline"] != "own":
        rule = f"must be 1 with PyTorch's schedules: {_MORE}"
        raise InputError("pipeline_parallel", values["pipeline_parallel"], rule, "1")
    of_transformers = choices["peak"] == "torch" and choices["router"] != "torchtitan"
    if choices["layers"] == "experts" and not of_transformers and (
            choices["peak"] != "megatron_te" or choices["weight_gradient"] != "fused"):
        rule = f"must be dense without Transformer Engine and its weight gradients in place: {_MORE}"
        raise InputError("layers", "experts", rule, "dense")
    if choices["mlp"] != "swiglu" and not of_transformers and (
            choices["layers"] == "experts" or choices["peak"] == "megatron_local"):
        rule = f"must be swiglu with experts, and without Transformer Engine: {_MORE}"
        raise InputError("mlp", choices["mlp"], rule, "swiglu")
    if choices["documents"] == "packed" and choices["peak"] == "megatron_local":
        raise InputError("documents", "packed", f"must be one without Transformer Engine: {_MORE}", "one")
    if choices["heads"] == "latent" and choices["peak"] != "megatron_te" and not of_transformers:
        rule = f"must be grouped without Transformer Engine: {_MORE}"
        raise InputError("heads", "latent", rule, "grouped")
    if choices["adapters"] != "none" and choices["data_parallel"] == "fsdp":
        raise InputError("data_parallel", "fsdp", f"must be ddp with adapters: {_MORE}", "ddp")
    for chosen, words, others in _BESIDE:
        for axis, option in others.items() if all(choices[axis] in options for axis, options in chosen.items()) else ():
            if choices[axis] != option:
                raise InputError(axis, choices[axis], f"must be {option} with {words}: {_MORE}", option)
    if choices["schedule"] in SPLIT_BACKWARD:
        raise InputError("schedule", choices["schedule"], f"must not split the backward pass: {_MORE}", "1f1b")
    if choices["layers"] == "experts" and choices["stages"] == "listed":
        raise InputError("stages", "listed", f"must not be listed with experts: {_MORE}", "uneven")
    for limit in limits(choices):
        if values.get(limit.name, limit.most) <= limit.most or (limit.beside and not values[limit.beside]):
            continue
        if limit.on_last and values.get("pipeline_rank", 0) < values["pipeline_parallel"] - 1:
            continue
        if limit.blamed:
            raise InputError(limit.blamed, choices[limit.blamed], limit.rule, _NEAREST[limit.blamed])
        raise InputError(limit.name, values[limit.name], limit.rule, str(limit.most))


def refuse_unwalked(rows: Rows) -> None:
    """Raise InputError for layers of PyTorch's step that are neither written out nor walked operation by operation."""
    if rows.choices["peak"] != "torch" or rows.passes:
        return
    for axis, known in (("layers", "dense"), ("heads", "grouped")):
        if rows.choices[axis] != known:
            raise InputError(axis, rows.choices[axis], f"must be {known} beside the other kernels: {_MORE}", known)


def limits(choices: Mapping[str, str]) -> Iterator[Limit]:
    """Yield the limits of parameters within which steps with these kernels are replayed."""
    if choices["layers"] == "experts":
        for name in _UNKNOWN:
            yield Limit(name, 0, f"must be 0 with experts: {_MORE}")
        rule = f"must be 0 with experts on the last pipeline rank: {_MORE}"
        yield Limit("num_mtp_layers", 0, rule, on_last=True)
        rule = f"must be 1 with full recompute of experts: {_MORE}"
        yield Limit("virtual_pipeline", 1, rule, beside="recompute_full")
    if choices["attention"] == "eager":
        yield Limit("attention_dropout", 0, f"must be 0 with eager attention: {_MORE}")
    if choices["heads"] == "latent":
        for name in ("recompute_layernorm", "recompute_mla_up_proj"):
            yield Limit(name, 0, f"must be 0 with latent attention: {_MORE}")
    if choices["recompute_method"] != "each":
        yield Limit("recompute_full", 0, f"must be each: {_MORE}", "recompute_method")
    if choices["stages"] == "listed":
        yield Limit("virtual_pipeline", 1, f"must not be listed with several chunks: {_MORE}", "stages")
    if choices["stages"] == "uneven" and choices["layers"] == "experts":
        yield Limit("virtual_pipeline", 1, f"must be 1 with experts on uneven stages: {_MORE}")


_MORE = "steps of others are not replayed yet"
#: Options, words for them, and those of other axes with which their order is known.
_BESIDE: tuple[tuple[Mapping[str, tuple[str, ...]], str, Mapping[str, str]], ...] = (
    ({"attention": ("eager",), "layers": ("dense",)}, "eager attention",
     {"adapters": "none", "capping": "none", "sinks": "none", "softmax": "fp32", "window": "none"}),
    ({"norms": ("both",), "peak": IMPLEMENTATIONS["megatron"]["replayed"]["peak"]}, "norms behind attention and MLP",
     {"layers": "dense", "peak": "megatron_te"}),
)
_NEAREST = {"recompute_method": "each", "stages": "even"}


class Turn(NamedTuple):
    """A layer at work on a micro-batch of a step."""

    step: int
    microbatch: int
    chunk: int
    layer: int


class Steps:
    """Write the trace of a rank's steps.

    ``of_layer`` returns the rows of one layer at work, where they are not those of the rank: experts may get another
    number of tokens in each. Both passes of a layer ask for them.
    """

    def __init__(self, rows: Rows, schedule: str, group: int, lag: int = LAG, microbatches: int | None = None,
                 shard: int = 0, of_layer: Callable[[Turn], Rows] | None = None) -> None:
        self.trace = Trace(lag)
        self.rows, self._schedule, self._group = rows, schedule, group
        self._states = States(rows, self.trace, shard)
        self._microbatches = microbatches
        self._player = Player(rows, self.trace, self._states)
        self._at = self._player.play
        self._of_layer = of_layer
        self._turn = 0, 0

    def run(self, steps: int = STEPS) -> list[Event]:
        """Return the events of the first steps."""
        self._states.begin()
        self.trace.peak = self.trace.now  # the account is of steps: parameters that move may need more before them
        for step in range(steps):
            self._step(step)
            if not step:
                self._states.first_step()
            self._at("optimizer_step", here_too=True)
            if not step:
                self._states.buckets.remake(self._player.gradients)
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

    def _step(self, step: int) -> None:
        from shardmath.symbolic.parallel.walk import actions

        values = self.rows.values
        p, rank = values["pipeline_parallel"], values["pipeline_rank"]
        if self._player.units is not None:
            self._player.units.begin()
        self._at("step_begin", here_too=True)
        in_flight: dict[tuple[int, int], tuple[Held, ...]] = {}
        for kind, chunk, microbatch in actions(self._schedule, p, self._walked(), self._chunks, self._group, rank):
            is_first, is_last = rank == chunk == 0, rank == p - 1 and chunk == self._chunks - 1
            self._turn = step, microbatch
            self._player.partition.is_last = microbatch == self._walked() - 1
            if kind == FORWARD:
                in_flight[chunk, microbatch] = self._forward(self._kinds(chunk), chunk, is_first, is_last)
            else:
                self._backward(self._kinds(chunk), chunk, in_flight.pop((chunk, microbatch)), is_first, is_last)
        self._at("last_reduce", here_too=True)

    def _kinds(self, chunk: int) -> Sequence[str]:
        """Return the kinds of the layers of a chunk; one end of the model may have a chunk with a layer less."""
        rows, rank = self.rows, self.rows.values["pipeline_rank"]
        longest = -(-rows.layers // self._chunks)
        lightest = (0 if rank == 0 else self._chunks - 1) if rows.layers % self._chunks else None
        return rows.layer_kinds[: longest - (chunk == lightest)]

    def _forward(self, kinds: Sequence[str], chunk: int, is_first: bool, is_last: bool) -> tuple[Held, ...]:
        """Run the forward pass of a chunk; return the tensors that it saved: embedding, layers, and head with loss."""
        parts = self.rows.kept
        embedding: Held = {}
        self._at("chunk_forward", here_too=not is_first)
        if is_first:
            self._at("embedding_forward", parts["embedding"], embedding, True)
        saved: list[Held] = []
        for place, kind in enumerate(kinds):
            saved.append({})
            self._in_layer("forward", kind, (chunk, place), saved[-1])
        head: Held = {}
        loss: Held = {}
        last = parts["last"] if is_last else []
        self._at("head_forward", [row for row in last if row.component != LOSS], head, is_last)
        self._at("loss_forward", [row for row in last if row.component == LOSS], loss, is_last)
        self._at("after_forward", here_too=not is_last)
        return embedding, *saved, head, loss

    def _in_layer(self, way: str, kind: str, place: tuple[int, int], held: Held) -> None:
        """Run one pass of a layer of a chunk: the forward pass puts what it saves to what is ``held``."""
        player = self._player
        if self._of_layer is not None:
            player.rows = self._of_layer(Turn(*self._turn, *place))
        player.bound.enter(kind, *place)
        self._at(f"{kind}_{way}", player.rows.kept[kind] if way == "forward" else (), held, True)
        player.rows = self.rows

    def _backward(
        self, kinds: Sequence[str], chunk: int, parts: Sequence[Held], is_first: bool, is_last: bool
    ) -> None:
        """Run the backward pass of a chunk, which frees what its forward pass saved."""
        embedding, *layers, head, loss = parts
        self._player.gradients.clear()
        self._at("backward_start")
        self._at("loss_backward", held=loss, here_too=is_last)
        self._at("head_backward", held=head, here_too=is_last)
        self._at("norm_backward", held=head, here_too=is_last)
        self._at("head_reduce", held=head, here_too=is_last)
        self._at("stage_exchange", here_too=not is_last)
        for place in reversed(range(len(kinds))):
            self._in_layer("backward", kinds[place], (chunk, place), layers[place])
        self._at("embedding_backward", held=embedding, here_too=is_first)
        self._player.bound.end()
        self._at("backward_end")
        if self._player.units is not None:
            self._player.units.end()
