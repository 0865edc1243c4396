"""Saved tensors of a layer of Hugging Face's models against ``layer.saved``: two counters, random shapes.

PyTorch on CPU is no GPU. Its sdpa saves the same tensors as FlashAttention on a GPU: q, k, v, output and
log-sum-exp. A GPU keeps two integers of random state besides, and pads a head_dim that is no multiple of 8 with
copies of q, k and v; neither is counted here nor in the ledger.
"""

from __future__ import annotations

from random import Random

import pytest
import torch
from oracles.hugging_face.huggingface import FAMILIES, causal_lm, random_shape, run_layer
from oracles.instruments.ledger import ledger
from oracles.instruments.live import Live
from oracles.instruments.saved import Saved

from shardmath.symbolic.implementations import HUGGINGFACE

EAGER = HUGGINGFACE.with_choices(attention="eager")


@pytest.mark.cases(30, 400)
@pytest.mark.parametrize(("attention", "implementation"), [("sdpa", HUGGINGFACE), ("eager", EAGER)])
def test_layer(draw: Random, attention: str, implementation) -> None:
    family = draw.choice(list(FAMILIES))
    shape = random_shape(draw) | FAMILIES[family][2]
    model = causal_lm(family, shape | {"L": 1}, attention)
    hidden = torch.zeros(shape["b"], shape["s"], shape["h"], dtype=torch.bfloat16, requires_grad=True)
    with Live(model, hidden) as live, Saved() as saved:
        # A layer gets a tensor that somebody made, not a parameter: its own storage counts.
        output, tables = run_layer(model, hidden.clone())
    expected, = ledger(implementation, "layer.saved", **shape)
    shared = sum(table.nbytes for table in tables)
    assert saved.bytes(model, tables) == expected
    assert live.now == expected + output.nbytes + shared


@pytest.mark.cases(10, 150)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_layer_in_fp32(draw: Random, attention: str) -> None:
    family = draw.choice(list(FAMILIES))
    shape = random_shape(draw) | FAMILIES[family][2]
    model = causal_lm(family, shape | {"L": 1}, attention, dtype=torch.float32)
    hidden = torch.zeros(shape["b"], shape["s"], shape["h"], requires_grad=True)
    with Saved() as saved:
        output, tables = run_layer(model, hidden.clone())
    expected, = ledger(HUGGINGFACE.with_choices(attention=attention, precision="fp32"), "layer.saved", **shape)
    assert saved.bytes(model, tables) == expected
    assert output.dtype == torch.float32


@pytest.mark.cases(15, 150)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_layer_under_autocast(draw: Random, attention: str) -> None:
    family = draw.choice(list(FAMILIES))
    shape = random_shape(draw) | FAMILIES[family][2]
    model = causal_lm(family, shape | {"L": 1}, attention, dtype=torch.float32)
    hidden = torch.zeros(shape["b"], shape["s"], shape["h"], requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16), Saved() as saved:
        output, tables = run_layer(model, hidden.clone())
    expected, = ledger(HUGGINGFACE.with_choices(attention=attention, precision="autocast"), "layer.saved", **shape)
    assert saved.bytes(model, tables) == expected
    assert output.dtype == torch.float32
