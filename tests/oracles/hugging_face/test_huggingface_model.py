"""Whole Hugging Face models with their loss: bytes alive after the forward pass, and peaks inside of the loss.

All counts are of live storages: weights, ids and labels were there before, everything else is counted.
``transformers`` returns the logits with the loss, so they live as long as the caller keeps the output.
"""

from __future__ import annotations

from random import Random

import pytest
import torch
from oracles.hugging_face.huggingface import FAMILIES, causal_lm, random_shape, token_ids, with_large_vocabulary
from oracles.instruments.ledger import ledger
from oracles.instruments.live import Live

from shardmath.symbolic.implementations import HUGGINGFACE

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}


@pytest.mark.cases(10, 150)
@pytest.mark.parametrize("precision", DTYPES)
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_alive_after_the_forward_pass(draw: Random, attention: str, checkpointing: bool, precision: str) -> None:
    family = draw.choice(list(FAMILIES))
    shape = random_shape(draw) | FAMILIES[family][2]
    model = causal_lm(family, shape, attention, dtype=DTYPES[precision])
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    ids, labels = token_ids(shape), token_ids(shape)
    with Live(model, ids, labels) as live:
        output = model(input_ids=ids, labels=labels)
    kept = ledger(
        HUGGINGFACE.with_choices(attention=attention, precision=precision), "stage.activation", "stage.buffer",
        "stage.after_forward",
        **shape, rfull=int(checkpointing),
    )
    assert live.now == sum(kept)
    assert output.logits.dtype == DTYPES[precision]


@pytest.mark.cases(15, 150)
def test_parameters(draw: Random) -> None:
    family = draw.choice(list(FAMILIES))
    shape = random_shape(draw) | FAMILIES[family][2]
    model = causal_lm(family, shape, "sdpa")
    assert (sum(one.numel() for one in model.parameters()),) == ledger(HUGGINGFACE, "stage.parameters", **shape)


@pytest.mark.cases(10, 150)
@pytest.mark.parametrize("precision", DTYPES)
def test_peaks_of_the_loss(draw: Random, precision: str) -> None:
    family = draw.choice(list(FAMILIES))
    shape = with_large_vocabulary(draw, random_shape(draw)) | FAMILIES[family][2]
    model = causal_lm(family, shape, "sdpa", dtype=DTYPES[precision])
    ids, labels = token_ids(shape), token_ids(shape)
    with Live(model, ids, labels) as live:
        output = model(input_ids=ids, labels=labels)
        forward = live.peak
        live.restart()
        output.loss.backward()
    kept, buffers, in_forward, in_backward = ledger(
        HUGGINGFACE.with_choices(precision=precision), "stage.activation", "stage.buffer", "stage.loss_forward",
        "stage.loss_backward", **shape,
    )
    assert forward == kept + buffers + in_forward
    assert live.peak == kept + buffers + in_backward
