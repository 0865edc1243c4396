"""The ledger's terms against counted bytes and parameters: every row of every table, exactly."""

from functools import cache
from typing import Any

import pytest
from counted import (
    LAYER_VARIANTS,
    MEGATRON_CPU,
    MEGATRON_VARIANTS,
    saved_tables,
    table,
    total,
    value,
    values,
)

from shardmath.symbolic.accounts import build
from shardmath.symbolic.exact import evaluate
from shardmath.symbolic.implementations import MEGATRON, Implementation
from shardmath.symbolic.terms import Term

LLAMA_8B = next(row for row in table("parameter_counts") if row["model"] == "llama3.1-8b")
ENDS = {
    "embedding": "saved_embedding", "final_norm": "saved_final_norm",
    "head": "saved_lm_head", "loss": "saved_loss",
}


@cache
def needed(implementation: Implementation, *names: str) -> tuple[Term, ...]:
    return tuple(build(implementation).closure(names))


def by_variant(name: str) -> list[Any]:
    rows = table(name)
    return [
        pytest.param(variant, [row for row in rows if row["variant"] == variant], id=variant)
        for variant in dict.fromkeys(row["variant"] for row in rows)
    ]


def kept_by_a_layer(switches: dict[str, int]) -> str:
    """The term of what one layer holds from its forward pass to its backward pass."""
    return "layer_input.saved" if switches.get("rfull") else "layer.saved"


@pytest.mark.parametrize(("variant", "rows"), by_variant("saved_activations"))
def test_saved_by_one_layer(variant: str, rows: list[dict[str, str]]) -> None:
    implementation, switches = LAYER_VARIANTS[variant]
    kept = kept_by_a_layer(switches)
    terms = needed(implementation, kept)
    for row in rows:
        known = values(row, "s b h a k d f", u=512, **switches)
        assert evaluate(terms, known)[kept] == int(row["saved"]), row


@pytest.mark.slow
@pytest.mark.parametrize(("variant", "rows"), by_variant("megatron_tp_saved"))
def test_saved_by_a_tensor_parallel_rank(variant: str, rows: list[dict[str, str]]) -> None:
    implementation, switches = MEGATRON_VARIANTS[variant]
    terms = needed(implementation, "stage.parameters", "stage.activation")
    tables = total(implementation, saved_tables(implementation, switches), switches)
    for row in rows:
        named = {"t": int(row["tp"]), "u": int(row["v"]), "L": int(row["layers"])}
        known = values(row, "sp s b h a k d f", **named, **switches)
        found = evaluate(terms, known)
        assert found["stage.parameters"] == int(row["params_per_rank"]), row
        saved = found["stage.activation"] + value(tables, known)
        assert saved == int(row["saved_bytes_per_rank"]), row


@pytest.mark.parametrize("row", table("megatron_scale_8b"))
def test_llama_8b(row: dict[str, str]) -> None:
    full = row["recompute"] == "full"
    layout = {"t": int(row["tp"]), "p": int(row["pp"]), "r": int(row["pp_rank"]), "rfull": int(full)}
    shape = {letter: int(LLAMA_8B[letter]) for letter in "hakdfL"}
    known = values(row, "sp s b", u=int(LLAMA_8B["v"]), **shape, **layout)
    kept = kept_by_a_layer(layout)
    terms = needed(MEGATRON_CPU, "stage.parameters", kept, "stage.activation",
                   *(f"stage.{part}.activation" for part in ENDS))
    found = evaluate(terms, known)
    tables = value(total(MEGATRON_CPU, saved_tables(MEGATRON_CPU, layout), layout), known)
    assert found["stage.parameters"] == int(row["params"])
    assert found["stage_layers"] == int(row["layers"])
    in_layers = found[kept] * found["stage_layers"]
    assert in_layers + tables == int(row["saved_layers"]) + int(row["saved_other"])
    assert int(row["saved_layers" if full else "saved_other"]) == 0
    for part, column in ENDS.items():
        assert found[f"stage.{part}.activation"] == int(row[column]), part
    assert found["stage.activation"] + tables == int(row["saved"])


DENSE = [row for row in table("parameter_counts") if not row["E"]]


@pytest.mark.parametrize("row", DENSE, ids=[row["model"] for row in DENSE])
def test_parameters(row: dict[str, str]) -> None:
    parts = ("stage", "embedding", "head", "layer", "attention", "swiglu", "attention_norm", "ffn_norm",
             "final_norm")
    terms = needed(MEGATRON, *(f"{part}.parameters" for part in parts))
    known = values(row, "h f L a k d tied", u=int(row["v"]), bias=int(row["has_bias"]),
                   qkn=int(row["arch"] == "qwen3"))
    found = {name.removesuffix(".parameters"): count for name, count in evaluate(terms, known).items()}
    ours = {
        "total": found["stage"],
        "active": found["stage"],
        "embedding": found["embedding"],
        "lm_head": found["head"],
        "per_layer": found["layer"],
        "attn_per_layer": found["attention"],
        "ffn_or_moe_per_layer": found["swiglu"],
        "norms_per_layer": found["attention_norm"] + found["ffn_norm"],
        "final_norm": found["final_norm"],
    }
    assert ours == {column: int(row[column]) for column in ours}
