"""Peaks outside of a step, against sums by hand."""

from __future__ import annotations

import pytest

from shardmath import explain
from shardmath.errors import InputError

P = 6_738_415_616  # parameters of Llama 7B, of which a layer has 202,383,360
LAYER, ENDS, WORDS = 202_383_360, 2 * 32000 * 4096 + 4096, 32000 * 4096
FSDP = {"data_parallel": "fsdp", "precision": "mixed"}


def outside(**kernels: str) -> dict[str, tuple[int, int, str]]:
    answer = explain("llama-7b", "l40s-48gb", num_gpus=8, implementation="huggingface", seq_length=2048,
                     eval_batch_size=2, kernels=kernels)
    return {item.moment: (item.bytes, item.host, item.verdict) for item in answer.outside}


@pytest.mark.slow
def test_shards_are_made_of_whole_parameters() -> None:
    assert 32 * LAYER + ENDS == P
    evaluated = 10 * 2 * 2048 * 32000 + 2 * 2 * 2048 * 4096 + 16 * 2048 + 16 * 2049 + 8
    found = outside(**FSDP)
    assert found["loading"] == (4 * P // 8 + 4 * (WORDS + 4096 * 11008), 4 * P, "fits")
    assert found["saving"][0] == 12 * P // 8 + 4 * (WORDS + 4096 * 11008)
    assert found["evaluating"] == (12 * P // 8 + 2 * (ENDS + 2 * LAYER) + evaluated, 0, "fits")
    assert outside(**FSDP, loading="fsdp1")["loading"][0] == 4 * (P // 8 + 2 * max(LAYER, ENDS))
    assert outside(**FSDP, loading="fsdp1_whole")["loading"] == (4 * (P // 8 + 2 * P), 4 * P, "out of memory")
    whole = outside()
    assert whole["loading"] == (2 * P, 2 * P, "fits")
    buckets = 2 * P + 4 * (32 * 9 + 3)  # and a number for every parameter tensor
    assert whole["saving"] == (6 * P + buckets, 2 * P, "out of memory")


@pytest.mark.slow
def test_megatron_joins_projections_of_a_sharded_checkpoint() -> None:
    """Weights and gradients are in 2 and 4 bytes, states in 12 of which a rank has an eighth."""
    joined = 2 * 32 * 2 * 4096 * 11008
    account = explain("llama-7b", "h100-80gb", num_gpus=8)
    loading, saving = account.outside
    assert (loading.moment, loading.bytes, loading.joined) == ("loading", 6 * P + 12 * P // 8 + joined, joined)
    assert (loading.host, loading.verdict) == (0, account.verdict)
    assert (saving.moment, saving.bytes) == ("saving", 6 * P + 12 * P // 8)
    assert saving.shards == 12 * P // 8 + 2 * P // 8 + 2 * WORDS  # and the largest weight once more, at most
    assert not explain("llama-7b", "h100-80gb", num_gpus=8, kernels={"loading": "none"}).outside


@pytest.mark.slow
def test_torchtitan_copies_shards_to_the_host_where_it_saves_beside_training() -> None:
    kept = {"loading": (16 * P // 8, 0), "saving": (16 * P // 8, 0)}
    for way, host in (("distributed", 0), ("distributed_copied", 12 * P // 8)):
        account = explain("llama-7b", "h100-80gb", num_gpus=8, implementation="torchtitan", kernels={"loading": way})
        sizes = {item.moment: (item.bytes, item.shards) for item in account.outside}
        assert sizes == {**kept, "saving": (16 * P // 8, host)}


def test_other_programs_have_none() -> None:
    assert not explain("llama-7b", "h100-80gb", implementation="nanotron").outside
    with pytest.raises(InputError, match="loading"):
        explain("llama-7b", "h100-80gb", kernels={"loading": "trainer"})
