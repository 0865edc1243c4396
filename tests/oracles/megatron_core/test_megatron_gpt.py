"""Megatron-Core's GPT on one rank of a fake job: LayerNorm, GELU, biases, dropout and learned positions.

Which kernels are stand-ins is said in ``oracles.megatron_core.fused``; dropout is the kernel of a GPU
(``megatron_cpu``).
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import torch
from counted import MEGATRON_CPU, saved_tables, total, value, values
from megatron.core.activations import fast_gelu, squared_relu
from megatron.core.models.common.embeddings.rotary_pos_embedding import RotaryEmbedding
from oracles.instruments.ledger import ledger
from oracles.instruments.saved import Saved
from oracles.megatron_core.megatron_cpu import GPT, LOCAL, Batch, Kernels, config, forward, gpt_model, one_rank
from torch.nn.functional import gelu, relu, silu

from shardmath.symbolic.implementations import Implementation
from shardmath.symbolic.recompute import MODES

LEDGER = MEGATRON_CPU.with_choices(normalisation="layer", dropout="masks", biases="linear")
ACTIVATIONS = {"gelu": gelu, "geglu": gelu, "swiglu": silu, "relu": relu, "relu2": squared_relu}
GATED = ("geglu", "swiglu")
POSITIONS = {"learned": "learned_absolute", "rotary": "rope", "partial": "rope"}
SINKS = {"none": "vanilla", "trained": "learnable"}
#: Parts of models that are drawn.
DRAWN = {
    "mlp": tuple(ACTIVATIONS), "positions": tuple(POSITIONS), "sinks": tuple(SINKS), "window": ("none", "sliding"),
}
VARIANTS: dict[str, tuple[Kernels, Implementation]] = {
    "flash": (GPT, LEDGER.with_choices(value="view")),
    "local": (LOCAL, LEDGER.with_choices(attention="unfused", norm="torch")),
}


def random_layout(draw: Random, variant: str) -> dict[str, int]:
    """Draw sizes and degrees by letter; ranks may outnumber key and value heads."""
    t, p = draw.choice((1, 1, 2, 4)), draw.choice((1, 1, 2))
    k = draw.choice((1, 2, t, t, 2 * t))
    k = t if k % t and t % k else k
    s = 2 * t * draw.randint(1, 6)
    return {
        "t": t, "p": p, "r": draw.randrange(p), "sp": draw.randint(0, 1) if t > 1 and variant == "flash" else 0,
        "k": k, "a": max(k, t) * draw.randint(1, 3), "d": 2 * draw.randint(1, 12), "h": t * draw.randint(1, 40),
        "f": t * draw.randint(1, 40), "s": s, "b": draw.randint(1, 3),
        "u": t * draw.randint(4, 60), "L": p * draw.randint(1, 2), "tied": draw.randint(0, 1),
        "lbias": draw.randint(0, 1), "drop": draw.randint(0, 1), "adrop": draw.randint(0, 1),
    }


@pytest.mark.cases(15, 150)
@pytest.mark.parametrize("variant", list(VARIANTS))
def test_stage_of_a_gpt(draw: Random, variant: str) -> None:
    kernels, implementation = VARIANTS[variant]
    kernel = draw.choice(("fused", "unfused"))
    mlp, positions = draw.choice(DRAWN["mlp"]), draw.choice(DRAWN["positions"])
    switches = dict.fromkeys(draw.choice(list(MODES.values())), 1)
    shape = random_layout(draw, variant) | switches
    others: dict[str, Any] = {
        "normalization": "LayerNorm", "add_bias_linear": bool(shape["lbias"]),
        "hidden_dropout": 0.1 * shape["drop"], "attention_dropout": 0.1 * shape["adrop"],
        "gated_linear_unit": mlp in GATED,
        "activation_func": ACTIVATIONS[mlp],
        "bias_activation_fusion": mlp not in ("relu", "relu2") and (
            kernel == "fused" if mlp in GATED else bool(shape["lbias"])),
    }
    sinks = draw.choice(DRAWN["sinks"]) if variant == "local" else "none"
    window = draw.choice(DRAWN["window"])
    others |= {"softmax_type": SINKS[sinks], "window_size": (2, 0) if window == "sliding" else None}
    with one_rank(shape, draw):
        model = gpt_model(
            shape, config(shape, **others), kernels, rotary_share=0.5 if positions == "partial" else 1.0,
            positions=POSITIONS[positions],
        )
        batch = Batch.of(shape)
        batch = batch if variant == "local" and window == "none" else batch.with_mask(None)
        with Saved() as saved:
            output = forward(model, shape, batch)
        found = saved.bytes(model, batch.ids, batch.labels, batch.positions)
    chosen = implementation.with_choices(mlp=mlp, positions=positions, sinks=sinks, window=window, swiglu=kernel)
    shape["win"] = 3 if window == "sliding" else 0
    shape["pos"] = shape["s"] if positions == "learned" else 0
    shape["dr"] = (shape["d"] // 2 + 1) // 2 * 2 if positions == "partial" else 0
    known = values({}, "", **shape) | {"B": shape["b"]}
    parameters, activation = ledger(chosen, "stage.parameters", "stage.activation", **known)
    assert output is not None
    assert sum(one.numel() for one in model.parameters()) == parameters
    switched = {**switches, **{letter: shape[letter] for letter in ("lbias", "drop", "adrop")}}
    assert found == activation + int(value(total(chosen, saved_tables(chosen, switches), switched), known))


@pytest.mark.parametrize("t", [1, 2])
def test_views_of_one_head_without_angles(t: int) -> None:
    """Queries of one sequence stay a view of the fused projection, which they keep with the keys and values in it."""
    kernels, implementation = VARIANTS["local"]
    draw = Random(t)
    shape = random_layout(draw, "local") | {
        "t": t, "p": 1, "r": 0, "k": t, "a": 3 * t, "h": 8 * t, "f": 8 * t, "u": 8 * t, "s": 6, "b": 1, "L": 2,
        "pos": 6, "sp": 0, "lbias": 0, "drop": 0, "adrop": 0}
    with one_rank(shape, draw):
        settings = config(shape, normalization="LayerNorm", gated_linear_unit=False, activation_func=gelu,
                          bias_activation_fusion=False)
        model, batch = gpt_model(shape, settings, kernels, positions="learned_absolute"), Batch.of(shape)
        with Saved() as saved:
            output = forward(model, shape, batch)
        found = saved.bytes(model, batch.ids, batch.labels, batch.positions)
    chosen = implementation.with_choices(mlp="gelu", positions="learned", swiglu="unfused")
    known = values({}, "", **shape) | {"B": 1}
    activation, = ledger(chosen, "stage.activation", **known)
    assert output.requires_grad
    assert found == activation + int(value(total(chosen, saved_tables(chosen, {}), {}), known))


@pytest.mark.cases(5, 50)
def test_two_tables_of_angles(draw: Random) -> None:
    """Gemma 3 in Megatron-Bridge has a table for layers with windows, and one for the others."""
    shape = {"s": draw.randint(1, 99), "d": 2 * draw.randint(1, 50), "b": 1, "L": 2, "h": 2, "a": 1, "k": 1, "f": 2}
    with one_rank(shape, draw):
        tables = [RotaryEmbedding(shape["d"], 1.0, rotary_base=base)(shape["s"]) for base in (10_000, 1_000_000)]
    once, twice = (ledger(MEGATRON_CPU.with_choices(rope=rope), "tables.buffer", **shape, B=1, u=1)[0]
                   for rope in ("fused", "fused_twice"))
    assert sum(each.nbytes for each in tables) == twice == 2 * once


@pytest.mark.usefixtures("compiler")
def test_a_compiled_gate_keeps_its_input() -> None:
    """Gemma's gate in Megatron-Bridge is compiled, so that its steps keep what one kernel keeps."""
    hidden = torch.zeros(64, 32, dtype=torch.bfloat16, requires_grad=True)
    steps = getattr(fast_gelu, "_torchdynamo_orig_callable", fast_gelu)
    gate = torch.compile(steps, backend="aot_eager_decomp_partition")(hidden)
    assert [each.data_ptr() for each in gate.grad_fn.saved_tensors] == [hidden.data_ptr()]
