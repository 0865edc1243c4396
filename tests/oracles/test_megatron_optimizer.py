"""Megatron-Core's gradient and parameter buffers and its AdamW states on one rank, against the ledger.

Bytes are those of PyTorch's AdamW; Transformer Engine's and Apex' fused ones keep the same states but for the
four bytes of each tensor's step. The 4 bytes more that the constructor leaves are a scale of 1.0.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from oracles.ledger import ledger
from oracles.live import Live
from oracles.megatron_cpu import config, gpt_model, one_rank
from oracles.megatron_data import adamw, data_parallel

from shardmath.symbolic.implementations import MEGATRON
from shardmath.symbolic.parallel.shards import buffer_size, elements_in_shard, tensors_in_shard


def random_layout(draw: Random) -> dict[str, int]:
    t, p, D = draw.choice((1, 2, 4)), draw.choice((1, 1, 2)), draw.choice((1, 2, 3, 5, 8, 64))
    k = t * draw.randint(1, 2)
    return {
        "t": t, "c": draw.choice((1, 2, 3)), "p": p, "r": draw.randrange(p), "D": D, "k": k,
        "a": k * draw.randint(1, 2), "d": 2 * draw.randint(1, 8), "h": draw.randint(1, 60),
        "f": t * draw.randint(1, 40), "L": p * draw.randint(1, 2), "u": t * draw.randint(4, 60), "s": 4, "b": 1,
        "tied": draw.randint(0, 1), "bias": draw.randint(0, 1), "qkn": draw.randint(0, 1),
        "w": draw.choice((2, 4)), "zero1": draw.randint(0, 1),
    }


@pytest.mark.cases(20, 250)
def test_buffers_and_states(draw: Random) -> None:
    shape = random_layout(draw)
    distributed, shards = bool(shape["zero1"]), shape["D"] * shape["c"]
    with one_rank(shape, draw) as replica:
        settings = config(shape)
        model = gpt_model(shape, settings)
        buckets = sizes_by_bucket(model, distributed)
        with Live(model) as live:
            wrapped = data_parallel(settings, model, distributed=distributed, gradient_bytes=shape["w"])
            after_wrapping = live.now
            optimizer = adamw(wrapped, distributed=distributed)
            after_making = live.now
            optimizer.step()
            after_step = live.now
    buffer = own = sum(map(sum, buckets))
    tensors = sum(map(len, buckets))
    if distributed:
        buffer = sum(buffer_size(sizes, shards) for sizes in buckets)
        own = sum(elements_in_shard(sizes, shards, replica) for sizes in buckets)
        tensors = sum(len(tensors_in_shard(sizes, shards, replica)) for sizes in buckets)
    assert after_wrapping == (shape["w"] + 2 * distributed) * buffer
    assert after_making - after_wrapping == 4 * own + 4
    assert after_step - after_making == (8 + 4 * (shape["w"] == 2)) * own + 4 * tensors

    parameters, padded, weights, gradients, states, copies = ledger(
        MEGATRON, "stage.parameters", "stage.buffer_elements", "stage.weight", "stage.gradient", "stage.optimizer",
        "stage.gradient_copies.optimizer_step", **shape,
    )
    assert parameters == sum(map(sum, buckets))
    if len(buckets) == 1:
        assert (padded, weights, gradients) == (buffer, 2 * buffer, shape["w"] * buffer)
        # The term gives the padding states too; the rank that holds the end of the buffer has none for it.
        assert states * (shards if distributed else 1) == 12 * buffer
        assert copies * (shards if distributed else 1) == 4 * (shape["w"] == 2) * buffer


@pytest.mark.cases(6, 60)
@pytest.mark.parametrize(("name", "momentum"), [("sgd_momentum", 0.9), ("sgd", 0.0)])
def test_states_of_sgd(draw: Random, name: str, momentum: float) -> None:
    shape = random_layout(draw) | {"zero1": 0}
    with one_rank(shape, draw):
        settings = config(shape)
        model = gpt_model(shape, settings)
        with Live(model) as live:
            wrapped = data_parallel(settings, model, distributed=False, gradient_bytes=shape["w"])
            after_wrapping = live.now
            optimizer = adamw(wrapped, distributed=False, optimizer="sgd", sgd_momentum=momentum)
            optimizer.step()
            after_step = live.now
    states, copies = ledger(
        MEGATRON.with_choices(optimizer=name), "stage.optimizer", "stage.gradient_copies.optimizer_step", **shape
    )
    assert after_step - after_wrapping == states + copies + 4


def sizes_by_bucket(model: Any, distributed: bool) -> list[list[int]]:
    """Elements of the parameters in order of registration, by bucket.

    A tied matrix on two pipeline ranks has a bucket of its own, which is padded and cut into shards like the
    other; the ledger knows one bucket only, so its padding is too small there.
    """
    parameters = list(model.parameters())
    alone = [one.numel() for one in parameters if distributed and getattr(one, "shared_embedding", False)]
    others = [one.numel() for one in parameters if not (distributed and getattr(one, "shared_embedding", False))]
    return [sizes for sizes in (others, alone) if sizes]
