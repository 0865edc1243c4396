"""GPT-NeoX of Hugging Face, attention and MLP one after the other or side by side, any part of heads rotary.

PyTorch keeps the statistics of a LayerNorm in fp32 on a GPU; on a CPU it does so where the norm's weights are in fp32,
so they are here. Masks of dropout have other widths on a CPU and are not counted live.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import torch
from oracles.hugging_face.huggingface import size, token_ids
from oracles.instruments.ledger import ledger
from oracles.instruments.live import Live
from oracles.instruments.saved import Saved
from torch import nn
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

from shardmath.symbolic.implementations import HUGGINGFACE, Implementation

Shape = dict[str, int]

NEOX = HUGGINGFACE.with_choices(
    normalisation="layer", mlp="gelu", biases="linear", value="view", rope="joined", projections="fused",
)
#: Shares of a head that are rotary; the number of elements is rounded down, then up to pairs.
SHARES = (0.25, 0.5, 0.7, 1.0)


def random_shape(draw: Random) -> tuple[Shape, float]:
    """Draw sizes by letter, and the share of a head that is rotary; ``dr`` is 0 for all of it."""
    a, d, share = size(draw, 4), 2 * draw.randint(2, 16), draw.choice(SHARES)
    turned = -(-int(d * share) // 2) * 2
    return {
        "a": a, "k": a, "d": d, "h": a * d, "f": size(draw, 200), "s": size(draw, 40),
        "b": size(draw, 3), "u": size(draw, 300), "L": size(draw, 3), "tied": draw.randint(0, 1),
        "lbias": 1, "dr": turned if turned < d else 0,
    }, share


def counted(shape: Shape, parallel: bool, **choices: str) -> Implementation:
    """Return the ledger's options of such a model."""
    return NEOX.with_choices(
        residual="parallel" if parallel else "sequential", positions="partial" if shape["dr"] else "rotary", **choices,
    )


def neox(
    shape: Shape, share: float, parallel: bool, attention: str, dtype: torch.dtype = torch.bfloat16,
    activation: str = "gelu",
) -> Any:
    """The model with weights of ``dtype``; those of its norms are in fp32."""
    model = GPTNeoXForCausalLM(GPTNeoXConfig(
        hidden_size=shape["h"], num_attention_heads=shape["a"], intermediate_size=shape["f"], vocab_size=shape["u"],
        num_hidden_layers=shape["L"], tie_word_embeddings=bool(shape["tied"]), max_position_embeddings=64,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": share}, use_cache=False,
        bos_token_id=None, eos_token_id=None, use_parallel_residual=parallel, attn_implementation=attention,
        hidden_act=activation,
    )).to(dtype).train()
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.float()
    return model


def run_layer(model: Any, hidden: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    """Run the first layer; return its output, and the rotary tables that all layers share."""
    decoder, positions = model.gpt_neox, torch.arange(hidden.shape[1])[None]
    tables = decoder.rotary_emb(hidden, positions)
    return decoder.layers[0](hidden, position_embeddings=tables, position_ids=positions), tables


@pytest.mark.cases(12, 200)
@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_layer(draw: Random, attention: str, parallel: bool) -> None:
    shape, share = random_shape(draw)
    model = neox(shape | {"L": 1}, share, parallel, attention)
    hidden = torch.zeros(shape["b"], shape["s"], shape["h"], dtype=torch.bfloat16, requires_grad=True)
    with Saved() as saved:
        output, tables = run_layer(model, hidden.clone())
    expected = ledger(counted(shape, parallel, attention=attention), "layer.saved", **shape)
    assert (saved.bytes(model, tables),) == expected
    assert output.dtype == torch.bfloat16


@pytest.mark.cases(6, 60)
@pytest.mark.parametrize("parallel", [False, True])
def test_layer_under_autocast(draw: Random, parallel: bool) -> None:
    shape, share = random_shape(draw)
    model = neox(shape | {"L": 1}, share, parallel, "sdpa", torch.float32)
    hidden = torch.zeros(shape["b"], shape["s"], shape["h"], requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16), Saved() as saved:
        output, tables = run_layer(model, hidden.clone())
    expected = ledger(counted(shape, parallel, precision="autocast"), "layer.saved", **shape)
    assert (saved.bytes(model, tables),) == expected
    assert output.dtype == torch.float32


@pytest.mark.cases(4, 60)
@pytest.mark.parametrize("precision", ["bf16", "autocast"])
def test_layer_with_gelu_fast(draw: Random, precision: str) -> None:
    """As in the model of 20 billion parameters; ``test_gpt2`` draws every GELU."""
    shape, share = random_shape(draw)
    dtype = torch.float32 if precision == "autocast" else torch.bfloat16
    model = neox(shape | {"L": 1}, share, True, "sdpa", dtype, "gelu_fast")
    hidden = torch.zeros(shape["b"], shape["s"], shape["h"], dtype=dtype, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "autocast"), Saved() as saved:
        output, tables = run_layer(model, hidden.clone())
    expected = ledger(counted(shape, True, gelu="fast", precision=precision), "layer.saved", **shape)
    assert (saved.bytes(model, tables),) == expected
    assert output.dtype == dtype


@pytest.mark.cases(8, 100)
@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_alive_after_the_forward_pass(draw: Random, attention: str, checkpointing: bool, parallel: bool) -> None:
    shape, share = random_shape(draw)
    model = neox(shape, share, parallel, attention)
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    ids, labels = token_ids(shape), token_ids(shape)
    with Live(model, ids, labels) as live:
        output = model(input_ids=ids, labels=labels)
    implementation = counted(shape, parallel, attention=attention)
    kept = ledger(implementation, "stage.activation", "stage.buffer", "stage.after_forward", "stage.parameters",
                  **shape, rfull=int(checkpointing))
    assert live.now == sum(kept[:3])
    assert sum(one.numel() for one in model.parameters()) == kept[3]
    assert output.logits.dtype == torch.bfloat16


@pytest.mark.cases(8, 100)
@pytest.mark.parametrize("parallel", [False, True])
def test_peaks_of_the_loss(draw: Random, parallel: bool) -> None:
    """With a vocabulary so large that both passes peak in the loss."""
    shape, share = random_shape(draw)
    shape |= {"u": 24 * shape["h"] + 20 * shape["f"], "s": max(shape["s"], -(-shape["h"] // shape["b"]))}
    if shape["s"] > 64:  # as long as the tables are made for
        shape |= {"b": -(-shape["h"] // 64), "s": 64}
    model = neox(shape, share, parallel, "sdpa")
    ids, labels = token_ids(shape), token_ids(shape)
    with Live(model, ids, labels) as live:
        output = model(input_ids=ids, labels=labels)
        forward = live.peak
        live.restart()
        output.loss.backward()
    kept, buffers, in_forward, in_backward = ledger(
        counted(shape, parallel), "stage.activation", "stage.buffer", "stage.loss_forward", "stage.loss_backward",
        **shape,
    )
    assert forward == kept + buffers + in_forward
    assert live.peak == kept + buffers + in_backward
