"""DeepSpeed's stage 3 with states or parameters on the host: bytes of both together, of each, and seconds."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from counted import DEFAULTS, table, values

from shardmath import explain
from shardmath.compiler.evaluators import find
from shardmath.errors import InputError
from shardmath.symbolic.implementations import HUGGINGFACE
from shardmath.symbolic.parallel.uncounted import refuse_impossible
from shardmath.symbolic.parameters import BY_NAME, symbol
from shardmath.symbolic.timing import build_all

COUNTED = table("zero_offload")


def terms(row: dict[str, str]) -> dict[str, Any]:
    """Every term of a row's rank, exactly."""
    adapters = "all_linear" if int(row["rl"]) else "none"
    kernels = {"data_parallel": "deepspeed", "precision": "mixed", "zero_offload": row["offload"],
               "adapters": adapters, "peak": "saved"}
    ranks = int(row["ranks"])
    known = {**DEFAULTS, **values(row, "h a k d f u L tied s b rl"), "M": 1, "N": ranks, "n": ranks, "D": ranks,
             "B": ranks, "w": int(row["w"]), "bk": int(row["bucket"]), "pt": int(row["threshold"]),
             "zero1": 1, "zero2": 1, "zero3": 1}
    module = find("huggingface", kernels).terms
    inputs = {name: Fraction(known[BY_NAME[name].letter]) for name in module.INPUTS}
    assert all(module.rules_met(**inputs))
    return dict(module.terms(**inputs))


@pytest.mark.slow
def test_gpu_and_host_together_keep_what_was_counted() -> None:
    assert {(row["offload"], row["rl"] == "0", row["w"]) for row in COUNTED} >= {
        ("optimizer", True, "2"), ("optimizer", False, "4"), ("parameters", True, "2"), ("parameters", False, "2")}
    for row in COUNTED:
        found = terms(row)
        assert found["stage.optimizer"] == found["stage.gradient"] == 0
        bucket = found["stage.stage3_bucket.optimizer_step"]
        assert found["stage.weight"] + bucket + found["stage.host"] == int(row["kept"]), row


@pytest.mark.slow
def test_a_7b_model_and_its_host() -> None:
    """Llama 2 7B on four GPUs with bf16 gradients: 18 bytes of a parameter are on the host, 20 with parameters."""
    run: dict[str, Any] = {"num_gpus": 4, "implementation": "huggingface", "recompute": "full", "seq_length": 2048}
    alone = explain("llama-2-7b", "a100-40gb", zero_stage=3, **run)
    states = explain("llama-2-7b", "a100-40gb", kernels={"zero_offload": "optimizer"}, **run)
    both = explain("llama-2-7b", "a100-40gb", kernels={"zero_offload": "parameters"}, **run)
    parameters = 6_738_415_616
    assert (states.peak.host, both.peak.host) == (18 * parameters // 4, 20 * parameters // 4)
    assert states.peak.by_role["weight"] == alone.peak.by_role["weight"]
    small = 2 * 4096 * 65  # norms stay gathered
    assert both.peak.by_role["weight"] == 2 * small // 2 == alone.peak.by_role["weight"] - 2 * parameters // 4
    assert alone.peak.total - states.peak.total >= 14 * parameters // 4
    seconds = [answer.time.seconds for answer in (alone, states, both) if answer.time is not None]
    assert len(seconds) == 3
    assert seconds == sorted(set(seconds))


@pytest.mark.slow
def test_shards_of_fsdp_on_the_host() -> None:
    """Weight, gradient and both moments of a trained element lie there; scales of 4-bit weights stay on the GPU."""
    run: dict[str, Any] = {"num_gpus": 4, "implementation": "huggingface", "recompute": "full", "seq_length": 512}
    fsdp = {"data_parallel": "fsdp", "units": "root", "reshard": "always"}
    parameters = 6_738_415_616
    for precision, width in (("bf16", 2), ("mixed", 4)):
        kernels = {**fsdp, "precision": precision, "zero_offload": "fsdp"}
        there = explain("llama-2-7b", "a100-40gb", kernels=kernels, **run)
        assert there.peak.host == 4 * width * parameters // 4
        assert {there.peak.by_role[role] for role in ("weight", "gradient", "optimizer")} == {0}
    adapted = {**fsdp, "adapters": "all_linear", "base_weights": "nf4"}
    here, there = (explain("llama-2-7b", "a100-40gb", lora_rank=8, kernels={**adapted, **kernels}, **run)
                   for kernels in ({}, {"zero_offload": "fsdp"}))
    linear, trained = 32 * 4096 * (4 * 4096 + 3 * 11008), 32 * 8 * (4 * 2 * 4096 + 3 * (4096 + 11008))
    codes, others = linear // 2, 2 * (parameters - linear)
    scales = linear // 64 + 4 * (linear // 64 // 256) + 32 * 7 * 4 * (16 + 256 + 1)
    assert there.peak.by_role["weight"] == scales
    assert here.peak.by_role["weight"] == scales + (codes + others + 2 * trained) // 4
    assert there.peak.host == (codes + others + 4 * 2 * trained) // 4


@pytest.mark.slow
def test_a_host_that_is_too_small() -> None:
    with pytest.raises(InputError, match="must keep what the GPUs of a server offload"):
        explain("llama-3.1-405b", "a100-40gb", num_gpus=8, implementation="huggingface",
                kernels={"zero_offload": "optimizer"})
    with pytest.raises(InputError, match="must be 3"):
        explain("llama-2-7b", "a100-40gb", num_gpus=4, implementation="huggingface", zero_stage=2,
                kernels={"zero_offload": "optimizer"})


@pytest.mark.parametrize(("changed", "text"), [
    ({"zero_offload": "optimizer"}, "zero_offload without DeepSpeed"),
    ({"zero_offload": "optimizer", "data_parallel": "deepspeed", "precision": "mixed", "optimizer": "sgd"},
     "zero_offload with optimizer sgd"),
    ({"zero_offload": "parameters", "data_parallel": "deepspeed", "precision": "mixed", "adapters": "qkv",
      "base_weights": "nf4"}, "4-bit weights on the host"),
    ({"zero_offload": "fsdp"}, "zero_offload = fsdp without FSDP2"),
    ({"zero_offload": "fsdp", "data_parallel": "fsdp", "precision": "mixed", "reshard": "never"}, "reshard = never"),
    ({"zero_offload": "fsdp", "data_parallel": "fsdp", "optimizer": "sgd"}, "zero_offload with optimizer sgd"),
])
def test_what_was_not_counted_is_refused(changed: dict[str, str], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        refuse_impossible({**HUGGINGFACE.choices, **changed})


@pytest.mark.slow
@pytest.mark.parametrize("row", table("deepspeed_counted"), ids=lambda row: row["offload"])
def test_collectives_of_a_step(row: dict[str, str]) -> None:
    """Weights gathered once, as so few stay gathered for the backward pass, and gradients reduced once."""
    kernels = {"data_parallel": "deepspeed", "precision": "mixed", "zero_offload": row["offload"], "peak": "saved"}
    every = build_all(HUGGINGFACE.with_choices(**kernels))
    elements = int(row["layers"]) * int(row["width"]) ** 2
    known = {every["stage.buffer_elements"].symbol: elements, symbol("w"): 2, symbol("zero3"): 1}
    for term, column in (("stage.gathered_bytes", "gathered"), ("stage.reduced_bytes", "reduced")):
        assert every[term].expression.xreplace(known).doit() == int(row[column])
