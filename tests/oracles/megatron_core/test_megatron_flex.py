"""Blocks of experts behind Megatron-Core's flex dispatcher, with stand-ins for DeepEP and HybridEP."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

import pytest
import torch
from counted import DEFAULTS, MEGATRON_CPU, inline, value
from megatron.core.models.gpt.moe_module_specs import get_moe_module_spec
from megatron.core.transformer.mlp import MLPSubmodules
from megatron.core.transformer.moe import moe_utils
from megatron.core.transformer.moe.experts import TEGroupedMLP
from megatron.core.transformer.spec_utils import ModuleSpec, build_module
from oracles.instruments.live import Live
from oracles.megatron_core import deep_ep
from oracles.megatron_core.deep_ep import PEERS
from oracles.megatron_core.grouped_linear import GroupedLinear
from oracles.megatron_core.megatron_cpu import BF16, Shape, config, one_rank
from oracles.megatron_core.megatron_expert_steps import SORTING
from oracles.megatron_core.megatron_experts import Nothing
from sympy import Expr
from torch import Tensor

from shardmath.symbolic.accounts import kept_rows
from shardmath.symbolic.choices import GATED
from shardmath.symbolic.implementations import Implementation
from shardmath.symbolic.ledger import Role
from shardmath.symbolic.terms import Contribution, total

BLOCK = ("router", "flex_dispatch", "experts", "shared_experts")
#: Hidden states so many times as wide as experts are the largest tensors of a block.
WIDE = 4
MOMENTS = ("experts_forward", "combine_backward", "experts_backward")


def random_block(draw: Random) -> tuple[Shape, dict[str, str]]:
    """Draw sizes by letter, and kernels by axis; some groups are larger than a server of eight ranks."""
    kernels = {"dispatch": draw.choice(("deepep", "hybridep")), "mlp": draw.choice(("swiglu", "gelu")),
               "balance": draw.choice(("none", "bias"))}
    kernels["scores"] = "sigmoid" if kernels["balance"] == "bias" else draw.choice(("softmax", "softmax_all"))
    e = draw.choice((2, 4, 8, 16))
    E = e * draw.randint(1, 3)
    # Beyond a server every token reaches both servers.
    q = draw.randint(E // 2 + 1, E) if e == 16 else draw.randint(1, min(E, 6))
    if q == 1 and kernels["scores"] == "softmax":
        kernels["scores"] = "softmax_all"
    width = draw.choice((draw.randint(8, 40), draw.randint(100, 160)))
    t = draw.choice((1, 1, 2)) if e < PEERS else 1
    narrow = draw.randint(8, 40) if width < 100 else draw.randint(2, 20)
    return {
        "E": E, "q": q, "e": e, "et": t, "D": e, "t": t, "sp": int(t > 1), "h": width, "fe": t * narrow, "f": 1, "L": 1,
        "a": t, "k": t, "d": 2, "fs": 0 if t > 1 else draw.choice((0, draw.randint(1, 30))),
        "s": t * draw.randint(8, 40), "b": draw.randint(1, 3),
    }, kernels


def block_of(shape: Shape, kernels: dict[str, str], permute: str) -> Any:
    """Make one layer's router and grouped experts, with a router that tells tokens apart."""
    gated = kernels["mlp"] in GATED
    settings = config(
        shape, num_moe_experts=shape["E"], moe_router_topk=shape["q"],
        moe_ffn_hidden_size=shape["fe"] // shape["et"],  # the stand-in shares out nothing
        moe_token_dispatcher_type="flex", moe_flex_dispatcher_backend=kernels["dispatch"], moe_router_dtype="fp32",
        moe_router_load_balancing_type="none", moe_router_pre_softmax=kernels["scores"] == "softmax_all",
        moe_router_score_function="sigmoid" if kernels["scores"] == "sigmoid" else "softmax",
        moe_router_enable_expert_bias=kernels["balance"] == "bias", bias_dropout_fusion=False,
        moe_shared_expert_intermediate_size=shape["fs"] or None, expert_model_parallel_size=shape["e"],
        expert_tensor_parallel_size=shape["et"],
        gated_linear_unit=gated, activation_func=torch.nn.functional.silu if gated else torch.nn.functional.gelu,
        bias_activation_fusion=gated,
    )
    settings.moe_permute_fusion = permute == "fused"  # behind the checks of Transformer Engine
    spec = get_moe_module_spec(use_te=False, num_experts=shape["E"])
    spec.submodules.experts = ModuleSpec(
        TEGroupedMLP, submodules=MLPSubmodules(linear_fc1=GroupedLinear, linear_fc2=GroupedLinear))
    block = build_module(spec, config=settings).to(BF16).train()
    torch.nn.init.normal_(block.router.weight)
    block.set_layer_number(1)
    block.router._maintain_float32_expert_bias()  # which the first forward pass would do
    return block


@cache
def formulas(permute: str, **kernels: str) -> dict[str, Expr]:
    """Return what one micro-batch keeps, with what dispatchers remember, and bytes at the moments beside it."""
    implementation = MEGATRON_CPU.with_choices(layers="experts", permute=permute, **kernels)
    return {name: inline(implementation, total(*(row.expression for row in some)), ("xn", "xr"))
            for name, some in by_moment(implementation).items()}


def by_moment(implementation: Implementation) -> dict[str, list[Contribution]]:
    """Return the rows that a block keeps, with what dispatchers remember, and those at each moment beside them."""
    rows = [row for row in kept_rows(implementation) if row.component.name in (*BLOCK, "dispatch")]
    kept = [row for row in rows if not row.tensor.sites and row.tensor.storage != "experts.normed" and (
        row.tensor.role is Role.ACTIVATION
        or (row.tensor.role is Role.BUFFER and row.component.name == "flex_dispatch"))]
    return {"kept": kept, **{site: [row for row in rows if site in row.tensor.sites] for site in MOMENTS}}


@pytest.mark.cases(12, 300)
@pytest.mark.parametrize("permute", ["unfused", "fused"])
def test_alive_after_and_during_a_block(draw: Random, permute: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every byte that lives after the forward pass is a row, and so is what lives at the moments of the block."""
    shape, kernels = random_block(draw)
    deep_ep.install(monkeypatch)
    for module, name, stand_in in (
        (torch.cuda, "Stream", Nothing), (torch.cuda, "current_stream", Nothing),
        (torch.cuda, "stream", lambda _: Nothing()), (moe_utils, "te_general_gemm", None),
        *(SORTING if permute == "fused" else ()),
    ):
        monkeypatch.setattr(module, name, stand_in, raising=False)
    with one_rank(shape, draw):
        block = block_of(shape, kernels, permute)
        hidden = torch.randn(shape["s"] // shape["t"], shape["b"], shape["h"], dtype=BF16, requires_grad=True)
        with Live(block, hidden) as live:
            output, _ = block(hidden)
            kept, forward = live.now - output.nbytes, live.peak - live.now + output.nbytes
            live.restart()
            before = live.now
            gradient: Tensor = torch.zeros_like(output)
            output.backward(gradient)
            backward = live.peak - before - gradient.nbytes
    of_dispatch = formulas(permute, **kernels)
    known = {**DEFAULTS, **shape, "B": shape["b"] * shape["D"], "xn": deep_ep.LAST.sorted, "xr": deep_ep.LAST.arrived}
    expected = {name: value(formula, known) for name, formula in of_dispatch.items()}
    on_host = 8 * shape["E"] // shape["e"] + 8 * (kernels["dispatch"] == "hybridep")  # numbers of tokens
    assert kept - on_host == expected["kept"], (shape, kernels)
    # Kernels that a GPU fuses run in steps here, which need more for a while, and a narrow hidden state is no moment.
    # A rank with fewer tokens of one expert than it sends has more when it adds those of shared experts.
    fewer = shape["q"] == 1 and bool(shape["fs"]) and deep_ep.LAST.sorted < shape["s"] * shape["b"] // shape["t"]
    if shape["h"] > WIDE * shape["fe"] and shape["q"] * shape["h"] > WIDE * 4 * shape["E"] and not fewer:
        assert forward == expected["experts_forward"], (shape, kernels)
    elif kernels["mlp"] == "gelu" and shape["q"] * (shape["h"] + shape["fe"]) >= 12 * shape["E"]:
        assert backward == max(expected["combine_backward"], expected["experts_backward"]), (shape, kernels)
