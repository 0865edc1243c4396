"""Megatron-Core's own schedules running its own model on one rank of a fake job: saved bytes at their peak.

Messages between stages arrive at once and are empty; everything else is computed, forward and backward. Tensors in the
schedule's own variables are no saved tensors, with one exception: of a micro-batch whose backward pass has ended, the
input that the stage received may be held on, which was saved by the first norm. With one chunk per rank it is the last
such micro-batch, by a variable of the loop, until the next forward pass returns; with several it is the newest of every
chunk, by the module, until the next forward pass of that chunk. The ledger's activations do not have these 2 s b h / t
bytes (with sequence parallelism); the test counts them on the way. After the last pass every chunk holds its newest
input and the gradient of it, through the optimizer step.
"""

from __future__ import annotations

from itertools import repeat
from random import Random
from typing import Any

import pytest
import torch
from counted import MEGATRON_CPU, values
from megatron.core import parallel_state
from megatron.core.pipeline_parallel import get_forward_backward_func
from oracles.instruments.ledger import evaluator, ledger
from oracles.instruments.live import Live
from oracles.instruments.saved import Saved
from oracles.instruments.storages import storages_in
from oracles.megatron_core.megatron_cpu import Batch, config, gpt_model, one_rank
from torch import Tensor

from shardmath.configuration.stages import listed
from shardmath.symbolic.implementations import Implementation
from shardmath.symbolic.parallel.walk import Action, actions
from shardmath.symbolic.parameters import BY_LETTER, BY_NAME


def forward_step(batches: Any, chunk: Any) -> tuple[Tensor, Any]:
    """Run one micro-batch through a chunk, as a training program does; the loss is a sum, which saves nothing."""
    batch = next(batches)
    labels = batch.labels if chunk.post_process else None
    output = chunk(batch.ids, batch.positions, batch.mask, labels=labels)
    return output, lambda losses: (losses.sum(), {})


def random_job(draw: Random) -> dict[str, int]:
    """Draw sizes, and a pipeline: groups of p or more micro-batches, of which the last may be smaller."""
    t, p, V = draw.choice((1, 2)), draw.choice((1, 2, 3, 4)), draw.choice((1, 2, 3))
    V = V if p > 1 else 1
    k = t * draw.randint(1, 2)
    G = p + draw.randint(0, 2) if V > 1 else 0
    rest = draw.choice((0, *range(p, G))) if V > 1 else 0
    m = G * draw.randint(1, 4) + rest if V > 1 else draw.randint(1, 2 * p)
    return {
        "t": t, "p": p, "V": V, "G": G, "r": draw.randrange(p), "sp": draw.randint(0, 1) if t > 1 else 0, "k": k,
        "a": k * draw.randint(1, 2), "d": 2 * draw.randint(1, 6), "h": t * draw.randint(1, 20),
        "f": t * draw.randint(1, 20), "s": 2 * t * draw.randint(1, 4), "b": draw.randint(1, 2),
        "u": t * draw.randint(4, 40), "tied": 0, "m": m, **random_layers(draw, p, V),
    }


def random_layers(draw: Random, p: int, V: int) -> dict[str, int]:
    """Draw layers of all stages, and sometimes others of the first and last.

    Embedding and loss may stand for a layer of the first and last chunk instead. Megatron-Core divides by zero where
    several chunks have no stage between these two.
    """
    each = V * draw.randint(1, 2)
    if p > 1 and draw.random() < 0.4:
        embedding, loss = draw.choice(((0, 1), (1, 0), (1, 1)) if p * each > 2 else ((0, 1), (1, 0)))
        return {"L": p * each - embedding - loss, "Lf": 0, "Ll": 0, "eemb": embedding, "eloss": loss}
    first, last = (draw.choice((0, V * draw.randint(1, 3))) for _ in range(2))
    if p == 1 or (p == 2 and V > 1 and first and last):
        first = last = 0
    layers = (first or each) + (last or each) * (p > 1) + max(0, p - 2) * each
    return {"L": layers, "Lf": first, "Ll": last, "eemb": 0, "eloss": 0}


def chosen_for(shape: dict[str, int]) -> tuple[Implementation, ...]:
    """The ledger's choices for a job; an interleaved schedule of one chunk per rank is 1F1B too."""
    uneven = any(shape[letter] for letter in ("Lf", "Ll", "eemb", "eloss"))
    return tuple(
        MEGATRON_CPU.with_choices(schedule=schedule, stages="uneven" if uneven else "even")
        for schedule in (("interleaved",) if shape["V"] > 1 else ("1f1b", "interleaved"))
    )


def run_step(draw: Random, shape: dict[str, int], **settings: Any) -> tuple[int, int, int]:
    """Run a step on one rank: elements of its parameters, its saved bytes at their peak, and bytes that stay alive.

    Gradients of parameters, buffers of collectives and the rotary angles, which exist once, are not counted with those.
    """
    with one_rank(shape, draw):
        configured = config(
            shape, deallocate_pipeline_outputs=True, batch_p2p_sync=False,
            microbatch_group_size_per_vp_stage=shape["G"] or None, **settings,
        )
        several = shape["V"] > 1
        chunks = [gpt_model(shape, configured, chunk=chunk if several else None) for chunk in range(shape["V"])]
        batch = Batch.of(shape).with_mask(None)
        run = get_forward_backward_func()
        parameters = [one for chunk in chunks for one in chunk.parameters()]
        for one in parameters:
            one.grad = torch.zeros_like(one)
        known = chunks, [one.grad for one in parameters], batch.ids, batch.labels, batch.positions
        with Live(*known) as live, Saved(chunks, batch.ids, batch.labels) as saved:
            run(
                forward_step_func=forward_step, data_iterator=[repeat(batch) for _ in chunks], model=chunks,
                num_microbatches=shape["m"], seq_length=shape["s"], micro_batch_size=shape["b"], forward_only=False,
            )
        angles = [chunk.rotary_pos_emb(shape["s"]) for chunk in chunks]
        others = storages_in(parallel_state.get_global_memory_buffer().buffer, angles)
    return sum(one.numel() for one in parameters), saved.peak, live.now - others.bytes()


def peaks(shape: dict[str, int], layers: list[int], layer: int, embedding: int, head: int) -> tuple[int, int]:
    """Most bytes of chunks in flight by a walk through the schedule; the second with inputs that are held on.

    ``layers`` are those of every chunk, the others bytes of one layer, of the embedding and of head and loss.
    """
    p, V, r = shape["p"], shape["V"], shape["r"]
    sizes = [count * layer for count in layers]
    sizes[0] += embedding * (r == 0)
    sizes[-1] += head * (r == p - 1)
    message = 2 * shape["h"] * shape["s"] * shape["b"] // (shape["t"] if shape["sp"] else 1)
    # Without a norm, in a chunk without layers, nothing saves what it receives.
    received = [message * ((r > 0 or chunk > 0) and sizes[chunk] > 0) for chunk in range(V)]
    order = actions("interleaved" if V > 1 else "1f1b", p, shape["m"], V, shape["G"] or p, r)
    return most(order, sizes, [0] * V), most(order, sizes, received)


@pytest.mark.cases(15, 300)
def test_saved_bytes_at_the_peak(draw: Random) -> None:
    shape = random_job(draw)
    elements, saved, stayed = run_step(draw, shape)
    V = shape["V"]
    known = values({}, "", **shape) | {"B": shape["m"] * shape["b"]}
    for chosen in chosen_for(shape):
        parameters, activation, inner, fuller, kept, layers, layer, embedding, *ends = ledger(
            chosen, "stage.parameters", "stage.activation", "stage.inner_activations",
            "stage.fuller_chunks.layer_backward", "stage.last_input.optimizer_step", "stage_layers", "layer.saved",
            "embedding.saved", "final_norm.saved", "head.saved", "loss.saved", **known,
        )
        first, last = shape["eemb"] * (shape["r"] == 0), shape["eloss"] * (shape["r"] == shape["p"] - 1)
        by_chunk = [(layers + first + last) // V] * V
        by_chunk[0] -= first
        by_chunk[-1] -= last
        assert sum(by_chunk) == layers
        assert elements == parameters
        assert stayed == kept
        assert (max(activation, inner + fuller), saved) == peaks(shape, by_chunk, layer, embedding, sum(ends))


@pytest.mark.cases(5, 100)
def test_listed_layers(draw: Random) -> None:
    """An explicit list of layers for every stage, some of which may have none."""
    shape = random_job(draw)
    p, V, r = shape["p"], shape["V"], shape["r"]
    stages = [draw.randint(0, 3) for _ in range(p * V)]
    stages[draw.randrange(p * V)] += 1
    shape |= {"L": sum(stages), "Lf": 0, "Ll": 0, "eemb": 0, "eloss": 0}
    layout = [["decoder"] * count for count in stages]
    layout[0].insert(0, "embedding")
    layout[-1].append("loss")
    elements, saved, stayed = run_step(draw, shape, pipeline_model_parallel_layout=layout)
    chosen = MEGATRON_CPU.with_choices(schedule="interleaved" if V > 1 else "1f1b", stages="listed")
    known = values({}, "", **shape) | {"B": shape["m"] * shape["b"]}
    by_rank = listed(evaluator(chosen), {BY_LETTER[letter].name: known.get(letter, 1) for letter in BY_LETTER}, stages)
    known |= {BY_NAME[name].letter: number for name, number in by_rank[r].items()}
    parameters, activation, kept, layer, embedding, *ends = ledger(
        chosen, "stage.parameters", "stage.activation", "stage.last_input.optimizer_step", "layer.saved",
        "embedding.saved", "final_norm.saved", "head.saved", "loss.saved", **known,
    )
    assert elements == parameters
    assert stayed == kept
    assert (activation, saved) == peaks(shape, stages[r::p], layer, embedding, sum(ends))


def most(order: list[Action], sizes: list[int], received: list[int]) -> int:
    """Most bytes of chunks in flight, and of inputs held on after their backward pass, at any forward pass."""
    in_flight: list[Action] = []
    held_on: dict[int, int] = {}
    newest: dict[int, int] = {}
    peak = 0
    several = len(sizes) > 1
    for action in order:
        forward = action._replace(kind="F")
        if action == forward:
            if several:
                held_on[action.chunk] = 0
            newest[action.chunk] = action.microbatch
            in_flight.append(action)
            peak = max(peak, sum(sizes[each.chunk] for each in in_flight) + sum(held_on.values()))
        else:
            in_flight.remove(forward)
            if not several or newest[action.chunk] == action.microbatch:
                held_on[action.chunk] = received[action.chunk]
    return peak
