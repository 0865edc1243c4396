"""Models with experts in DeepSpeed's ZeRO against bytes counted in it, and what is refused."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from counted import DEFAULTS, table

from shardmath import explain
from shardmath.compiler.evaluators import find
from shardmath.errors import InputError
from shardmath.symbolic.parameters import BY_NAME

COUNTED = table("deepspeed_experts")
LETTERS = ("h", "a", "k", "d", "f", "fe", "E", "q", "u", "L", "s", "b", "qkn", "bias", "fs", "sgate", "rfull")
MODEL, CLUSTER = "qwen3-30b-a3b", {"num_gpus": 8, "seq_length": 4096}


def terms_of(row: dict[str, str]) -> dict[str, Any]:
    """Every term on the only rank of a pipeline, exactly."""
    stage, ranks = int(row["stage"]), int(row["ranks"])
    kernels = {"data_parallel": "deepspeed", "precision": "mixed", "layers": "experts"}
    module = find("huggingface", kernels).terms
    usual = {BY_NAME[name].letter: BY_NAME[name].default for name in module.INPUTS}
    values: dict[str, Any] = {
        **usual, **dict.fromkeys("MNn", 1), **DEFAULTS, "e": 1, **{letter: int(row[letter]) for letter in LETTERS},
        **{f"zero{number}": int(stage >= number) for number in (1, 2, 3)}, "pt": int(row["threshold"]), "bk": 10**6,
        **dict.fromkeys(("pf", "mr", "ml"), 0), "w": 2, "tied": 0, "D": ranks, "B": ranks * int(row["b"]),
        "N": ranks, "n": ranks,
    }
    inputs = {name: values[BY_NAME[name].letter] for name in module.INPUTS}
    broken = [rule for rule, kept in zip(module.RULES, module.rules_met(**inputs), strict=True) if not kept]
    assert not broken
    return dict(module.terms(**{name: Fraction(value) for name, value in inputs.items()}))


@pytest.mark.slow
@pytest.mark.parametrize("row", COUNTED, ids=lambda row: "-".join([*row.values()][:4]))
def test_what_a_rank_keeps_is_counted(row: dict[str, str]) -> None:
    found = terms_of(row)
    assert found["stage.all_parameters"] == int(row["elements"])
    assert found["stage.weight"] == int(row["weights"])
    assert found["stage.optimizer"] == int(row["states"])
    assert found["stage.gradient"] == int(row["gradients"])
    assert found["stage.viewed_experts"] == int(row["viewed"])


def test_the_table_has_every_stage_of_both_families() -> None:
    assert {(row["family"], row["stage"]) for row in COUNTED} == {
        (family, stage) for family in ("mixtral", "qwen") for stage in "0123"}
    viewed = [row for row in COUNTED if int(row["viewed"])]
    assert {row["experts"] for row in viewed} == {"eager", "grouped_mm"}
    assert {row["rfull"] for row in viewed} == {"0"}
    assert {row["ranks"] for row in viewed} == {"2", "3"}


@pytest.mark.slow
def test_stage_3_holds_all_experts_unless_layers_run_again() -> None:
    """Of Qwen3 30B the views alone are all its experts in 16 bits."""
    plain, again = (explain(MODEL, "h200-141gb", implementation="huggingface", zero_stage=3, recompute=recompute,
                            **CLUSTER).ranks[0].lines for recompute in ("none", "full"))
    viewed = [[line.bytes for line in lines if line.component == "viewed_experts"] for lines in (plain, again)]
    assert viewed == [[2 * 48 * 128 * 3 * 2048 * 768], []]


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "words"), [
    ({"expert_parallel": 8}, "DeepSpeed with experts that are sent to other ranks"),
    ({"lora_rank": 16}, "adapters for models with experts in Transformers"),
])
def test_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        explain(MODEL, "h200-141gb", implementation="huggingface", zero_stage=3, **CLUSTER, **arguments)
