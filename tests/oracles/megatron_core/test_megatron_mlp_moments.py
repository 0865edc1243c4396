"""Megatron-Core's dense MLP on one rank in 16 bits: what it saves, and what is alive in its backward pass.

It has its own linear layers, or stand-ins for those of Transformer Engine, the first with the norm inside. The product
itself adds gradients of matrices to a buffer, or they are added afterwards, as those of biases: hooks free them here.
Norms and activations that are compiled on a GPU are stand-ins.
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
from oracles.instruments.ledger import ledger
from oracles.instruments.live import Live
from oracles.instruments.traced import account_of
from oracles.megatron_core import engine
from oracles.megatron_core.fused import SquaredRelu
from oracles.megatron_core.megatron_cpu import BF16, LinearWithNorm, Shape, config, one_rank
from oracles.megatron_core.megatron_expert_steps import Record
from oracles.megatron_core.test_megatron_latent_steps import changes
from torch import Tensor
from torch.nn.functional import gelu, relu, silu

from shardmath.account.configured import configured
from shardmath.allocator.trace import Action, Event
from shardmath.models.model import Model
from shardmath.steps.rows import Rows
from shardmath.steps.step import Steps


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
LAYERS: dict[str, Any] = {"pre": RowParallelLinear, "post": LinearWithNorm, "both": LinearWithNorm}
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


#: Norms inside of Transformer Engine's first layer.
NORMED: dict[str, type[engine.Linear]] = {"rms": engine.RmsNormLinear, "layer": engine.LayerNormLinear}
#: Gradients of weights that stand for those in the buffer, which is none of an MLP's own.
DUMMIES = "mlp_dummies."
#: Activations of MLPs whose steps are replayed.
REPLAYED: dict[str, Any] = {"swiglu": silu, "gelu": gelu, "relu": relu, "relu2": SquaredRelu.apply}


def recorded(shape: Shape, draw: Random, mlp: str, norm: str, added: bool) -> tuple[list[Event], int, int]:
    """Record an MLP with Transformer Engine's layers: events of its backward pass, their peak, and what is left before.

    Its input, which the residual stream keeps, the output and its gradient are left out.
    """
    with one_rank(shape, draw), pytest.MonkeyPatch.context() as patched:
        patched.setattr(megatron_mlp, "bias_swiglu_impl", biased_swiglu)
        settings = config(shape, gated_linear_unit=mlp == "swiglu", activation_func=REPLAYED[mlp],
                          bias_activation_fusion=mlp == "swiglu")
        settings.gradient_accumulation_fusion = added  # behind the checks of a GPU
        block = MLP(settings, MLPSubmodules(linear_fc1=NORMED[norm], linear_fc2=engine.RowParallelLinear))
        for parameter in block.parameters():
            parameter.register_post_accumulate_grad_hook(drop_gradient)
        tokens = shape["s"] // (shape["t"] if shape["sp"] else 1), shape["b"]
        hidden = torch.zeros(*tokens, shape["h"], dtype=BF16, requires_grad=True)
        with Record(hidden, *block.parameters()) as record:
            output, _ = checkpoint(block, False, hidden) if shape["rmlp"] else block(hidden)
            left = record.now - output.nbytes
            gradient = torch.zeros_like(output)
            record.restart()
            before = record.now
            output.backward(gradient)
            events, peak = record.events[record.restarted:], record.peak - before
    return events, peak, left


def ours(shape: Shape, mlp: str, norm: str, added: bool) -> tuple[Any, list[Event]]:
    """Return the account of a model with one layer, and the events of the recomputed MLP's backward pass."""
    model = Model(
        name="drawn", source="", hidden_size=shape["h"], ffn_hidden_size=shape["f"], num_layers=1,
        num_attention_heads=shape["a"], num_kv_heads=shape["k"], head_dim=shape["d"], vocab_size=4096,
        tied_embeddings=False, qkv_bias=False, qk_norm=False, max_seq_length=8192, mlp=mlp, normalisation=norm)
    job = configured(
        model, "b300", seq_length=shape["s"], micro_batch_size=shape["b"], global_batch_size=shape["b"],
        tensor_parallel=shape["t"], sequence_parallel=bool(shape["sp"]), num_gpus=shape["t"],
        recompute="mlp" if shape["rmlp"] else "none",
        kernels={"weight_gradient": "fused" if added else "separate"}).job
    account = account_of(job.evaluator, values := job.on_rank(0))
    events = Steps(Rows.of(job.evaluator, values, account), "1f1b", 1).run()
    if not shape["rmlp"]:
        return account, []
    made = [number for number, event in enumerate(events) if event.action is Action.ALLOCATE]
    start = next(number for number in made if events[number].row in ("ffn_norm.rms", "ffn_norm.deviation"))
    remade, gradient = (next(events[number].key for number in made if number > start and events[number].row == name)
                        for name in ("down.remade", "norm.gradient"))
    end = next(number for number in range(start, len(events))
               if events[number].action is Action.FREE and events[number].key == remade)
    return account, [event for event in events[start:end + 1]
                     if event.action is Action.ALLOCATE or event.key != gradient]


@pytest.mark.cases(8, 100)
@pytest.mark.parametrize("norm", list(NORMED))
@pytest.mark.parametrize("mlp", list(REPLAYED))
def test_mlp_with_the_norm_inside(draws: list[Random], mlp: str, norm: str) -> None:
    """Saved bytes and the most that is alive, also where it is recomputed; then every tensor, in order."""
    for draw in draws:
        t, added = draw.choice((1, 1, 2, 4)), draw.random() < 0.5
        shape = {"t": t, "sp": draw.randint(0, 1) * (t > 1), "h": t * draw.randint(2, 60), "f": t * draw.randint(2, 60),
                 "s": 4 * t * draw.randint(1, 12), "b": draw.randint(1, 3), "a": t, "k": t, "d": 64, "L": 1, "u": 64,
                 "rmlp": draw.randint(0, 1)}
        theirs, peak, left = recorded(shape, draw, mlp, norm, added)
        account, events = ours(shape, mlp, norm, added)
        saved = account["swiglu.saved" if mlp == "swiglu" else "gelu.saved"] + account["ffn_norm.saved"]
        assert left == saved - 2 * shape["s"] * shape["b"] * shape["h"] // (t if shape["sp"] else 1), shape
        moments = (account[f"stage.{name}.layer_backward"] for name in ("mlp_gradients", "recomputed_mlp"))
        assert peak == sum(moments), shape
        if shape["rmlp"] and mlp != "relu2":  # its replay has the steps of the square, of which a kernel is made here
            assert [*changes(own(events))] == [*changes(own(theirs))], shape


def own(events: list[Event]) -> list[Event]:
    """Return the events of tensors that are made among these, without gradients that are made once."""
    known = {event.key for event in events if event.action is Action.ALLOCATE and not event.row.startswith(DUMMIES)}
    return [event for event in events if event.key in known]
