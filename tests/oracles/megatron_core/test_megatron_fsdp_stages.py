"""Megatron-FSDP's own buckets on pipeline stages, and their order in a step, against the ledger and the replay."""

from __future__ import annotations

from random import Random

import pytest
from oracles.instruments.ledger import ledger
from oracles.megatron_core.megatron_cpu import config, gpt_model, one_rank
from oracles.megatron_core.megatron_fsdp import watched_step, wrapped
from oracles.megatron_core.test_megatron_fsdp import FSDP, gap, random_shape

from shardmath.account.configured import configured
from shardmath.allocator.trace import Action, Event
from shardmath.compiler.evaluators import terms_at
from shardmath.models.model import Model
from shardmath.steps.rows import Rows
from shardmath.steps.step import Steps

#: Rows of buckets by their kind.
KINDS = {"gathered": "weights", "unreduced": "gradients"}


@pytest.mark.cases(8, 200)
def test_buckets_of_a_stage(draw: Random) -> None:
    """Buckets outside of the layers lie behind those of the layers where a rank has no embedding.

    A tied head and the final norm have buckets of their own there, which are counted as one: it waits for longer.
    """
    shape = random_shape(draw, 3)
    stages = draw.choice((2, 3))
    shape |= {"p": stages, "r": draw.choice((0, stages - 1, stages - 1, 1)), "L": stages * draw.randint(1, 4)}
    first, last = shape["r"] == 0, shape["r"] == stages - 1
    with one_rank(shape, draw):
        model = wrapped(gpt_model(shape, config(shape)), shape, 3)
        (after_forward, asked, after), _ = watched_step(model, shape)
        groups = model.param_and_grad_buffer.parameter_groups
        padded = [group.main_grad_buffer.bucket_index.size for group in groups]
        del model, groups  # nothing prints tensors whose memory is gone
    names = ("buffer_elements", "gathered_last.loss_forward" if last else "gathered.after_forward",
             "unreduced_head.head_backward", "unreduced_layers.layer_backward",
             "unreduced_embedding.embedding_backward")
    whole, at_the_end, head, layers, embedding = ledger(FSDP, *(f"stage.{name}" for name in names), **shape)
    saved, = ledger(FSDP, "layer.saved", **shape)
    assert after == 0
    more = sum(padded) - whole
    assert 0 <= more <= gap(shape) * len(padded)
    if more:
        return
    own = shape["L"] // stages
    assert after_forward == at_the_end
    most = max(size - (own - 1 - unit) * saved for unit, size in asked if unit is not None)
    assert most <= layers if last and shape["tied"] else most == layers
    if last:
        assert max(size for unit, size in asked[:2 * len(padded)] if unit is None) == head
    if first:
        (_, before), (_, filled) = asked[-2:]
        assert max(before, filled) <= embedding


def made_and_freed(events: list[Event]) -> list[tuple[str, int]]:
    """List the buckets of a trace as they are made, and below zero as they are freed."""
    alive: dict[int, tuple[str, int]] = {}
    listed = []
    for event in events:
        if event.action is Action.ALLOCATE and event.row in KINDS:
            alive[event.key] = KINDS[event.row], event.size
            listed.append(alive[event.key])
        elif event.action is Action.FREE and event.key in alive:
            kind, size = alive.pop(event.key)
            listed.append((kind, -size))
    return listed


def replayed(shape: dict[str, int], stage: int) -> list[tuple[str, int]]:
    """Return what the first step of a replay makes and frees of buckets, for sizes by letter."""
    sizes = {"name": "drawn", "hidden_size": "h", "num_attention_heads": "a", "num_kv_heads": "k", "head_dim": "d",
             "ffn_hidden_size": "f", "num_layers": "L", "vocab_size": "u"}
    model = Model.named("llama-3.2-1b").model_dump() | {"tied_embeddings": bool(shape["tied"])}
    model |= {name: shape.get(letter, letter) for name, letter in sizes.items()}
    job = configured(
        Model(**model), "h100-80gb", kernels={"data_parallel": "megatron_fsdp", "weight_gradient": "separate"},
        zero_stage=stage, data_parallel=shape["D"], context_parallel=shape["c"], tensor_parallel=shape["t"],
        sequence_parallel=False, seq_length=shape["s"] * shape["c"], global_batch_size=2 * shape["D"],
        vocab_multiple=1, gradients="fp32" if shape["w"] == 4 else "bf16", single_bucket=shape["sbk"],
        ddp_bucket_size=shape["bz"],
        communication_unit_size=shape["cu"], recompute="full" if shape.get("rfull") else "none").job
    values = job.on_rank(0)
    rows = Rows.of(job.evaluator, values, terms_at(job.evaluator.terms, values))
    return made_and_freed(Steps(rows, "1f1b", 1).run(steps=1))


@pytest.mark.cases(10, 200)
@pytest.mark.parametrize("stage", [2, 3])
def test_order_of_buckets(draw: Random, stage: int) -> None:
    """Two micro-batches make and free buckets as the replay has them, but for padding that the ledger leaves out."""
    shape = random_shape(draw, stage) | {"rfull": draw.randint(0, 1), "rn": 1}
    with one_rank(shape, draw):
        model = wrapped(gpt_model(shape, config(shape)), shape, stage)
        _, found = watched_step(model, shape)
        groups = model.param_and_grad_buffer.parameter_groups
        padded = [group.main_grad_buffer.bucket_index.size for group in groups]
        plain = [sum(weight.numel() for weight in group.params) for group in groups]
        del model, groups  # nothing prints tensors whose memory is gone
    whole, = ledger(FSDP, "stage.buffer_elements", **shape)
    if sum(padded) == whole and (stage == 3 or shape["sbk"] or padded == plain):
        assert found.events == replayed(shape, stage)
