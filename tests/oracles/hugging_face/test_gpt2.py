"""GPT-2 of Hugging Face: projections of its own, learned positions, dropout, and GELU in one kernel or in steps.

PyTorch keeps the statistics of a LayerNorm in fp32 on a GPU; on a CPU it does so where the norm's weights are in fp32,
so they are here. Dropout and autocast are those of a GPU (``oracles.instruments.on_gpu``).
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import torch
from oracles.hugging_face.huggingface import size, token_ids
from oracles.instruments.ledger import ledger
from oracles.instruments.live import Live
from oracles.instruments.on_gpu import OnGpu
from oracles.instruments.saved import Saved
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

from shardmath.models.dense_families import GELU
from shardmath.symbolic.implementations import HUGGINGFACE, Implementation

Shape = dict[str, int]

GPT2 = HUGGINGFACE.with_choices(
    normalisation="layer", mlp="gelu", positions="learned", biases="linear", value="view", projections="fused",
    dropout="masks", softmax="low",
)


def random_shape(draw: Random) -> Shape:
    """Draw sizes by letter, and which dropout there is."""
    a, d = size(draw, 4), size(draw, 24)
    return {
        "a": a, "k": a, "d": d, "h": a * d, "f": size(draw, 200), "s": size(draw, 40),
        "b": size(draw, 3), "u": size(draw, 300), "L": size(draw, 3), "tied": draw.randint(0, 1),
        "lbias": 1, "pos": draw.randint(40, 60), "drop": draw.randint(0, 1), "adrop": draw.randint(0, 1),
    }


def gpt2(shape: Shape, activation: str, attention: str, dtype: torch.dtype = torch.bfloat16) -> Any:
    """The model with weights of ``dtype``; those of its norms are in fp32."""
    model = GPT2LMHeadModel(GPT2Config(
        n_embd=shape["h"], n_head=shape["a"], n_inner=shape["f"], vocab_size=shape["u"], n_layer=shape["L"],
        n_positions=shape["pos"], tie_word_embeddings=bool(shape["tied"]), activation_function=activation,
        embd_pdrop=0.1 * shape["drop"], resid_pdrop=0.1 * shape["drop"], attn_pdrop=0.1 * shape["adrop"],
        use_cache=False, bos_token_id=None, eos_token_id=None, attn_implementation=attention,
    )).to(dtype).train()
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.float()
    return model


def drawn(draw: Random) -> tuple[Shape, str]:
    """A shape, and the name of an activation."""
    return random_shape(draw), draw.choice(list(GELU))


def counted(activation: str, attention: str, **choices: str) -> Implementation:
    """Return the ledger's options of such a model."""
    return GPT2.with_choices(gelu=GELU[activation], attention=attention, **choices)


def saved_by_a_layer(model: Any, shape: Shape, dtype: torch.dtype) -> tuple[int, torch.Tensor]:
    """Bytes that its first layer saves, and its output; nothing keeps the mask of eager attention."""
    hidden = torch.zeros(shape["b"], shape["s"], shape["h"], dtype=dtype, requires_grad=True)
    mask = torch.zeros(1, 1, shape["s"], shape["s"], dtype=dtype)
    eager = model.config._attn_implementation == "eager"
    with OnGpu(), Saved() as saved:
        output = model.transformer.h[0](hidden.clone(), attention_mask=mask if eager else None)
    return saved.bytes(model), output


@pytest.mark.cases(12, 300)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_layer(draw: Random, attention: str) -> None:
    shape, activation = drawn(draw)
    found, output = saved_by_a_layer(gpt2(shape | {"L": 1}, activation, attention), shape, torch.bfloat16)
    assert (found,) == ledger(counted(activation, attention), "layer.saved", **shape)
    assert output.dtype == torch.bfloat16


@pytest.mark.cases(8, 150)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_layer_under_autocast(draw: Random, attention: str) -> None:
    shape, activation = drawn(draw)
    model = gpt2(shape | {"L": 1}, activation, attention, torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        found, output = saved_by_a_layer(model, shape, torch.float32)
    assert (found,) == ledger(counted(activation, attention, precision="autocast"), "layer.saved", **shape)
    assert output.dtype == torch.float32


@pytest.mark.cases(3, 100)
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("precision", ["bf16", "autocast"])
def test_alive_after_the_forward_pass(draw: Random, precision: str, attention: str, checkpointing: bool) -> None:
    """Positions are an input: the model makes them, the ids of tokens were there before."""
    shape, activation = drawn(draw)
    autocast = precision == "autocast"
    model = gpt2(shape, activation, attention, torch.float32 if autocast else torch.bfloat16)
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    ids, labels = token_ids(shape), token_ids(shape)
    with OnGpu(), torch.autocast("cpu", torch.bfloat16, enabled=autocast), Live(model, ids, labels) as live:
        output = model(input_ids=ids, labels=labels)
    *kept, inputs, parameters = ledger(
        counted(activation, attention, precision=precision), "stage.activation", "stage.buffer", "stage.after_forward",
        "stage.input", "stage.parameters", **shape, rfull=int(checkpointing),
    )
    assert live.now == sum(kept) + inputs - ids.nbytes
    assert sum(one.numel() for one in model.parameters()) == parameters
    assert output.logits.dtype == torch.bfloat16


@pytest.mark.cases(4, 100)
def test_peaks_of_the_loss(draw: Random) -> None:
    """With a vocabulary so large that both passes peak in the loss."""
    shape, activation = drawn(draw)
    shape |= {"u": 24 * shape["h"] + 40 * shape["f"], "s": max(shape["s"], -(-shape["h"] // shape["b"])), "pos": 96}
    model = gpt2(shape, activation, "sdpa")
    ids, labels = token_ids(shape), token_ids(shape)
    with OnGpu(), Live(model, ids, labels) as live:
        output = model(input_ids=ids, labels=labels)
        forward = live.peak
        live.restart()
        output.loss.backward()
    kept, inputs, in_forward, in_backward = ledger(
        counted(activation, "sdpa"), "stage.activation", "stage.input", "stage.loss_forward", "stage.loss_backward",
        **shape,
    )
    assert forward == kept + inputs - ids.nbytes + in_forward
    assert live.peak == kept + inputs - ids.nbytes + in_backward
