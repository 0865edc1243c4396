"""torchtitan against bytes counted in its own model: saved tensors with TP, and whole FSDP2 steps with replicas."""

from __future__ import annotations

from typing import Any

import pytest
from counted import DEFAULTS, table

import shardmath
from shardmath.errors import InputError
from shardmath.symbolic.accounts import build
from shardmath.symbolic.exact import evaluate
from shardmath.symbolic.implementations import TORCHTITAN, Implementation
from shardmath.symbolic.parallel.legality import fixed_values

pytestmark = pytest.mark.slow

CHOICES = {
    "none": {}, "each": {}, "ops": {"recompute_saves": "ops"}, "every": {"recompute_method": "every"},
}


def numbers(row: dict[str, str], implementation: Implementation, ranks: int, batches: int, **others: int) -> Any:
    known = {**DEFAULTS, **{letter: int(row[letter]) for letter in "hakdfLsb"}, "u": int(row["v"]), "D": ranks}
    known |= {"rfull": int(row["recompute"] != "none"), "rn": 2 if row["recompute"] == "every" else 1}
    known |= {**fixed_values(implementation), **others, "B": known["b"] * ranks * batches}
    return evaluate(tuple(build(implementation).terms.values()), known)


def test_saved_tensors_and_loss_with_tensor_parallelism() -> None:
    rows = table("torchtitan_saved")
    for row in rows:
        t = int(row["t"])
        found = numbers(row, TORCHTITAN.with_choices(**CHOICES[row["recompute"]]), 1, 1, t=t, sp=int(t > 1))
        after = found["stage.activation"] + found["stage.loss.after_forward"]
        logits = 2 * int(row["s"]) * int(row["b"]) * int(row["v"]) // t
        assert after == int(row["after_forward"]), row
        assert after + logits == int(row["held"]), row
        if t == 1:  # with more, the counting program adds whole tensors that DTensor only pretends to make
            assert found["stage.activation"] + found["stage.loss.loss_forward"] == int(row["forward"]), row
    assert len(rows) == 24


def test_peaks_of_whole_steps() -> None:
    """Resharding, fp32 and bf16 reduction, replicas, accumulation, all ways of recompute, two kernels of AdamW."""
    rows = table("torchtitan_steps")
    for row in rows:
        implementation = TORCHTITAN.with_choices(
            reshard=row["reshard"], optimizer_kernel=row["kernel"], **CHOICES[row["recompute"]],
        )
        ranks = int(row["N"]) * int(row["R"])
        found = numbers(row, implementation, ranks, int(row["micro_batches"]), R=int(row["R"]),
                        w={"fp32": 4, "bf16": 2}[row["reduce"]])
        assert found["stage.total"] == int(row["peak"]), row
    assert len(rows) == 32


def account(implementation: str, **arguments: Any) -> Any:
    return shardmath.explain("llama-3.1-8b", "h100-80gb", implementation=implementation, seq_length=8192, **arguments)


def test_selective_recompute_lies_between_none_and_full() -> None:
    peaks = [account("torchtitan", num_gpus=64, recompute=mode).peak.total for mode in ("full", "selective", "none")]
    assert peaks == sorted(set(peaks))


@pytest.mark.parametrize(("implementation", "arguments", "words"), [
    ("torchtitan", {"pipeline_parallel": 2, "num_gpus": 16, "gradients": "bf16"}, "must be fp32"),
    ("torchtitan", {"tensor_parallel": 2, "num_gpus": 16, "sequence_parallel": False}, "DTensor"),
    ("torchtitan", {"recompute": "mlp"}, "must not be mlp in torchtitan"),
    ("torchtitan", {"kernels": {"data_parallel": "ddp"}}, "must be one of fsdp"),
    ("nanotron", {"recompute": "selective"}, "must be a mode of nanotron; nearest legal: none"),
    ("nanotron", {"context_parallel": 2, "num_gpus": 16}, "must be 1"),
    ("nanotron", {"gradients": "bf16"}, "must be fp32"),
    ("megatron", {"kernels": {"data_parallel": "fsdp"}}, "must be one of ddp"),
])
def test_what_a_framework_does_not_have_is_refused(implementation: str, arguments: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        account(implementation, **arguments)
