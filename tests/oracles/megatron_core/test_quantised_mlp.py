"""A dense MLP in FP8 against Megatron-Core's own MLP with Transformer Engine's layers as stand-ins."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import torch
from megatron.core import tensor_parallel
from oracles.instruments.traced import account_of
from oracles.megatron_core.fused import SquaredRelu
from oracles.megatron_core.megatron_cpu import BF16, one_rank
from oracles.megatron_core.quantised_linear import Linear, bytes_of_mlp
from torch.nn.functional import gelu, relu, silu

from shardmath.account.configured import configured
from shardmath.models.model import Model

pytestmark = pytest.mark.slow
RECIPES = ("delayed", "current", "block", "mx")
ACTIVATIONS: dict[str, Any] = {"swiglu": silu, "gelu": gelu, "relu": relu, "relu2": SquaredRelu.apply}


def checkpoint(run: Any, hidden: torch.Tensor) -> Any:
    """Keep the input alone, as Megatron-Core does."""
    return tensor_parallel.checkpoint(run, False, hidden)


@pytest.mark.cases(10, 100)
@pytest.mark.parametrize("recompute", ["none", "mlp"])
@pytest.mark.parametrize("mlp", list(ACTIVATIONS))
def test_saved_and_moments_of_the_mlp_are_megatron_cores(draws: list[Random], mlp: str, recompute: str) -> None:
    """Bytes that an MLP saves, and the most that its backward pass has beside them, on one rank and several."""
    recipes = RECIPES if recompute == "none" else RECIPES[1:]
    for number, draw in enumerate(draws):
        recipe, ranks = recipes[number % len(recipes)], draw.choice((1, 2, 4))
        shape = {"h": 512 * draw.randint(1, 3), "f": 512 * draw.randint(1, 4), "s": 512 * draw.randint(1, 2), "b": 1,
                 "a": 4, "k": 4, "d": 128, "L": 1, "u": 64, "t": ranks, "sp": int(ranks > 1)}
        with one_rank(shape, draw):
            hidden = torch.zeros(shape["s"] // ranks, shape["h"], dtype=BF16, requires_grad=True)
            left, peak = bytes_of_mlp(
                shape, Linear, hidden, checkpoint if recompute == "mlp" else None, fp8_recipe=recipe,
                gated_linear_unit=mlp == "swiglu", bias_activation_fusion=mlp == "swiglu",
                activation_func=ACTIVATIONS[mlp])
        job = configured(
            Model(name="drawn", source="", hidden_size=shape["h"], ffn_hidden_size=shape["f"], num_layers=1,
                  num_attention_heads=4, num_kv_heads=4, head_dim=128, vocab_size=64, tied_embeddings=False,
                  qkv_bias=False, qk_norm=False, max_seq_length=8192, mlp=mlp),
            "b300", seq_length=shape["s"], micro_batch_size=1, tensor_parallel=ranks, num_gpus=ranks,
            recompute=recompute, kernels={"fp8": recipe, "peak": "megatron_te"}).job
        account = account_of(job.evaluator, job.on_rank(0))
        again, gradients = (account[f"stage.{name}.layer_backward"] for name in ("recomputed_mlp", "mlp_gradients"))
        assert peak == again + gradients, (recipe, shape)
        saved = account["swiglu.saved" if mlp == "swiglu" else "gelu.saved"] + account["ffn_norm.saved"]
        assert left == saved, (recipe, shape)  # the output is as large as the norm's input, which is not counted here
