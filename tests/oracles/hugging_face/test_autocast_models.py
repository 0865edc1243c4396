"""Models of Transformers with fp32 weights under autocast: bytes behind the forward pass, and the most in the loss."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from families import read_config
from oracles.hugging_face.huggingface import token_ids
from oracles.hugging_face.public_families import built, random_config
from oracles.instruments.ledger import ledger
from oracles.instruments.live import Live

from shardmath.configuration.choosing import choices_of
from shardmath.input.parameters import model_values
from shardmath.symbolic.implementations import HUGGINGFACE
from shardmath.symbolic.parameters import BY_NAME

pytestmark = pytest.mark.slow

#: Keys with which a family is counted under autocast: biases, LayerNorm, parts of heads, windows, fused matrices.
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {"attention_bias": True, "mlp_bias": True}, "starcoder2": {"use_bias": True},
    "stablelm": {"qk_layernorm": False, "use_parallel_residual": False, "partial_rotary_factor": 0.5},
    "mistral": {"sliding_window": 64}, "phi3": {},
}


@pytest.mark.parametrize("recompute", [0, 1])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", FAMILIES)
def test_forward_pass(family: str, attention: str, recompute: int, tmp_path: Path) -> None:
    """In the loss the cache of autocast is still there, as the whole model runs inside of its block."""
    draw = Random(f"{family} {attention} {recompute}")
    config = {**random_config(draw, family), "num_hidden_layers": 7, "vocab_size": 900, **FAMILIES[family]}
    model, read = built(config, attention).float(), read_config(tmp_path, config)
    if recompute:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    shape = {BY_NAME[name].letter: value for name, value in model_values(read).items()}
    shape |= {"s": draw.randint(20, 48), "b": draw.randint(2, 3), "rfull": recompute}
    implementation = HUGGINGFACE.with_choices(
        **{**choices_of("huggingface", read), "attention": attention, "precision": "autocast"})
    *kept, after, during, head, cached = ledger(
        implementation, "stage.activation", "stage.buffer", "stage.input", "stage.loss.after_forward",
        "stage.loss.loss_forward", "stage.head.loss_forward", "stage.autocast_cache.loss_forward", **shape)
    ids, labels = token_ids(shape), token_ids(shape)
    loss = model.loss_function

    def from_here(*arguments: Any, **more: Any) -> Any:
        live.restart()
        return loss(*arguments, **more)

    model.loss_function = from_here
    with Live(model, ids, labels) as live, torch.autocast("cpu", torch.bfloat16):
        output = model(input_ids=ids, labels=labels)
    assert output.logits is not None
    assert live.now == sum(kept) - ids.nbytes + after
    assert live.peak == sum(kept) - ids.nbytes + during + head + cached
