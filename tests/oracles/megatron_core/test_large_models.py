"""Llama 3.1 8B, 70B and 405B at 8192 tokens with fake tensors: sizes without memory, one layer and the ends.

``transformers`` takes a fake tensor for tracing and then makes an explicit mask, which drives sdpa off its flash
kernel; so layers run by themselves, as in ``test_huggingface_layer``, and the model with the loss has no layers.
Layers of another number add nothing to the count: it is ``layer.saved`` for each of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
import torch
from counted import MEGATRON_CPU, values
from oracles.hugging_face.huggingface import causal_lm, run_layer, token_ids
from oracles.instruments.ledger import ledger
from oracles.instruments.live import Live
from oracles.instruments.saved import Saved
from oracles.megatron_core.megatron_cpu import Batch, config, forward, gpt_model, one_rank
from torch._subclasses import FakeTensorMode

import shardmath
from shardmath.input.parameters import model_values
from shardmath.symbolic.implementations import HUGGINGFACE
from shardmath.symbolic.parameters import BY_NAME

MODELS = ("llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b")


@pytest.fixture
def fake() -> Iterator[None]:
    """Tensors with sizes and without memory."""
    with FakeTensorMode():
        yield


def shape_of(model: str, **letters: int) -> dict[str, int]:
    """Sizes of a published model by letter, for one sequence of 8192 tokens."""
    found = {BY_NAME[name].letter: value for name, value in model_values(shardmath.load_model(model)).items()}
    return {**found, "s": 8192, "b": 1, **letters}


@pytest.mark.parametrize("name", MODELS)
def test_huggingface_layer(name: str, fake: None) -> None:
    shape = shape_of(name, L=1)
    model = causal_lm("llama", shape, "sdpa")
    hidden = torch.empty(shape["b"], shape["s"], shape["h"], dtype=torch.bfloat16, requires_grad=True)
    with Live(model, hidden) as live, Saved() as saved:
        output, tables = run_layer(model, hidden.clone())
    expected, = ledger(HUGGINGFACE, "layer.saved", **shape)
    assert saved.bytes(model, tables) == expected
    assert live.now == expected + output.nbytes + sum(table.nbytes for table in tables)


@pytest.mark.parametrize("name", MODELS)
def test_huggingface_head_and_loss(name: str, fake: None) -> None:
    shape = shape_of(name, L=0)
    model = causal_lm("llama", shape, "sdpa")
    ids, labels = token_ids(shape), token_ids(shape)
    with Live(model, ids, labels) as live:
        output = model(input_ids=ids, labels=labels)
        after, in_forward = live.now, live.peak
        live.restart()
        output.loss.backward()
    saved, tables, at_rest, loss_forward, loss_backward = ledger(
        HUGGINGFACE, "stage.activation", "stage.tables.activation", "stage.after_forward", "stage.loss_forward",
        "stage.loss_backward", **shape
    )
    kept = saved - tables  # no layer saves them here
    assert after == kept + at_rest
    assert in_forward == kept + loss_forward
    assert live.peak == kept + loss_backward


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("t", "p", "r"), [(8, 4, 0), (8, 4, 3), (4, 2, 1)])
def test_megatron_stage(name: str, t: int, p: int, r: int, fake: None) -> None:
    """A stage of two layers, so that a forward pass takes a second; the last stage has head and loss."""
    shape = shape_of(name, t=t, p=p, r=r, L=2 * p, sp=1)
    with one_rank(shape, Random(0)):
        model = gpt_model(shape, config(shape))
        batch = Batch.of(shape).with_mask(None)
        with Saved() as saved:
            output = forward(model, shape, batch)
        found = saved.bytes(model, batch.ids, batch.labels)
    known = values({}, "", **shape) | {"B": 1}
    parameters, activation = ledger(MEGATRON_CPU, "stage.parameters", "stage.activation", **known)
    assert sum(one.numel() for one in model.parameters()) == parameters
    assert output is not None
    assert found == activation
