"""Loss of supervised training in version 1 of LLaMA-Factory, whose model gets labels and makes a loss beside it."""

from __future__ import annotations

from random import Random

import pytest
import torch
from oracles.hugging_face.huggingface import causal_lm, random_shape, token_ids, with_large_vocabulary
from oracles.instruments.ledger import ledger
from oracles.instruments.live import Live
from oracles.instruments.saved import Saved
from oracles.instruments.traced import summed_rows
from oracles.losses.test_log_probs import stop_at_the_head, until_the_head
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel

from shardmath.symbolic.implementations import HUGGINGFACE

LOSS = HUGGINGFACE.with_choices(loss="log_probs_sft")
MOMENTS = ("after_forward", "loss_forward", "loss_backward")


def log_probs(model: PreTrainedModel, ids: Tensor) -> Tensor:
    """Return log-probabilities of labels as its trainer does, which holds the model's outputs until they are there."""
    outputs = model(input_ids=ids, labels=ids)
    logits = outputs.logits.float()
    labels = ids[..., 1:].contiguous().view(-1)
    scored = logits[..., :-1, :].contiguous().view(len(labels), -1)
    return -cross_entropy(scored, labels, reduction="none").view(len(ids), -1)


def loss_of(model: PreTrainedModel, ids: Tensor, weights: Tensor) -> Tensor:
    """Return the mean over labels by their weights."""
    weights = weights[..., 1:]
    return (-log_probs(model, ids) * weights).sum() / (weights.sum() + 1e-6)


@pytest.mark.cases(4, 40)
@pytest.mark.parametrize("sequences", [1, 3])
def test_peaks_and_what_is_kept(draw: Random, sequences: int) -> None:
    shape = with_large_vocabulary(draw, random_shape(draw)) | {"b": sequences}
    shape["s"] = max(shape["s"], shape["h"], draw.randint(16, 40))
    ids, weights = token_ids(shape), torch.ones(shape["b"], shape["s"])
    model = causal_lm("llama", shape, "sdpa")
    with Saved() as saved:
        loss = loss_of(model, ids, weights)
        kept = saved.bytes(model, ids, weights)
    assert summed_rows(LOSS, ["loss.weighted_value"], shape) == loss.untyped_storage().nbytes()
    del loss
    handle = model.lm_head.register_full_backward_pre_hook(stop_at_the_head)
    with Live(model, ids, weights) as live:
        loss = loss_of(model, ids, weights)
        after, forward = live.now, live.peak
        live.restart()
        until_the_head(loss)
        backward = live.peak
    handle.remove()
    terms = [f"stage.loss.{moment}" for moment in MOMENTS]
    rest, tables, *moments = ledger(LOSS, "stage.activation", "stage.buffer", *terms, **shape)
    assert abs(kept - rest) <= 64
    for counted, moment in zip((after, forward, backward), moments, strict=True):
        assert abs(counted - rest - tables - moment) <= 64 * shape["b"] * shape["s"]
