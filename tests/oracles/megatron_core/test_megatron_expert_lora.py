"""Adapters of experts in Megatron-Core: parameters, saved bytes, products and traffic, against the ledger.

Router, dispatchers, experts and the matrices of adapters are Megatron-Core's own; the grouped product of Transformer
Engine is a stand-in.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
import torch
from counted import MEGATRON_CPU
from megatron.core.models.gpt.moe_module_specs import get_moe_module_spec
from megatron.core.transformer.mlp import MLPSubmodules
from megatron.core.transformer.moe import experts, moe_utils, token_dispatcher
from megatron.core.transformer.moe.experts import TEGroupedMLP
from megatron.core.transformer.spec_utils import ModuleSpec, build_module
from oracles.instruments.ledger import ledger
from oracles.instruments.processes import on_ranks
from oracles.instruments.saved import Saved
from oracles.instruments.times import timed
from oracles.megatron_core.grouped_linear import RECIPES, GroupedLinear, TakenAway, Unpadded
from oracles.megatron_core.megatron_cpu import BF16, config, one_rank
from oracles.megatron_core.megatron_experts import Nothing, on_host, run_all
from oracles.megatron_core.megatron_lora import adapt
from torch.nn.functional import silu

#: Groups of the ledger, and how many ranks each has.
GROUPS = {"tensor": ("t",), "expert": ("e",), "expert_tensor": ("et",), "expert_all": ("e", "et")}
#: Products of experts, their adapters, recipes of FP8, with which frozen experts keep no input either, and ranks.
_FP8 = ("current", "block", "mx", "nvfp4")
KINDS = (("grouped", "shared", ("none",), 1), ("grouped", "none", ("none",), 1), ("sequential", "each", ("none",), 1),
         ("sequential", "none", ("none",), 1), ("grouped", "shared", _FP8, 1), ("grouped", "none", _FP8, 1),
         ("sequential", "none", ("none",), 2))


@pytest.mark.cases(4, 100)
@pytest.mark.parametrize(("products", "adapters", "recipes", "t"), KINDS)
def test_block_of_experts(
    draw: Random, products: str, adapters: str, recipes: tuple[str, ...], t: int, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On several ranks shared experts have parts of the tokens and of their width."""
    for module, name, stand_in in (
        (torch.cuda, "Stream", Nothing), (torch.cuda, "current_stream", Nothing),
        (torch.cuda, "stream", lambda _: Nothing()), (token_dispatcher, "maybe_move_tensor_to_cpu", on_host),
        (moe_utils, "te_general_gemm", None), (experts, "HAVE_TE", True), (experts, "Fp8Padding", Unpadded),
        (experts, "Fp8Unpadding", TakenAway),
    ):
        monkeypatch.setattr(module, name, stand_in, raising=False)
    E, fs = draw.randint(2, 6), draw.choice((0, draw.randint(1, 30)))
    shape = {
        "E": E, "q": draw.randint(1, min(E, 3)), "h": draw.randint(2, 30), "fe": draw.randint(1, 30), "f": 1, "L": 1,
        "a": 1, "k": 1, "fs": fs, "s": draw.randint(2, 20), "b": draw.randint(1, 3),
        "d": 2, "rl": draw.randint(1, 9), "sgate": draw.randint(0, 1) if fs else 0,
    }
    dispatch, fused, recipe = draw.choice(("alltoall", "allgather")), bool(draw.randint(0, 1)), draw.choice(recipes)
    if t > 1:
        shape |= {letter: t * shape[letter] for letter in ("a", "k", "f", "h", "fe", "fs", "s", "rl")}
        shape |= {"t": t, "et": t, "sp": 1, "sgate": 0}
    if recipe != "none":
        shape |= {"h": 128 * draw.randint(1, 2), "fe": 128 * draw.randint(1, 2), "fs": 0, "sgate": 0}
    with one_rank(shape, draw):
        settings = config(
            shape, num_moe_experts=E, moe_router_topk=shape["q"], moe_ffn_hidden_size=shape["fe"],
            moe_token_dispatcher_type=dispatch, moe_aux_loss_coeff=0.0, moe_router_load_balancing_type="none",
            moe_router_dtype="fp32", moe_router_pre_softmax=True, bias_activation_fusion=fused, activation_func=silu,
            moe_shared_expert_intermediate_size=shape["fs"] or None,
            moe_shared_expert_gate=bool(shape["sgate"]),
        )
        spec = get_moe_module_spec(use_te=False, num_experts=E)
        if products == "grouped":
            spec.submodules.experts = ModuleSpec(
                TEGroupedMLP, submodules=MLPSubmodules(linear_fc1=GroupedLinear, linear_fc2=GroupedLinear))
        if recipe != "none":  # behind the checks of a GPU
            settings.fp8, settings.fp8_recipe = "hybrid", RECIPES[recipe]
        block = build_module(spec, config=settings).to(BF16).train()
        block.set_layer_number(1)
        routed, settings.fp8 = block.experts, None  # matrices of adapters are in 16 bits
        if adapters == "none":
            block.requires_grad_(False)
            if block.shared_experts is not None:
                adapt(block.shared_experts, shape["rl"], "all_linear", apart=False)
        else:
            adapt(block, shape["rl"], "all_linear", apart=False)
        settings.fp8 = "hybrid" if recipe != "none" else None
        hidden = torch.randn(shape["s"] // t, shape["b"], shape["h"], dtype=BF16, requires_grad=True)
        with Saved(block) as saved:
            output, _ = block(hidden)
        kept = saved.bytes(block)
    assert output.requires_grad
    implementation = MEGATRON_CPU.with_choices(
        layers="experts", permute="unfused", adapters="all_linear", peak="saved", dispatch=dispatch,
        scores="softmax_all", expert_products=products, expert_adapters=adapters,
        swiglu="fused" if fused else "unfused", fp8=recipe,
    )
    known = {**shape, "B": shape["b"], "u": 1}
    parts = ("router", "experts", "shared_experts", "expert_adapters", "shared_expert_adapters")
    assert kept == sum(ledger(implementation, *(f"{part}.saved" for part in parts), **known)), (shape, products)
    trained = ledger(implementation, "expert_adapters.expert_parameters", "shared_expert_adapters.parameters", **known)
    frozen = ledger(implementation, "router.frozen_parameters", "experts.expert_frozen_parameters",
                    "shared_experts.frozen_parameters", **known)
    assert sum(each.numel() for each in block.parameters() if each.requires_grad) == sum(trained)
    assert sum(each.numel() for each in routed.parameters() if each.requires_grad) == trained[0]
    assert sum(each.numel() for each in block.parameters() if not each.requires_grad) == sum(frozen)


@pytest.mark.cases(4, 40)
@pytest.mark.parametrize("ranks", [2, 4])
def test_work_and_traffic(draws: list[Random], ranks: int, tmp_path: Path) -> None:
    """Experts one after another, each with an adapter, on ranks that share them and their width out."""
    cases = [shape_for(draw, ranks) for draw in draws]
    for (shape, dispatch), found in zip(cases, on_ranks(run_all, ranks, tmp_path, cases)[0], strict=True):
        implementation = MEGATRON_CPU.with_choices(
            layers="experts", dispatch=dispatch, permute="unfused", adapters="all_linear", expert_adapters="each",
            expert_products="sequential", peak="saved",
        )
        terms = timed(implementation, **shape)
        forward, unneeded = terms["stage.forward_flops"], terms["stage.unneeded_flops"]
        # Core attention is a stand-in: both of its products without what a causal mask hides.
        core = shape["L"] * shape["s"] ** 2 * shape["b"] * (shape["a"] // shape["t"]) * 2 * shape["d"]
        # Megatron-Core's router makes the gradient of its frozen weight all the same, which no model needs.
        tokens = shape["s"] // shape["t"] * shape["b"]
        routers = (shape["L"] - shape["ld"]) * 2 * tokens * shape["h"] * shape["E"]
        backward = 2 * (forward - core) - unneeded + routers
        for way, flops, kinds in (("forward", forward - core, ("forward",)),
                                  ("backward", backward, ("backward", "hidden"))):
            several = [name for name, letters in GROUPS.items() if any(shape[letter] > 1 for letter in letters)]
            traffic = [
                sum(int(terms.get(f"stage.{group}_{kind}_{unit}", 0)) for group in several for kind in kinds)
                for unit in ("passes", "bytes")
            ]
            # Megatron-Core's own norms do not hand the gathered input on to adapters, so it is gathered once more.
            # No gradient goes on to the embedding, which the ledger has for inputs that are prepared to need one.
            again = shape["sp"] * (shape["L"] + shape["ld"] - (way == "backward"))
            whole = 2 * shape["s"] * shape["b"] * shape["h"]
            # The ledger has one gather for the adapters of all experts of a rank; one after another each has its own.
            apart = 2 * (shape["L"] - shape["ld"]) * (shape["E"] // shape["e"] - 1)
            apart *= int(shape["et"] > 1 and way == "forward")
            traffic = [traffic[0] + again + apart, traffic[1] + again * whole]
            assert found[way] == [flops, *traffic], (way, shape, dispatch)
        names = ("stage.parameters", "stage.expert_parameters", "stage.frozen_parameters",
                 "stage.expert_frozen_parameters")
        counted = ledger(implementation, *names, **shape)
        of_experts = shape["e"] > 1
        assert found["parameters"] == [
            part if of_experts else both for pair in (counted[:2], counted[2:])
            for part, both in zip(pair, (sum(pair), 0), strict=True)]


def shape_for(draw: Random, ranks: int) -> list:
    """Draw sizes and degrees: tensor parallelism, or data parallelism, with the same ranks shared out by experts."""
    t = draw.choice([degree for degree in (1, 2, 4) if degree <= ranks])
    et = draw.choice([degree for degree in (1, 2) if degree <= t])
    e = draw.choice([degree for degree in (1, 2, 4) if ranks % (degree * et) == 0])
    k, L, E = t * draw.randint(1, 2), draw.randint(1, 2), e * draw.choice((1, 2)) if e > 1 else draw.choice((2, 4))
    shape = {
        "t": t, "c": 1, "D": ranks // t, "e": e, "et": et, "p": 1, "r": 0, "sp": int(t > 1), "k": k,
        "a": k * draw.randint(1, 2), "d": 2 * draw.randint(2, 5), "h": 2 * t * draw.randint(2, 10),
        "f": t * draw.randint(1, 20), "L": L, "ld": draw.randint(0, L - 1), "E": E, "q": min(E, 2),
        "fe": et * draw.randint(1, 12), "fs": draw.choice((0, t * draw.randint(1, 12))), "sgate": 0,
        "s": 8 * t * draw.randint(1, 3), "b": draw.randint(1, 2), "u": t * draw.randint(4, 30), "tied": 0,
        "mtp": 0, "lk": 0, "lq": 0, "dr": 0, "dv": 0, "rl": t * draw.randint(1, 5),
    }
    # The experts that tokens are sent to go round: as many tokens for each.
    if shape["s"] // t * shape["b"] * shape["q"] % E:
        shape["q"] = E
    return [shape, draw.choice(("alltoall", "allgather"))]
