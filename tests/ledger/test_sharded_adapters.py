"""Adapters on full and 4-bit weights that DeepSpeed's ZeRO or FSDP2 shares out: bytes of a rank between two steps."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from counted import DEFAULTS, table, values
from oracles.instruments.traced import evaluated

from shardmath import explain
from shardmath.compiler.evaluators import find
from shardmath.symbolic.implementations import HUGGINGFACE
from shardmath.symbolic.parameters import BY_NAME

COUNTED = table("sharded_adapters")
FAMILY: dict[str, dict[str, int]] = {"llama": {}, "qwen2": {"bias": 1}, "qwen3": {"qkn": 1}}
PRECISION = {"deepspeed": "mixed", "fsdp": "bf16"}


def terms(row: dict[str, str]) -> dict[str, Any]:
    """Every term of a row's rank, exactly."""
    kernels = {"data_parallel": row["sharing"], "precision": PRECISION[row["sharing"]], "adapters": row["adapters"],
               "base_weights": row["base_weights"], "peak": "saved"}
    ranks, stage = int(row["ranks"]), int(row["stage"])
    known = {**DEFAULTS, **values(row, "h a k d f u L tied s b rl", **FAMILY[row["family"]]), "M": 1, "N": ranks,
             "n": ranks, "D": ranks, "B": int(row["b"]) * ranks, "w": int(row["w"]) if stage else 2,
             "bk": int(row["bucket"]), "pt": int(row["threshold"]),
             **{f"zero{number}": int(stage >= number) for number in (1, 2, 3)}}
    module = find("huggingface", kernels).terms
    inputs = {name: known[BY_NAME[name].letter] for name in module.INPUTS}
    broken = [rule for rule, kept in zip(module.RULES, module.rules_met(**inputs), strict=True) if not kept]
    assert not broken
    return dict(module.terms(**{name: Fraction(value) for name, value in inputs.items()}))


@pytest.mark.slow
def test_a_rank_keeps_what_was_counted() -> None:
    assert {(row["sharing"], row["stage"], row["base_weights"]) for row in COUNTED} >= {
        *(("deepspeed", stage, base) for stage in "0123" for base in ("full", "nf4")),
        ("fsdp", "3", "full"), ("fsdp", "3", "nf4"),
    }
    for row in COUNTED:
        found = terms(row)
        kept = found["stage.weight"] + found["stage.optimizer"]
        if row["sharing"] == "deepspeed" and row["stage"] == "3":  # its gradients and its bucket stay
            kept += found["stage.gradient"] + found["stage.stage3_bucket.optimizer_step"]
        assert found["stage.parameters"] == int(row["trained"]), row
        assert kept == int(row["kept"]), (row, kept)


@pytest.mark.slow
def test_deepspeed_brings_its_precision_and_frozen_weights_are_shared_out() -> None:
    """Of 8 billion frozen weights every one of 8 ranks keeps an eighth in stage 3, and all of them in stage 2."""
    run: dict[str, Any] = {"num_gpus": 8, "implementation": "huggingface", "lora_rank": 16, "seq_length": 2048,
                           "recompute": "full"}
    by_stage = [explain("llama-3.1-8b", "rtx-4090-24gb", zero_stage=stage, **run) for stage in (2, 3)]
    assert by_stage[0].choices["precision"] == "mixed"
    frozen = 8_030_261_248
    trained = 32 * 16 * (2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14336))
    assert by_stage[0].peak.by_role["weight"] == 2 * (frozen + trained)
    small = 4096 * 65 + 32 * 16 * (9 * 4096 + 2 * 1024)  # norms, and matrices of adapters below 100,000 elements
    assert by_stage[1].peak.by_role["weight"] == 2 * (frozen + trained) // 8 + 2 * small
    asked = explain("llama-3.1-8b", "rtx-4090-24gb", kernels={"data_parallel": "deepspeed"}, **run)
    assert asked.choices["precision"] == "mixed"
    one = explain("llama-3.1-8b", "rtx-4090-24gb", implementation="huggingface", lora_rank=16, seq_length=1024,
                  recompute="full", kernels={"base_weights": "nf4"})
    assert one.peak.verdict == "fits"


@pytest.mark.parametrize("row", table("sharded_expert_adapters"), ids=lambda row: f"{row['model']} {row['seed']}")
def test_adapters_of_stacked_experts_are_shared_out_by_their_rows(row: dict[str, str]) -> None:
    """FSDP2 pads the first dimension: of one adapter for all experts that is their number times its rank."""
    ranks, qwen = int(row["ranks"]), row["model"].startswith("Qwen2")
    implementation = HUGGINGFACE.with_choices(
        layers="experts", data_parallel="fsdp", adapters=row["adapters"], peak="saved",
        expert_adapters="none" if qwen else "weights", router_precision="bf16" if qwen else "fp32")
    known = values(row, "h a k d f fe fs sgate bias qkn E q u L s b rl", tied=0, D=ranks, N=ranks,
                   B=ranks * int(row["b"]), w=2, zero1=1, zero2=1, zero3=1)
    trained = ("stage.parameters", "stage.expert_parameters")
    counted = evaluated(implementation, (*trained, "stage.weight", "stage.gradient", "stage.optimizer"), known)
    assert sum(counted.get(name, 0) for name in trained) == int(row["trained"])
    assert counted["stage.weight"] == int(row["parameters"])
    assert counted["stage.gradient"] == int(row["gradients"])
    assert counted["stage.optimizer"] == int(row["moments"])


@pytest.mark.parametrize("row", table("sharded_magnitudes"), ids=lambda row: f"{row['adapters']} {row['family']}")
def test_magnitudes_are_shared_out_by_their_rows(row: dict[str, str]) -> None:
    """Each rank has a share of every magnitude, with its gradient and moments; saved tensors are those of one rank."""
    ranks, mixed = int(row["ranks"]), row["precision"] == "mixed"
    implementation = HUGGINGFACE.with_choices(adapters=row["adapters"], adapter_kind="dora", data_parallel="fsdp",
                                              precision=row["precision"], peak="saved")
    known = values(row, "h a k d f u L tied s b rl", **FAMILY[row["family"]], D=ranks, N=ranks,
                   B=ranks * int(row["b"]), w=4 if mixed else 2, zero1=1, zero2=1, zero3=1)
    numbers = evaluated(implementation, ("stage.parameters", "stage.weight", "stage.gradient", "stage.optimizer",
                                         "stage.activation", "stage.buffer"), known)
    labels = 8 * known["b"] * (known["s"] + (known["b"] == 1))
    assert numbers["stage.parameters"] == int(row["trained"])
    assert numbers["stage.weight"] == int(row["parameters"])
    assert numbers["stage.gradient"] == int(row["gradients"])
    assert numbers["stage.optimizer"] == int(row["moments"])
    assert numbers["stage.activation"] + numbers["stage.buffer"] + labels == int(row["saved"])
