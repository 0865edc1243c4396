"""Peaks outside of a step: FSDP1 while it wraps a model, a full state dict of FSDP2, and the loss of an evaluation."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
import torch
from oracles.extent import FULL
from oracles.hugging_face.huggingface import causal_lm, random_shape, token_ids, with_large_vocabulary
from oracles.hugging_face.outside_step import run_all
from oracles.instruments.ledger import ledger
from oracles.instruments.live import Live
from oracles.instruments.processes import on_ranks
from transformers.trainer_pt_utils import EvalLoopContainer

from shardmath.symbolic.implementations import HUGGINGFACE
from shardmath.symbolic.parallel.legality import fixed_values

FSDP = HUGGINGFACE.with_choices(data_parallel="fsdp", precision="autocast")


@pytest.mark.cases(3, 20)
@pytest.mark.parametrize("ranks", [2, 3, 4] if FULL else [2])
def test_loading_and_saving(draws: list[Random], ranks: int, tmp_path: Path) -> None:
    """The last rank keeps no whole state dict. Buffers come last, with what lies outside of the layers."""
    shapes = [_aligned(draw) for draw in draws]
    results = on_ranks(run_all, ranks, tmp_path, shapes)
    for shape, found in zip(shapes, results[-1], strict=True):
        known = {**shape, **fixed_values(FSDP), "D": ranks}
        for way in ("fsdp1", "fsdp1_whole"):
            peak, buffers = found[way]
            loading = ledger(FSDP.with_choices(loading=way), "stage.loading", **known)[0]
            assert peak - loading in (0, buffers), way
        saving, weights, states = ledger(FSDP, "stage.saving", "stage.weight", "stage.optimizer", **known)
        inner = 4 * shape["h"] * max(shape["f"], shape["a"] * shape["d"])
        assert saving - weights - states - inner <= found["saving"] <= saving - weights - states


def _aligned(draw: Random) -> dict[str, int]:
    """Draw sizes of which all are multiples of 16 bytes and of the ranks."""
    k = draw.randint(1, 3)
    a = k * draw.randint(1, 3)
    return {"k": k, "a": a, "d": 24 * draw.randint(1, 2), "h": 24 * a * draw.randint(1, 2),
            "f": 24 * draw.randint(1, 9), "u": 24 * draw.randint(1, 20),
            "L": draw.randint(1, 4), "s": 4, "b": 1, "tied": 0}


@pytest.mark.cases(6, 60)
def test_loss_of_an_evaluation(draw: Random) -> None:
    """Without gradients the loss peaks: logits, their fp32 copy and log-softmax; of earlier batches logits may stay."""
    shape = with_large_vocabulary(draw, random_shape(draw))
    model, ids = causal_lm("llama", shape, "sdpa").eval(), token_ids(shape)
    with Live(model, ids) as live, torch.no_grad():
        output = model(input_ids=ids, labels=ids)
    letters = {**shape, "b": 1, "eb": shape["b"]}
    evaluating, weights, states = ledger(
        HUGGINGFACE, "stage.evaluating", "stage.weight", "stage.optimizer", **letters, ek=0)
    assert live.peak == evaluating - weights - states
    kept, batches = EvalLoopContainer(do_nested_concat=True), draw.randint(6, 9)
    with Live(output.logits) as live:
        for _ in range(batches):
            kept.add(output.logits.clone())
    evaluating = ledger(HUGGINGFACE, "stage.evaluating", **letters, ek=batches)[0]
    assert live.peak == evaluating - weights - states
