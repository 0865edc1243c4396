"""Replayed steps with latent attention against Megatron-Core itself: every tensor, in the order of its allocation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from random import Random
from typing import Any

import pytest
from oracles.megatron_core.megatron_cpu import Shape
from oracles.megatron_core.megatron_latent import recorded

from shardmath.account.configured import configured
from shardmath.allocator.trace import Action, Event
from shardmath.compiler.evaluators import terms_at
from shardmath.models.model import Model
from shardmath.steps.rows import Rows
from shardmath.steps.step import Steps

pytestmark = pytest.mark.slow
#: Rows of attention and of the norm before it; its input and tables are left out, and its gradient bears no such name.
OF_ATTENTION, OUTSIDE = ("latent", "o_proj."), ("latent_tables", "latent_norm.input")


def drawn(draw: Random) -> Shape:
    """Draw sizes of one layer; one in three has queries that are not compressed."""
    t = draw.choice((1, 2, 4))
    return {"t": t, "sp": int(t > 1), "h": t * draw.randint(3, 30), "a": t * draw.randint(1, 4), "L": 1, "f": 4096,
            "dr": 4 * draw.randint(1, 4), "d": 0, "dv": draw.randint(1, 30), "lk": draw.randint(2, 60),
            "lq": draw.choice((0, 1, 1)) * draw.randint(2, 60), "s": 4 * t * draw.randint(2, 20),
            "b": draw.randint(1, 3), "n": draw.randint(1, 30)}


def ours(shape: Shape, separate: bool, **kernels: str) -> list[Event]:
    """Return the events of attention in the first of two steps of a model with one layer of these sizes."""
    model = Model(
        name="drawn", source="", hidden_size=shape["h"], ffn_hidden_size=shape["f"], num_layers=1,
        num_attention_heads=shape["a"], num_kv_heads=shape["a"], head_dim=shape["d"], vocab_size=4096,
        tied_embeddings=False, qkv_bias=False, qk_norm=False, q_lora_rank=shape["lq"], kv_lora_rank=shape["lk"],
        qk_rope_head_dim=shape["dr"], v_head_dim=shape["dv"], max_seq_length=8192)
    kernels |= {"weight_gradient": "separate"} if separate else {}
    job = configured(
        model, "b300", seq_length=shape["s"], micro_batch_size=shape["b"], global_batch_size=shape["b"],
        tensor_parallel=shape["t"], sequence_parallel=bool(shape["sp"]), num_gpus=shape["t"], kernels=kernels).job
    values = job.on_rank(0)
    account = terms_at(job.evaluator.terms, values)
    steps = Steps(Rows.of(job.evaluator, values, account), "1f1b", 1)
    events = steps.run()
    assert steps.trace.peak == account["stage.total"]
    known = {event.key for event in events if event.row.startswith(OF_ATTENTION) and not event.row.startswith(OUTSIDE)}
    made = [event for event in events if event.action is Action.ALLOCATE]
    known |= {norm.key for before, norm in pairwise(made)
              if before.row == "latent.hidden.sum" and norm.row == "norm.gradient"}
    own = [event for event in events if event.key in known]
    return own[:len(own) // 2]


def changes(events: Sequence[Event]) -> Iterator[tuple[bool, list[int]]]:
    """Yield the bytes of tensors as they are made, and of those freed between two that are made, in order of size."""
    sizes = {event.key: event.size for event in events if event.action is Action.ALLOCATE}
    for is_made, group in groupby(events, lambda event: event.action is Action.ALLOCATE):
        found = [sizes[event.key] for event in group]
        yield is_made, found if is_made else sorted(found)


@pytest.mark.cases(8, 100)
@pytest.mark.parametrize("rope", ["fused", "unfused"])
def test_order_of_latent_attention_is_megatron_cores(draws: list[Random], rope: str) -> None:
    for draw in draws:
        shape: dict[str, Any] = drawn(draw)
        shape["d"] = shape["dr"] + shape["n"]
        separate = draw.random() < 0.5
        theirs = recorded(shape, draw, rope == "fused", separate).events
        assert [*changes(ours(shape, separate, rope=rope))] == [*changes(theirs)], shape
