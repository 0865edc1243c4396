"""FLOPs and tensor-parallel traffic of one rank of Megatron-Core, forward and backward apart, against the ledger.

PyTorch counts the products that the program calls; stand-ins for fused kernels (``oracles.megatron_core.fused``) call
none, so core attention is counted where it is Megatron-Core's own. Collectives are seen below autograd, by group.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from counted import MEGATRON_CPU, values
from megatron.core import parallel_state
from oracles.instruments.sent import Sent, Traffic
from oracles.instruments.times import timed
from oracles.megatron_core.megatron_cpu import GPT, LOCAL, Batch, Kernels, config, forward, gpt_model, one_rank
from oracles.megatron_core.megatron_layouts import VARIANTS, random_layout, random_stages
from oracles.megatron_core.test_megatron_gpt import random_layout as random_gpt
from torch.nn.functional import gelu
from torch.utils.flop_counter import FlopCounterMode

from shardmath.symbolic.implementations import Implementation
from shardmath.symbolic.recompute import MODES

#: Programs whose core attention is a stand-in.
STAND_IN = ("fused", "view", "flash", "behind", "after", "whole")
LOSSES: dict[str, dict[str, Any]] = {
    "vocab_parallel": {}, "native_fused": {"cross_entropy_loss_fusion": True, "cross_entropy_fusion_impl": "native"},
}
GPT_LEDGER = MEGATRON_CPU.with_choices(normalisation="layer", biases="linear", mlp="gelu", positions="learned")
GPTS: dict[str, tuple[Kernels, Implementation]] = {
    "flash": (GPT, GPT_LEDGER.with_choices(value="view")),
    "local": (LOCAL, GPT_LEDGER.with_choices(attention="unfused", norm="torch")),
}


class Pass:
    """FLOPs and tensor-parallel traffic inside of the ``with`` block."""

    def __init__(self) -> None:
        self._flops, self._sent = FlopCounterMode(display=False), Sent()

    def __enter__(self) -> Pass:
        """Start counting."""
        self._flops.__enter__()
        self._sent.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        """Stop counting."""
        self._sent.__exit__(*error)
        self._flops.__exit__(*error)
        self.flops = self._flops.get_total_flops()
        self.sent = self._sent.over(parallel_state.get_tensor_model_parallel_group())


def compare(implementation: Implementation, shape: dict[str, int], variant: str, forward: Pass, backward: Pass) -> None:
    """One micro-batch of the rank's part of the model."""
    known = values({}, "", **shape) | {"B": shape["b"] * shape["D"]}
    found = timed(implementation, **known)
    layers = int(found["stage_layers"])
    s, b, a, d, t, rfull, rcore = (shape.get(letter, 0) for letter in ("s", "b", "a", "d", "t", "rfull", "rcore"))
    # Both products of core attention without the half that a causal mask hides.
    core = 2 * (s // shape.get("c", 1)) * s * b * (a // t) * d * (variant in STAND_IN)
    again = found["stage.repeated_flops"] - core * _repeated(implementation, shape, layers, rfull, rcore)
    once = found["stage.forward_flops"] - core * layers
    assert forward.flops == once
    assert backward.flops == 2 * once + again
    if t == 1:
        assert forward.sent == backward.sent == Traffic(0, 0)
        return
    assert forward.sent == Traffic(
        found.get("stage.tensor_forward_passes", 0), found.get("stage.tensor_forward_bytes", 0))
    ways = ("backward", "repeated", "hidden")
    assert backward.sent == Traffic(
        *(sum(found.get(f"stage.tensor_{way}_{kind}", 0) for way in ways) for kind in ("passes", "bytes")))


def _repeated(implementation: Implementation, shape: dict[str, int], layers: int, rfull: int, rcore: int) -> int:
    """How many layers make core attention once more."""
    if not rfull:
        return layers * rcore
    return min(shape["rn"], layers) if implementation.choices["recompute_method"] == "block" else layers


@pytest.mark.cases(12, 100)
@pytest.mark.parametrize("variant", list(VARIANTS))
def test_stage_of_a_llama(draw: Random, variant: str) -> None:
    kernels, implementation = VARIANTS[variant]
    shape = random_layout(draw, variant)
    stages, layers = random_stages(draw, shape["p"])
    loss = draw.choice(list(LOSSES))
    shape |= layers
    with one_rank(shape, draw):
        model = gpt_model(shape, config(shape, **LOSSES[loss]), kernels)
        batch = Batch.of(shape)
        batch = batch if variant == "local" else batch.with_mask(None)
        with Pass() as first:
            output = forward(model, shape, batch)
        with Pass() as second:
            output.sum().backward()
        compare(implementation.with_choices(stages=stages, loss=loss), shape, variant, first, second)


@pytest.mark.cases(6, 50)
@pytest.mark.parametrize("variant", list(GPTS))
def test_stage_of_a_gpt(draw: Random, variant: str) -> None:
    kernels, implementation = GPTS[variant]
    shape = random_gpt(draw, variant) | {"drop": 0, "adrop": 0, "D": 1, "c": 1}
    shape["pos"] = shape["s"]
    settings = config(
        shape, normalization="LayerNorm", add_bias_linear=bool(shape["lbias"]), gated_linear_unit=False,
        activation_func=gelu, bias_activation_fusion=bool(shape["lbias"]),
    )
    with one_rank(shape, draw):
        model = gpt_model(shape, settings, kernels, positions="learned_absolute")
        batch = Batch.of(shape)
        batch = batch if variant == "local" else batch.with_mask(None)
        with Pass() as first:
            output = forward(model, shape, batch)
        with Pass() as second:
            output.sum().backward()
        compare(implementation, shape, variant, first, second)


@pytest.mark.cases(12, 70)
@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "none"])
def test_recompute_repeats_products_and_traffic(draw: Random, mode: str) -> None:
    variant = draw.choice(list(VARIANTS))
    kernels, implementation = VARIANTS[variant]
    switches = dict.fromkeys(MODES[mode], 1)
    method = draw.choice(("each", "block")) if "rfull" in switches else "each"
    shape = random_layout(draw, variant) | switches | {"rn": draw.randint(1, 3)}
    stages, layers = random_stages(draw, shape["p"])
    shape |= layers
    with one_rank(shape, draw):
        model = gpt_model(shape, config(shape, method), kernels)
        batch = Batch.of(shape)
        batch = batch if variant == "local" else batch.with_mask(None)
        with Pass() as first:
            output = forward(model, shape, batch)
        with Pass() as second:
            output.sum().backward()
        chosen = implementation.with_choices(stages=stages, recompute_method=method)
        compare(chosen, shape, variant, first, second)
