"""Megatron-Core's dense MLP on one rank: the most that is alive in its backward pass, beyond what was saved.

Its own linear layers, in 16 bits. The product itself adds gradients of matrices to a buffer, or they are added
afterwards, as those of biases: hooks free them here. Norms and activations that are compiled on a GPU are stand-ins.
"""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from counted import MEGATRON_CPU
from megatron.core.tensor_parallel import checkpoint, layers
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
from megatron.core.transformer import mlp as megatron_mlp
from megatron.core.transformer.mlp import MLP, MLPSubmodules
from oracles.fused import SquaredRelu
from oracles.ledger import ledger
from oracles.live import Live
from oracles.megatron_cpu import BF16, LinearWithNorm, config, one_rank
from torch import Tensor
from torch.nn.functional import gelu, relu, silu


class Biased(torch.autograd.Function):
    """A fused activation that adds the bias of the projection: it keeps both, and makes one gradient for both."""

    @staticmethod
    def forward(ctx: Any, inner: Tensor, bias: Tensor | None, share: int) -> Tensor:
        ctx.save_for_backward(inner, bias)
        return inner.new_zeros(*inner.shape[:-1], inner.shape[-1] // share)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        inner, bias = ctx.saved_tensors
        made = torch.zeros_like(inner)
        return made, None if bias is None else made, None


def biased_gelu(inner: Tensor, bias: Tensor) -> Tensor:
    """Stand in for the compiled bias and GELU."""
    return Biased.apply(inner, bias, 1)


def biased_swiglu(inner: Tensor, bias: Tensor | None, *_: Any) -> Tensor:
    """Stand in for the compiled bias and SwiGLU."""
    return Biased.apply(inner, bias, 2)


#: Activations that are one operation, or several, by what the ledger calls them.
ACTIVATIONS: dict[tuple[str, str], Any] = {
    ("gelu", "fused"): gelu, ("relu", "fused"): relu, ("relu2", "fused"): SquaredRelu.apply, ("swiglu", "fused"): silu,
    ("swiglu", "unfused"): silu, ("geglu", "unfused"): gelu,
}
LAYERS: dict[str, Any] = {"pre": RowParallelLinear, "both": LinearWithNorm}
#: Parts of models that are drawn.
DRAWN = {"layers": ("dense",), "mlp": tuple(mlp for mlp, _ in ACTIVATIONS), "norms": tuple(LAYERS),
         "biases": ("qkv", "linear")}


def drop_gradient(parameter: Tensor) -> None:
    """Free a gradient as soon as it is whole."""
    parameter.grad = None


@pytest.mark.cases(4, 50)
@pytest.mark.parametrize("norms", list(LAYERS))
@pytest.mark.parametrize("activation", list(ACTIVATIONS))
def test_backward_pass_of_an_mlp(draw: Random, activation: tuple[str, str], norms: str) -> None:
    """The most that is alive, also where the MLP is recomputed from its input."""
    (mlp, kernel), again, biases = activation, *draw.choice(((0, 0), (0, 1), (1, 0)))
    shape = {"h": draw.randint(2, 60), "f": draw.randint(2, 60), "s": draw.choice((1, draw.randint(2, 60))),
             "b": draw.randint(1, 3), "a": 1, "k": 1, "d": 2, "L": 1, "lbias": biases, "rmlp": again}
    gated, added = mlp in ("swiglu", "geglu"), draw.randint(0, 1)
    fused = activation == ("swiglu", "fused") or (mlp == "gelu" and shape["lbias"] == 1)
    with one_rank(shape, draw), pytest.MonkeyPatch.context() as patched:
        patched.setattr(megatron_mlp, "bias_swiglu_impl", biased_swiglu)
        patched.setattr(megatron_mlp, "bias_gelu_impl", biased_gelu)
        patched.setattr(layers, "_grad_accum_fusion_available", True)
        patched.setattr(layers, "fused_weight_gradient_mlp_cuda", SimpleNamespace(
            wgrad_gemm_accum_fp32=lambda *_: None), raising=False)
        settings = config(shape, gated_linear_unit=gated, activation_func=ACTIVATIONS[activation],
                          bias_activation_fusion=fused, add_bias_linear=bool(shape["lbias"]),
                          gradient_accumulation_fusion=bool(added))
        block = MLP(settings, MLPSubmodules(linear_fc1=ColumnParallelLinear, linear_fc2=LAYERS[norms]))
        for parameter in block.parameters():
            parameter.register_post_accumulate_grad_hook(drop_gradient)
            parameter.main_grad = torch.zeros(parameter.shape)
        hidden = torch.zeros(shape["s"], shape["b"], shape["h"], dtype=BF16, requires_grad=True)
        gradient = torch.zeros(shape["s"], shape["b"], shape["h"], dtype=BF16)
        with Live(block, hidden, gradient) as live:
            output, _ = checkpoint(block, False, hidden) if again else block(hidden)
            before = live.now
            live.restart()
            output.backward(gradient)
            above = live.peak - before
    chosen = MEGATRON_CPU.with_choices(
        mlp=mlp, swiglu=kernel, norms=norms, weight_gradient="fused" if added else "separate", peak="megatron_local",
        biases="linear")
    moments = ledger(chosen, *(f"stage.{name}.layer_backward" for name in ("mlp_gradients", "recomputed_mlp")),
                     **shape, B=shape["b"], u=1)
    assert above == sum(moments), shape
