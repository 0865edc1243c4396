"""Log-probabilities of labels from fp32 logits, as LLaMA-Factory's preference training computes them."""

from __future__ import annotations

from random import Random

import pytest
import torch
from oracles.huggingface import causal_lm, random_shape, token_ids, with_large_vocabulary
from oracles.ledger import ledger
from oracles.live import Live
from torch import Tensor

from shardmath.symbolic.implementations import HUGGINGFACE


def log_probs(logits: Tensor, labels: Tensor) -> Tensor:
    """Sum up the log-probabilities of labels that count, a token ahead."""
    labels, logits = labels[:, 1:].clone(), logits[:, :-1, :]
    counts = labels != -100
    labels = labels.masked_fill(~counts, 0)
    each = torch.gather(logits.log_softmax(-1), dim=2, index=labels.unsqueeze(2)).squeeze(2)
    return (each * counts).sum(-1)


@pytest.mark.cases(6, 60)
def test_log_probs(draw: Random) -> None:
    """Gradients of scored logits and log-softmax live beside the logits that the trainer still holds."""
    shape = with_large_vocabulary(draw, random_shape(draw))
    shape["s"] = max(shape["s"], 2)
    model, ids = causal_lm("llama", shape, "sdpa"), token_ids(shape)
    with Live(model, ids) as live:
        logits = model(input_ids=ids).logits.to(torch.float32)
        score = log_probs(logits, ids)
        after = live.now
        live.restart()
        torch.nn.functional.logsigmoid(score).sum().backward()
        peak = live.peak
    forward, backward = (ledger(HUGGINGFACE.with_choices(loss="log_probs"), "stage.activation", "stage.buffer",
                                f"stage.loss.{moment}", **shape) for moment in ("after_forward", "loss_backward"))
    scores = 64 * shape["b"] + 64 * shape["s"] * shape["b"]  # sums of sequences, and gradients of single tokens
    assert 0 <= after - sum(forward) <= scores
    assert 0 <= peak - sum(backward) <= scores
    assert logits.numel() == shape["s"] * shape["b"] * shape["u"]
