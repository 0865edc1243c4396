"""PyTorch's own cross entropy behind a model: on 16-bit logits, on fp32 ones, and on those of a whole vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
import torch
from oracles.hugging_face.huggingface import FAMILIES, causal_lm, random_shape, token_ids, with_large_vocabulary
from oracles.instruments.ledger import ledger
from oracles.instruments.live import Live
from oracles.losses.test_compiled_loss import BESIDE
from torch import Tensor
from torch.nn.functional import cross_entropy

from shardmath.symbolic.implementations import HUGGINGFACE, MEGATRON

MOMENTS = ("after_forward", "loss_forward", "loss_backward")


class _HeadError(Exception):
    """The gradient of the logits is there."""


def stop(_: Tensor) -> None:
    """End a backward pass."""
    raise _HeadError


@pytest.mark.cases(3, 30)
@pytest.mark.parametrize("loss", ["float", "bf16"])
def test_a_loss_of_logits(draw: Random, loss: str) -> None:
    """Most before, during and behind the loss, whose caller holds the logits until it has one."""
    family = draw.choice(list(FAMILIES))
    shape = with_large_vocabulary(draw, random_shape(draw)) | FAMILIES[family][2]
    model, ids, labels = causal_lm(family, shape, "sdpa"), token_ids(shape), token_ids(shape)
    with Live(model, ids, labels) as live:
        logits = model(input_ids=ids).logits
        live.restart()
        scored = logits.float() if loss == "float" else logits
        value = cross_entropy(scored.flatten(0, 1), labels.flatten())
        forward = live.peak
        logits.register_hook(stop)
        del logits, scored
        kept = live.now
        live.restart()
        with pytest.raises(_HeadError):
            value.backward()
        backward = live.peak
    terms = [f"stage.loss.{moment}" for moment in MOMENTS]
    given, rest, tables, *moments = ledger(
        HUGGINGFACE.with_choices(loss=loss), "stage.input", "stage.activation", "stage.buffer", *terms, **shape)
    assert given == ids.nbytes + labels.nbytes
    compare((kept, forward, backward), [rest + tables + moment for moment in moments], loss)


def compare(counted: Sequence[int], expected: Sequence[int], loss: str) -> None:
    """Compare bytes behind the loss, in its forward and in its backward pass, but for the gradient of a 16-bit loss."""
    assert list(expected[:2]) == list(counted[:2])
    assert abs(counted[2] - expected[2]) <= (8 if loss == "bf16" else 0)


@pytest.mark.cases(2, 20)
def test_a_loss_of_gathered_logits(draw: Random) -> None:
    """The logits of the whole vocabulary, which a pipeline's buffer holds, and fp32 ones in every step."""
    s, b, u = draw.randint(2, 20), draw.randint(1, 3), draw.randint(60, 90)
    logits, labels = torch.zeros(s, b, u, dtype=torch.bfloat16, requires_grad=True), torch.zeros(s, b, dtype=torch.long)
    with Live(labels) as live:
        held = logits + 0
        live.restart()
        value = cross_entropy(held.float().flatten(0, 1), labels.flatten())
        kept, forward = live.now, live.peak
        held.register_hook(stop)
        live.restart()
        with pytest.raises(_HeadError):
            value.backward()
        backward = live.peak
    chosen = MEGATRON.with_choices(loss="gathered")
    saved, *moments = ledger(chosen, "loss.saved", *(f"stage.loss.{moment}" for moment in MOMENTS), s=s, b=b, u=u, B=b,
                             **BESIDE)
    for counted, moment in zip((kept, forward, backward), moments, strict=True):
        assert abs(counted - saved - moment) <= 8  # the loss, or its gradient, and the number of labels
