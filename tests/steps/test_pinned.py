"""Pinned blocks on the host: those of DeepSpeed as its own code asked for them."""

from __future__ import annotations

from pathlib import Path

import pytest
from counted import table
from families import read_config

from shardmath.account.configured import configured
from shardmath.account.replaying import replayed
from shardmath.allocator.pinned import PinnedAllocator
from shardmath.compiler.evaluators import terms_at
from shardmath.steps.pinned import of_deepspeed, parts_of
from shardmath.steps.rows import Rows

COUNTED = table("pinned_counted")
_KEYS = {"h": "hidden_size", "a": "num_attention_heads", "k": "num_key_value_heads", "d": "head_dim",
         "f": "intermediate_size", "u": "vocab_size", "L": "num_hidden_layers"}


def test_blocks_are_powers_of_two_and_come_back() -> None:
    blocks = PinnedAllocator()
    assert [blocks.allocate(size) for size in (0, 1, 5, 8, 9)] == [0, 1, 8, 8, 16]
    blocks.free(8)
    assert (blocks.allocate(3), blocks.allocate(7), blocks.total) == (4, 8, 1 + 8 + 8 + 16 + 4)


@pytest.mark.slow
def test_blocks_are_those_that_deepspeed_asks_for(tmp_path: Path) -> None:
    assert {(row["offload"], row["pinned"]) for row in COUNTED} >= {
        ("optimizer", "all"), ("optimizer", "none"), ("parameters", "all"), ("parameters", "optimizer")}
    assert any(int(row["sg"]) < 10**6 for row in COUNTED)  # with several subgroups
    for row in COUNTED:
        model = read_config(tmp_path, {
            "model_type": "llama", "tie_word_embeddings": row["tied"] == "1", "max_position_embeddings": 64,
            **{key: int(row[letter]) for letter, key in _KEYS.items()}})
        configuration = configured(
            model, "h100-80gb", implementation="huggingface", num_gpus=2, seq_length=8, zero_stage=3,
            param_persistence_threshold=int(row["pt"]), sub_group_size=int(row["sg"]),
            kernels={"zero_offload": row["offload"], "peak": "saved"})
        job = configuration.job
        values = job.on_rank(0)
        account = terms_at(job.evaluator.terms, values)
        parts = parts_of(Rows.of(job.evaluator, values, account), 2)
        assert sum(part.elements for part in parts) == account["stage.shard_elements"]
        beyond = of_deepspeed(parts, values, 2, {**job.evaluator.choices, "pinned": row["pinned"]})
        assert beyond == int(row["blocks"]) - int(row["requested"]), row
        if row["pinned"] == "all":
            assert replayed(configuration).pinned_bytes == beyond
