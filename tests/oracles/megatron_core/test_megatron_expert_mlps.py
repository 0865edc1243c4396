"""Blocks of routed and shared experts of Megatron-Core on one rank: activations, biases, Sinkhorn's routing.

Router, dispatchers, experts one by one and grouped are Megatron-Core's own. The grouped product of Transformer Engine
is a stand-in that keeps its input, in FP8 and FP4 too, as the real one does, and computes nothing.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import torch
from counted import MEGATRON_CPU
from megatron.core.activations import squared_relu
from megatron.core.fusions import fused_weighted_squared_relu
from megatron.core.fusions.fused_bias_geglu import quick_gelu
from megatron.core.models.gpt.moe_module_specs import get_moe_module_spec
from megatron.core.transformer.mlp import MLPSubmodules
from megatron.core.transformer.moe import experts, moe_utils, token_dispatcher
from megatron.core.transformer.moe.experts import TEGroupedMLP
from megatron.core.transformer.spec_utils import ModuleSpec, build_module
from oracles.instruments.ledger import ledger
from oracles.instruments.live import Live
from oracles.instruments.saved import Saved
from oracles.megatron_core.grouped_linear import RECIPES, GroupedLinear, TakenAway, Unpadded
from oracles.megatron_core.megatron_cpu import BF16, Shape, config, one_rank
from oracles.megatron_core.megatron_experts import Nothing, on_host
from torch import Tensor
from torch.nn.functional import gelu, silu

from shardmath.symbolic.choices import GATED
from shardmath.symbolic.implementations import Implementation

#: Activations without a gate, and with one.
ACTIVATIONS: dict[str, Any] = {
    "gelu": gelu, "squared_relu": squared_relu, "swiglu": silu, "swiglu_clamped": quick_gelu,
}
#: Parts of models that are drawn.
DRAWN = {"layers": ("experts",), "mlp": ("gelu", "swiglu", "swiglu_clamped"), "scores": ("softmax", "softmax_all")}
TERMS = tuple(f"{block}.{kind}" for block in ("router", "experts", "shared_experts") for kind in ("saved", "buffer"))
PARAMETERS = tuple(f"{block}.{kind}" for block in ("router", "experts", "shared_experts")
                   for kind in ("parameters", "expert_parameters"))


def settings_of(draw: Random, shape: Shape, implementation: dict[str, str]) -> dict[str, Any]:
    """Settings of Megatron-Core for what was drawn."""
    gated = implementation["mlp"] in GATED
    activation = draw.choice(("gelu", "squared_relu")) if not gated else implementation["mlp"]
    bounded = {"activation_func_clamp_value": 7.0, "glu_linear_offset": 1.0}
    fused = implementation.get("weighting") == "fused"
    sinkhorn = implementation["balance"] == "sinkhorn"
    return {
        "num_moe_experts": shape["E"], "moe_router_topk": shape["q"], "moe_ffn_hidden_size": shape["fe"],
        "moe_token_dispatcher_type": implementation["dispatch"], "moe_aux_loss_coeff": 0.0,
        "moe_router_load_balancing_type": "sinkhorn" if sinkhorn else "none",
        "moe_router_dtype": "fp32" if implementation["router_precision"] == "fp32" else None,
        "moe_router_pre_softmax": implementation["scores"] == "softmax_all",
        "moe_shared_expert_intermediate_size": shape["fs"] or None, "gated_linear_unit": gated,
        "activation_func": ACTIVATIONS["squared_relu" if fused else activation],
        "use_fused_weighted_squared_relu": fused, "bias_activation_fusion": gated,
        "add_bias_linear": bool(shape["lbias"]), "bias_dropout_fusion": False,
        **(bounded if activation == "swiglu_clamped" else {}),
    }


def random_block(draw: Random) -> tuple[Shape, dict[str, str]]:
    """Draw sizes by letter, and kernels by axis."""
    E = draw.randint(2, 6)
    kernels = {
        "mlp": draw.choice(("gelu", *DRAWN["mlp"])), "balance": draw.choice(("none", "sinkhorn")),
        "dispatch": draw.choice(("alltoall", "allgather")), "router_precision": draw.choice(("fp32", "bf16")),
        "expert_products": draw.choice(("grouped", "sequential")),
    }
    q = draw.randint(1, min(E, 3))
    kernels["scores"] = "softmax_all" if q == 1 else draw.choice(DRAWN["scores"])
    grouped = kernels["expert_products"] == "grouped"
    if kernels["mlp"] == "gelu" and grouped and draw.randint(0, 1):
        kernels["weighting"] = "fused"
    shared = 0 if kernels["mlp"] == "swiglu_clamped" else draw.choice((0, draw.randint(1, 30)))
    shape = {
        "E": E, "q": q, "h": draw.randint(2, 30), "fe": draw.randint(1, 30), "f": 1, "L": 1, "a": 1, "k": 1,
        "fs": shared, "s": draw.randint(2, 20), "b": draw.randint(1, 3), "d": 2, "lbias": 0,
    }
    if grouped and not shape["fs"] and not kernels.get("weighting"):
        shape["lbias"] = draw.randint(0, 1)
    if grouped and draw.randint(0, 1):
        kernels |= {"fp8": draw.choice(tuple(RECIPES)), "peak": "saved"}
        shape |= {"h": 128 * draw.randint(1, 3), "fe": 128 * draw.randint(1, 3), "fs": 0}
    return shape, kernels


def counted(
    shape: Shape, kernels: dict[str, str], draw: Random, monkeypatch: pytest.MonkeyPatch,
) -> tuple[int, int, int]:
    """Return the parameters of a block, bytes that a micro-batch saves, and the most that its backward pass adds."""
    for module, name, stand_in in (
        (torch.cuda, "Stream", Nothing), (torch.cuda, "current_stream", Nothing),
        (torch.cuda, "stream", lambda _: Nothing()), (token_dispatcher, "maybe_move_tensor_to_cpu", on_host),
        (moe_utils, "te_general_gemm", None), (experts, "HAVE_TE", True), (experts, "Fp8Padding", Unpadded),
        (experts, "Fp8Unpadding", TakenAway),
    ):
        monkeypatch.setattr(module, name, stand_in, raising=False)
    with one_rank(shape, draw):
        settings = config(shape, **settings_of(draw, shape, kernels))
        if "fp8" in kernels:  # behind the checks of a GPU
            settings.fp8, settings.fp8_recipe = "hybrid", RECIPES[kernels["fp8"]]
        spec = get_moe_module_spec(use_te=False, num_experts=shape["E"])
        if kernels["expert_products"] == "grouped":
            spec.submodules.experts = ModuleSpec(
                TEGroupedMLP, submodules=MLPSubmodules(linear_fc1=GroupedLinear, linear_fc2=GroupedLinear))
        block = build_module(spec, config=settings).to(BF16).train()
        block.set_layer_number(1)
        hidden = torch.randn(shape["s"], shape["b"], shape["h"], dtype=BF16, requires_grad=True)
        with Live(block, hidden) as live:
            with Saved(block) as saved:
                output, _ = block(hidden)
            kept = saved.bytes(block)
            gradient = torch.zeros_like(output)
            before = live.now
            live.restart()
            output.backward(gradient)
            above = live.peak - before
        return sum(each.numel() for each in block.parameters()), kept, above


def implementation_of(kernels: dict[str, str]) -> Implementation:
    """Return what Megatron-Core is on a CPU with these kernels."""
    return MEGATRON_CPU.with_choices(
        layers="experts", permute="unfused", biases="linear",
        **({"peak": "saved"} if kernels["mlp"] == "swiglu_clamped" else {}) | kernels)


#: Blocks that are seldom drawn: kernels and sizes.
SELDOM: tuple[tuple[dict[str, str], Shape], ...] = (
    ({"mlp": "gelu", "balance": "sinkhorn", "router_precision": "bf16", "scores": "softmax_all"}, {"q": 1, "lbias": 1}),
    ({"mlp": "swiglu_clamped", "balance": "none", "router_precision": "fp32", "scores": "softmax"}, {"q": 2}),
)


@pytest.mark.parametrize(("kernels", "sizes"), SELDOM)
def test_saved_by_a_block_that_is_seldom_drawn(
    kernels: dict[str, str], sizes: Shape, monkeypatch: pytest.MonkeyPatch,
) -> None:
    shape = {"E": 4, "q": 2, "h": 12, "fe": 10, "f": 1, "L": 1, "a": 1, "k": 1, "d": 2, "fs": 0, "s": 7, "b": 2,
             "lbias": 0} | sizes
    compare(shape, {"dispatch": "alltoall", "expert_products": "grouped"} | kernels, Random(0), monkeypatch)


@pytest.mark.cases(12, 300)
def test_saved_by_a_block_of_experts(draw: Random, monkeypatch: pytest.MonkeyPatch) -> None:
    compare(*random_block(draw), draw, monkeypatch)


def compare(shape: Shape, kernels: dict[str, str], draw: Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare parameters and bytes that one micro-batch saves; where experts are grouped, those at their peak too."""
    parameters, kept, above = counted(shape, kernels, draw, monkeypatch)
    implementation, known = implementation_of(kernels), {**shape, "B": shape["b"], "u": 1}
    assert parameters == sum(ledger(implementation, *PARAMETERS, **known))
    expected = ledger(implementation, "router.saved", "experts.saved", "shared_experts.saved", **known)
    assert kept == sum(expected), (shape, kernels, expected)
    # Kernels that a GPU fuses run in steps here, which need more for a while. With narrow experts the backward pass of
    # the router, which has a score of every expert, is the larger moment.
    narrow = shape["q"] * (shape["h"] + shape["fe"]) < 12 * shape["E"]
    in_steps = kernels["mlp"] in GATED or kernels.get("weighting") == "fused" or shape["lbias"]
    whole = (kernels["expert_products"], kernels["dispatch"], kernels.get("peak")) == ("grouped", "alltoall", None)
    if whole and not (in_steps or narrow):
        moments = ledger(implementation, "dispatch.combine_backward", "dispatch.experts_backward", **known)
        assert above == max(moments), (shape, kernels, moments)


def gradients(_: Tensor, inputs: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Make both gradients of a weighted activation, as a kernel that does it at once."""
    return torch.zeros_like(inputs), torch.zeros_like(weights)


@pytest.mark.cases(1, 20)
@pytest.mark.parametrize("router", ["fp32", "bf16"])
@pytest.mark.parametrize("weighting", ["separate", "fused"])
def test_gradients_of_an_activation_without_a_gate(
    draw: Random, weighting: str, router: str, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Experts wider than hidden states, which need most in the backward pass of their activation, or just before."""
    monkeypatch.setattr(fused_weighted_squared_relu, "weighted_squared_relu_back", gradients)
    E, q, width = draw.randint(3, 6), draw.randint(2, 3), draw.randint(6, 12)
    shape = {"E": E, "q": q, "h": width, "fe": draw.randint(8, 12) * width, "f": 1, "L": 1, "a": 1, "k": 1, "d": 2,
             "fs": 0, "s": draw.randint(6, 20), "b": draw.randint(1, 3), "lbias": 0}
    kernels = {"mlp": "gelu", "balance": "none", "dispatch": "alltoall", "router_precision": router,
               "expert_products": "grouped", "scores": "softmax"} | (
                   {"weighting": "fused"} if weighting == "fused" else {})
    _, _, above = counted(shape, kernels, draw, monkeypatch)
    backward, = ledger(implementation_of(kernels), "dispatch.experts_backward", **shape, B=shape["b"], u=1)
    assert above == backward
