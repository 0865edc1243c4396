"""Megatron-Core's buffers and AdamW states with experts on one rank of a fake job, against the ledger."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from counted import MEGATRON_CPU
from megatron.core import parallel_state
from oracles.instruments.ledger import ledger
from oracles.instruments.live import Live
from oracles.megatron_core.megatron_cpu import one_rank
from oracles.megatron_core.megatron_data import adamw, data_parallel, step_on_lists
from oracles.megatron_core.megatron_experts import model_of, settings_of, whole_linears

from shardmath.symbolic.parallel.shards import buffer_size, elements_in_shard

NAMES = ("stage.parameters", "stage.expert_parameters", "stage.buffer_elements", "stage.expert_buffer_elements",
         "stage.shard_elements", "stage.expert_shard_elements", "stage.optimizer", "stage.all_parameters")


def random_layout(draw: Random) -> dict[str, int]:
    """Draw a job with experts: its expert-parallel ranks lie in data, context and tensor parallelism."""
    t, p, c, D = draw.choice((1, 2)), draw.choice((1, 1, 2, 3)), draw.choice((1, 2)), draw.choice((1, 2, 3, 6))
    et = draw.choice([degree for degree in (1, 2) if degree <= t])
    e = draw.choice([degree for degree in (1, 1, 2, 3, 4) if D * c * t % (degree * et) == 0])
    V = draw.choice((1, 2, 3)) if p > 1 else 1
    step = 1 if V > 1 else draw.choice((1, 1, 2))
    L = p * V * step * draw.randint(1, 2)
    k, E = t * draw.randint(1, 2), e * draw.randint(1, 3)
    size = draw.choice((1, 1, 64))
    shape = {
        "t": t, "c": c, "D": D, "e": e, "et": et, "p": p, "r": draw.randrange(p), "V": V, "sp": int(t > 1), "k": k,
        "a": k * draw.randint(1, 2), "d": 2 * draw.randint(1, 5), "h": t * size * draw.randint(1, 10),
        "f": t * size * draw.randint(1, 20), "L": L, "ld": draw.randint(0, L // 2) if V == step == 1 else 0,
        "step": step, "E": max(E, 2 * e), "q": 2, "fe": et * size * draw.randint(1, 12),
        "fs": draw.choice((0, t * size * draw.randint(1, 12))), "sgate": draw.randint(0, 1),
        "s": 4 * t * c, "b": 1, "u": t * draw.randint(4, 30), "tied": draw.randint(0, 1),
        "mtp": draw.choice((0, 0, 1)), "lk": 0, "lq": 0, "dr": 0, "dv": 0,
        "w": draw.choice((2, 4)), "zero1": draw.choice((0, 1, 1)),
    }
    shape["sgate"] *= int(shape["fs"] > 0)
    shape["lbias"] = draw.randint(0, 1) if not shape["fs"] and et == 1 else 0
    if draw.randint(0, 1):
        rotary = 2 * draw.randint(1, 3)
        shape |= {"k": shape["a"], "dr": rotary, "d": rotary + draw.randint(1, 6), "dv": draw.randint(1, 6),
                  "lk": draw.randint(1, 9), "lq": draw.choice((0, draw.randint(1, 9)))}
    return shape


@pytest.mark.cases(24, 300)
def test_buffers_and_states_with_experts(draw: Random) -> None:
    shape, predictions = random_layout(draw), draw.choice(("experts", "dense"))
    shards = shape["D"] * shape["c"], shape["D"] * shape["c"] * shape["t"] // (shape["e"] * shape["et"])
    with one_rank(shape, draw) as replica, whole_linears():
        settings = settings_of(shape, "allgather")
        models = [model_of(shape, settings, chunk if shape["V"] > 1 else None, predictions)
                  for chunk in range(shape["V"])]
        buckets = [bucket for model in models for bucket in sizes_by_bucket(model, bool(shape["zero1"]))]
        places = replica, parallel_state.get_expert_data_parallel_rank()
        with Live(*models) as live:
            wrapped = [data_parallel(settings, model, distributed=bool(shape["zero1"]), gradient_bytes=shape["w"])
                       for model in models]
            after_wrapping = live.now
            optimizer = adamw(*wrapped, distributed=bool(shape["zero1"]))
            master = live.now - after_wrapping
            scales = 4 * len(optimizer.chained_optimizers)  # of 1.0
            growth, lists = step_on_lists(optimizer, live)

    def summed(count: Any, group: int) -> int:
        return sum(count(sizes) for sizes, of_experts in buckets if of_experts == group)

    parameters, buffers = [summed(sum, group) for group in (0, 1)], [summed(sum, group) for group in (0, 1)]
    own = fullest = sum(parameters)
    if shape["zero1"]:
        buffers = [summed(lambda sizes, ranks=ranks: buffer_size(sizes, ranks), group)
                   for group, ranks in enumerate(shards)]
        own, fullest = (
            sum(summed(lambda sizes, ranks=ranks, at=at: elements_in_shard(sizes, ranks, at), group)
                for group, (ranks, at) in enumerate(zip(shards, at_places, strict=True)))
            for at_places in (places, (0, 0))
        )
    assert after_wrapping == (shape["w"] + 2 * shape["zero1"]) * sum(buffers)
    assert master == 4 * own + scales

    implementation = MEGATRON_CPU.with_choices(
        layers="experts", heads="latent" if shape["lk"] else "grouped", biases="linear", predictions=predictions,
        schedule="interleaved" if shape["V"] > 1 else "1f1b",
    )
    dense, expert, buffer, expert_buffer, shard, expert_shard, states, every = ledger(
        implementation, *NAMES, **shape, B=shape["p"] * shape["D"],
    )
    roots, = ledger(implementation.with_choices(peak="megatron_local", optimizer_kernel="foreach"),
                    "stage.listed_roots.optimizer_step", **shape, B=shape["p"] * shape["D"])
    assert growth == 4 * max(lists) + 4 * (shape["w"] == 2) * own or not own
    vectors = sum(each.numel() for model in models for each in model.parameters() if each.ndim == 1)
    assert 4 * max(lists) <= roots <= 4 * (max(lists) + shape["zero1"] * (vectors + shard + expert_shard - own))
    assert dense + expert == every == sum(parameters)
    assert buffer + expert_buffer == sum(buffers)
    if shape["e"] > 1:
        assert ([dense, expert], [buffer, expert_buffer]) == (parameters, buffers)
    assert states == 12 * (shard + expert_shard)
    if all(size % 64 == 0 for sizes, _ in buckets for size in sizes):
        assert shard + expert_shard == fullest
    assert 0 <= shard + expert_shard - fullest <= 63 * sum(len(sizes) for sizes, _ in buckets)


def sizes_by_bucket(model: Any, distributed: bool) -> list[tuple[list[int], int]]:
    """Elements of the parameters in order of registration, by bucket, and 1 for the bucket of experts."""
    kinds: dict[tuple[int, bool], list[int]] = {}
    for parameter in model.parameters():
        alone = distributed and getattr(parameter, "shared_embedding", False)
        of_experts = int(not getattr(parameter, "allreduce", True))
        kinds.setdefault((of_experts, alone), []).append(parameter.numel())
    return [(sizes, of_experts) for (of_experts, _), sizes in kinds.items()]
