"""Gradients of PyTorch and nanotron: kept or added, copied into DistributedDataParallel's buckets and back."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from oracles.hugging_face.huggingface import causal_lm, random_shape, token_ids
from oracles.instruments.copied import Copied
from oracles.instruments.processes import on_ranks
from oracles.instruments.times import timed
from torch.distributed import GradBucket
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from shardmath.symbolic.implementations import HUGGINGFACE, NANOTRON
from shardmath.symbolic.parallel.legality import fixed_values

#: A machine whose memory moves a byte in a second.
BYTES = {"Wm": 1, "ew": 1000, "w": 2, "b": 1}


def train(rank: int, cases: list[list[Any]], shared: bool = True) -> list[dict[str, int]]:
    """Run the micro-batches of one step of every case: bytes that are added and copied."""
    found = []
    for shape, micro_batches in cases:
        model: Any = causal_lm("llama", shape, "sdpa", dtype=torch.bfloat16)
        whole = DistributedDataParallel(model) if shared else model
        copied = Copied(model.parameters())
        for place in range(micro_batches):
            last = place == micro_batches - 1 or not shared
            with nullcontext() if last else whole.no_sync(), copied:
                whole(input_ids=token_ids(shape), labels=token_ids(shape)).loss.backward()
        found.append(dict(copied.bytes))
    return found


def drawn(draws: list[Random]) -> list[list[Any]]:
    return [[random_shape(draw) | {"tied": 0}, draw.randint(1, 3)] for draw in draws]


@pytest.mark.cases(4, 40)
def test_the_first_gradient_is_kept_and_others_are_added(draws: list[Random]) -> None:
    cases = drawn(draws)
    for (shape, micro_batches), copied in zip(cases, train(0, cases, shared=False), strict=True):
        terms = timed(HUGGINGFACE, **shape | fixed_values(HUGGINGFACE) | BYTES | {"B": micro_batches})
        unpadded = 2 * 3 * terms["stage.parameters"] * (micro_batches - 1)
        assert copied.get("added", 0) == unpadded
        assert terms["stage.accumulating"] * micro_batches == pytest.approx(float(unpadded), rel=0.02, abs=10**5)


@pytest.mark.cases(2, 20)
def test_buckets_are_filled_and_emptied_once(draws: list[Random], tmp_path: Path) -> None:
    cases = drawn(draws)
    for (shape, micro_batches), copied in zip(cases, on_ranks(train, 2, tmp_path, cases)[0], strict=True):
        terms = timed(HUGGINGFACE, **shape | fixed_values(HUGGINGFACE) | BYTES | {"B": 2 * micro_batches, "D": 2})
        once = 2 * 2 * terms["stage.parameters"]
        assert copied["into buckets"] == copied["out of buckets"] == once
        assert copied.get("added", 0) == 2 * 3 * terms["stage.parameters"] * (micro_batches - 1)
        whole = 2 * once + copied.get("added", 0)
        assert terms["stage.accumulating"] * micro_batches == pytest.approx(float(whole), rel=0.02, abs=10**5)


def accumulate(rank: int, cases: list[list[Any]], shared: bool = True) -> list[dict[str, int]]:
    """Run the micro-batches of one step as nanotron does (``FP32GradientAccumulator``), and count what is moved.

    Gradients are added to sums in fp32 behind each backward pass; in the last one by DistributedDataParallel's hook,
    which gets them in buckets.
    """
    found = []
    for shape, micro_batches in cases:
        model: Any = causal_lm("llama", shape, "sdpa", dtype=torch.bfloat16)
        parameters = list(model.parameters())
        masters = [torch.nn.Parameter(each.detach().float()) for each in parameters]
        for master in masters:
            master.grad = torch.zeros_like(master)
        sums = {each: master.grad for each, master in zip(parameters, masters, strict=True)}
        whole = DistributedDataParallel(model, broadcast_buffers=False) if shared else model
        if shared:
            whole.register_comm_hook(sums, lambda state, bucket: _add(state, bucket))  # noqa: PLW0108 (its annotations are text)
        copied = Copied([*parameters, *masters])
        for place in range(micro_batches):
            reduced = shared and place == micro_batches - 1
            with nullcontext() if reduced or not shared else whole.no_sync(), copied:
                whole(input_ids=token_ids(shape), labels=token_ids(shape)).loss.backward()
                for each in parameters:
                    if not reduced:
                        sums[each].add_(each.grad)
            model.zero_grad()
        found.append(dict(copied.bytes))
    return found


def _add(sums: dict[Any, torch.Tensor], bucket: GradBucket) -> Future[torch.Tensor]:
    """Add the gradients of a bucket to their sums, and give the bucket back as it is."""
    for each, grad in zip(bucket.parameters(), bucket.gradients(), strict=True):
        sums[each].add_(grad.view_as(sums[each]))
    done: Future[torch.Tensor] = Future()
    done.set_result(bucket.buffer())
    return done


@pytest.mark.cases(2, 20)
@pytest.mark.parametrize("shared", [False, True])
def test_nanotron_adds_every_gradient_to_its_sum(draws: list[Random], shared: bool, tmp_path: Path) -> None:
    """With ZeRO-1 there are no buckets: it sums all gradients itself, behind the last backward pass."""
    cases = drawn(draws)
    found = on_ranks(accumulate, 2, tmp_path, cases)[0] if shared else accumulate(0, cases, shared=False)
    for (shape, micro_batches), copied in zip(cases, found, strict=True):
        letters = shape | fixed_values(NANOTRON) | BYTES | {"w": 4, "B": 2 * micro_batches, "D": 2}
        terms = timed(NANOTRON, **letters | {"zero1": int(not shared)})
        assert copied["added"] == 10 * terms["stage.parameters"] * micro_batches
        once = 4 * shared * terms["stage.parameters"]
        assert copied.get("into buckets", 0) == copied.get("out of buckets", 0) == once
        assert terms["stage.accumulating"] * micro_batches == pytest.approx(float(sum(copied.values())), rel=0.02)
