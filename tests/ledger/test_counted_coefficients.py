"""The ledger's polynomials against those fitted to counted bytes: every coefficient of every row, exactly."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from counted import (
    HEAD_VARIANTS,
    LAYER_VARIANTS,
    MEGATRON_VARIANTS,
    end_rows,
    layer_rows,
    polynomial,
    rows_of,
    saved_tables,
    table,
    total,
    without_inputs,
)
from sympy import Eq, Expr, Gt, Integer, expand

from shardmath.symbolic.accounts import kept_rows
from shardmath.symbolic.exact import number
from shardmath.symbolic.functions import Iverson
from shardmath.symbolic.implementations import HUGGINGFACE, TORCHTITAN, Implementation
from shardmath.symbolic.parameters import symbols
from shardmath.symbolic.terms import Contribution

pytestmark = pytest.mark.slow

s, b, h, a, k, d, f, v, t, c = symbols("s b h a k d f v t c")

# What a counting program calls a part of a layer: the component, and the modules of it.
LAYER_PARTS = {
    "attn_norm": ("attention_norm",),
    "qkv": ("attention", "qkv"),
    "core_attn": ("attention", "core_attention", "softmax"),
    "o_proj": ("attention", "o_proj"),
    "ffn_norm": ("ffn_norm",),
    "gate_up": ("swiglu", "gate_up"),
    "act": ("swiglu", "activation"),
    "down": ("swiglu", "down"),
    "<top>": ("layer_input",),
}
MEGATRON_PARTS = {
    "LAST.input_layernorm": ("attention_norm",),
    "LAST.self_attention.linear_qkv": ("attention", "qkv"),
    "LAST.self_attention": ("attention", "rope", "checkpoint"),
    "LAST.self_attention.core_attention": ("attention", "core_attention"),
    "LAST.self_attention.core_attention.scale_mask_softmax": ("attention", "softmax"),
    "LAST.self_attention.linear_proj": ("attention", "o_proj"),
    "LAST.pre_mlp_layernorm": ("ffn_norm",),
    "LAST.mlp.linear_fc1": ("swiglu", "gate_up"),
    "LAST.mlp": ("swiglu", "activation"),
    "LAST.mlp.linear_fc2": ("swiglu", "down"),
    "decoder.final_layernorm": ("final_norm",),
    "output_layer": ("head",),
    "<root>": ("loss",),
    "embedding.word_embeddings": ("embedding", "embedding"),
}
HEAD_PARTS = {
    "embedding": "embedding", "final_norm": "final_norm", "lm_head": "head", "cross_entropy": "loss",
    "model.embed_tokens": "embedding", "model.norm": "final_norm", "<root>": "loss",
}
#: An fp32 copy that a norm of the counted program holds, and Transformers' norms let go of.
HELD_BY_NORM = {("eager_norm+F.cross_entropy(bf16)", "LIVE peak in fwd"): 4 * s * b * h}
SITES = {
    "LIVE after fwd": "after_forward",
    "LIVE peak in fwd": "loss_forward",
    "LIVE peak in bwd (incl. weight grads)": "loss_backward",
}


def label(row: dict[str, str]) -> str:
    return " ".join(row[column] for column in ("variant", "sp", "component") if column in row)


def rows(name: str) -> list[Any]:
    """The rows that have coefficients."""
    return [pytest.param(row, id=label(row)) for row in table(name) if row["exact"] == "1"]


def assert_same(ours: Expr, row: dict[str, str], *, batches: int = 1) -> None:
    """Require the zero polynomial as difference, and 0 at some points; ``batches`` is the least b counted."""
    names = {"variant", "sp", "component", "exact", "spare_equations"}
    least = 2 if row.get("sp") == "1" else 1
    # What is legal: t divides k, and t > 1 with sequence parallelism; local attention was counted with a > k.
    heads, ranks = k * (t + least - 1), t + least - 1
    legal = {a: a + heads, k: heads, t: ranks, b: b + batches - 1, c: Integer(1)}
    # Every row was counted with two or more key and value heads; ``tests/oracles`` draws one, too.
    counted_heads = {Iverson(Gt(t, k)): Integer(0), Iverson(Eq(k, 1)): Integer(0)}
    theirs = polynomial(row, [column for column in row if column not in names])
    difference = (ours - theirs).xreplace(counted_heads).xreplace(legal)
    assert expand(difference.doit()) == 0
    random = Random(label(row))
    for degree in (1, 2, 8):
        point = {letter: Integer(random.randint(1, 99)) for letter in (s, b, h, a, k, d, f, v)}
        assert number(difference, {**point, t: Integer(degree)}) == 0


@pytest.mark.parametrize("row", rows("saved_activation_coefficients"))
def test_layer(row: dict[str, str]) -> None:
    implementation, switches = LAYER_VARIANTS[row["variant"]]
    found = layer_rows(implementation, switches)
    if row["component"] != "TOTAL":
        found = rows_of(implementation, *LAYER_PARTS[row["component"]])
    ours = total(implementation, found, switches).xreplace({t: Integer(1)})
    assert_same(ours, row, batches=2 if row["variant"] == "fused+fa_bshd" else 1)


@pytest.mark.parametrize("row", rows("megatron_tp_coefficients"))
def test_megatron(row: dict[str, str]) -> None:
    implementation, recomputed = MEGATRON_VARIANTS[row["variant"]]
    switches = {**recomputed, "sp": int(row["sp"])}
    if row["component"] == "TOTAL(2 layers)":
        found = [
            *without_inputs(end_rows(implementation)), *saved_tables(implementation, switches),
            *layer_rows(implementation, switches) * 2,
        ]
    elif row["component"] == "decoder":
        found = [*saved_tables(implementation, switches), *rows_of(implementation, "layer_input") * 2]
    else:
        found = without_inputs(rows_of(implementation, *MEGATRON_PARTS[row["component"]]))
    assert_same(total(implementation, found, switches), row)


# The table was counted without rotary embedding, without output projection, and with eager norms.
DTENSOR = replace(TORCHTITAN, allowed={}).with_choices(norm="eager")
DTENSOR_PARTS = {
    "attention_norm": ("attention_norm",),
    "attention.wq": ("attention", "qkv"),
    "core": ("attention", "core_attention"),
    "ffn_norm": ("ffn_norm",),
    "feed_forward.w1": ("swiglu", "gate_up"),
    "feed_forward": ("swiglu", "activation"),
    "feed_forward.w2": ("swiglu", "down"),
}


@pytest.mark.parametrize("row", rows("torch_tp_coefficients"))
def test_dtensor(row: dict[str, str]) -> None:
    parts = DTENSOR_PARTS.values() if row["component"] == "TOTAL" else [DTENSOR_PARTS[row["component"]]]
    found = [contribution for part in parts for contribution in rows_of(DTENSOR, *part)]
    assert_same(total(DTENSOR, found, {"sp": int(row["sp"])}), row)


@pytest.mark.parametrize("row", rows("saved_head_coefficients"))
def test_head(row: dict[str, str]) -> None:
    implementation = HEAD_VARIANTS[row["variant"]]
    if row["component"] in SITES:
        found = live_rows(implementation, SITES[row["component"]])
    elif row["component"] == "TOTAL":
        found = end_rows(implementation)
    else:
        found = rows_of(implementation, HEAD_PARTS[row["component"]])
    held = HELD_BY_NORM.get((row["variant"], row["component"]), Integer(0))
    ours = total(implementation, found, {}).xreplace({t: Integer(1)})
    assert_same(ours + held, row, batches=2 if implementation is HUGGINGFACE else 1)


def live_rows(implementation: Implementation, site: str) -> list[Contribution]:
    """What is saved when the forward pass ends, and what else lives at ``site``; no token ids, no labels."""
    saved = [row for row in without_inputs(end_rows(implementation)) if not row.tensor.sites]
    return saved + [row for row in kept_rows(implementation) if site in row.tensor.sites]


def test_rows_without_coefficients_are_the_known_ones() -> None:
    """Peaks in backward with no single polynomial: the weight gradients decide where they lie."""
    names = (
        "saved_activation_coefficients", "megatron_tp_coefficients", "saved_head_coefficients",
        "torch_tp_coefficients",
    )
    assert {label(row) for name in names for row in table(name) if row["exact"] != "1"} == {
        "fused_norm+megatron_ce LIVE peak in bwd (incl. weight grads)",
        "eager_norm+F.cross_entropy(bf16) LIVE peak in bwd (incl. weight grads)",
    }
