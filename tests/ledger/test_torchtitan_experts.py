"""torchtitan's experts and latent attention against bytes counted in its own models: saved tensors, shards, steps."""

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

LATENT = ("lq", "lk", "dr", "dv")


def implementation_of(row: dict[str, str], recompute: str, **choices: str) -> Implementation:
    """The choices that a row's model and recompute are."""
    scores = "sigmoid" if row["score"] == "sigmoid" else "softmax" if int(row["norm"]) else "softmax_all"
    ops = {"recompute_saves": "ops"} if recompute == "ops" else {}
    return TORCHTITAN.with_choices(
        layers="experts", heads="latent" if row["family"] == "deepseek" else "grouped", scores=scores,
        rope="cast" if row["family"] == "qwen3" else "complex", weighting="input" if int(row["before"]) else "results",
        balance="bias" if int(row["balance"]) else "none", **ops, **{"peak": "saved", **choices},
    )


def counted() -> list[Implementation]:
    """The implementations of all rows."""
    return [implementation_of(row, row["recompute"]) for row in table("torchtitan_experts")]


def of_step(row: dict[str, str]) -> Implementation:
    """The choices of a row's whole step, with its moments."""
    return implementation_of(row, row["recompute"], peak="torch", reshard=row["reshard"])


def stepped() -> list[Implementation]:
    """The implementations of all rows of whole steps."""
    return [of_step(row) for row in table("torchtitan_expert_steps")]


def numbers(row: dict[str, str], ranks: int, recompute: str = "none", replicas: int = 1) -> Any:
    """All terms for a row on ``ranks`` GPUs; one micro-batch makes a step."""
    return values(row, implementation_of(row, recompute), ranks, recompute, replicas)


def values(row: dict[str, str], implementation: Implementation, ranks: int, recompute: str = "none",
           replicas: int = 1, micro_batches: int = 1, **others: int) -> Any:
    """All terms for a row and choices; a row without degrees has one rank of each."""
    letters = ("h", "a", "k", "d", "f", "L", "s", "b", "E", "q", "fe", "ld", "step", "ng", "gq")
    degrees = {letter: int(row.get(letter, 1)) for letter in ("t", "e", "et")}
    known = {**DEFAULTS, **{letter: int(row[letter]) for letter in letters}, **degrees, "u": int(row["v"])}
    if row["family"] == "deepseek":
        known |= {letter: int(row[letter]) for letter in LATENT}
    known |= {"fs": known["fe"] * int(row["shared"]), "sp": int(known["t"] > 1), "D": ranks // known["t"],
              "R": replicas, "rfull": int(recompute != "none"), "rn": 1, "load": 100,
              "qkn": int(row["family"] == "qwen3")}
    known |= {**fixed_values(implementation), **others}
    known["B"] = known["b"] * known["D"] * micro_batches
    return evaluate(tuple(build(implementation).terms.values()), known)


def layers_with_experts(row: dict[str, str]) -> int:
    return sum(layer > int(row["ld"]) and layer % int(row["step"]) == 0 for layer in range(1, int(row["L"]) + 1))


def test_saved_tensors_and_loss() -> None:
    """All that is alive behind the loss, but for weights, buffers of the model and the logits.

    Counted without FSDP2, which makes a copy of cosines and sines for each layer, and a checkpoint keeps that.
    """
    rows = table("torchtitan_experts")
    for row in rows:
        terms = numbers(row, int(row["ranks"]), row["recompute"])
        buffers = 4 * int(row["E"]) * (1 + int(row["balance"])) * layers_with_experts(row)
        kept = terms["stage.activation"] + terms["stage.loss.after_forward"]
        copied = row["family"] == "qwen3" and row["recompute"] != "none"
        copies = 4 * int(row["s"]) * int(row["d"]) * int(row["L"]) * copied
        assert kept + terms["stage.padded_experts.buffer"] - buffers - copies == int(row["kept"]), row
        assert "stage.router.buffer" not in terms  # bias and counters of experts are among those above
        assert terms["stage.parameters"] + terms["stage.expert_parameters"] == int(row["parameters"]), row
    assert {(row["family"], row["recompute"]) for row in rows} == {
        (family, recompute) for family in ("deepseek", "qwen3", "llama4") for recompute in ("none", "each", "ops")}


def test_shards_of_weights() -> None:
    """The first rank's shards under torchtitan's own FSDP plan, where experts are cut along either dimension."""
    rows = table("torchtitan_expert_shards")
    for row in rows:
        assert numbers(row, int(row["N"]), replicas=int(row["R"]))["stage.weight"] == 4 * int(row["sharded"]), row
    assert len(rows) == 39


def test_peaks_of_whole_steps() -> None:
    """Every moment of the second step under torchtitan's own FSDP plan, with and without full recompute."""
    rows = table("torchtitan_expert_steps")
    for row in rows:
        terms = values(row, of_step(row), int(row["N"]), row["recompute"], 1, int(row["micro_batches"]),
                       w={"fp32": 4, "bf16": 2}[row["reduce"]])
        assert terms["stage.total"] == int(row["peak"]), row
    assert {(row["family"], row["recompute"]) for row in rows} == {
        (family, recompute) for family in ("deepseek", "qwen3", "llama4") for recompute in ("none", "each")}


MOMENTS = {"peak": "torch"}


@pytest.mark.parametrize(("arguments", "words"), [
    ({"kernels": MOMENTS, "tensor_parallel": 2}, "moments of tensor-parallel experts"),
    ({"kernels": MOMENTS, "expert_parallel": 2}, "sent to other ranks' experts"),
    ({"kernels": MOMENTS, "num_gpus": 1}, "no FSDP2 on one rank"),
    ({"kernels": {**MOMENTS, "recompute_saves": "ops"}}, "recompute_saves = ops with the moments"),
    ({"tensor_parallel": 4, "expert_tensor_parallel": 2, "expert_parallel": 2}, "must be tensor_parallel, or 1"),
    ({"expert_parallel": 8, "num_gpus": 192}, "multiple of the ranks that share out an expert"),
    ({"kernels": {"dispatch": "alltoall"}}, "must be one of torchtitan"),
    ({"kernels": {"norm": "torch"}}, "choose norm = fused"),
])
def test_what_is_not_counted_is_refused(arguments: dict[str, Any], words: str) -> None:
    asked: dict[str, Any] = {"num_gpus": 16, "seq_length": 4096, **arguments}
    with pytest.raises(InputError, match=words):
        shardmath.explain("deepseek-v2-lite", "h100-80gb", implementation="torchtitan", **asked)
