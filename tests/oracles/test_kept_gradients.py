"""Gradients of PyTorch itself: kept first, added later, copied into DistributedDataParallel's buckets and back."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from oracles.copied import Copied
from oracles.huggingface import causal_lm, random_shape, token_ids
from oracles.processes import on_ranks
from oracles.times import timed
from torch.nn.parallel import DistributedDataParallel

from shardmath.symbolic.implementations import HUGGINGFACE
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
