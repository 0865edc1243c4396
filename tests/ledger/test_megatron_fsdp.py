"""Megatron-FSDP: its flags, what its ZeRO stages share out, and what is said of what nobody has counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import shardmath
from shardmath.errors import InputError
from shardmath.formats import read, written
from shardmath.formats.megatron.fsdp import STRATEGIES

FLAGS = """torchrun --nproc-per-node 8 pretrain_gpt.py --num-layers 16 --hidden-size 2048 --ffn-hidden-size 8192
  --num-attention-heads 32 --group-query-attention --num-query-groups 8 --seq-length 4096 --max-position-embeddings 4096
  --micro-batch-size 1 --global-batch-size 16 --vocab-size 128256 --swiglu --normalization RMSNorm --bf16
  --position-embedding-type rope --disable-bias-linear --attention-dropout 0 --hidden-dropout 0
  --untie-embeddings-and-output-weights --no-create-attention-mask-in-dataloader"""
FSDP = "--use-megatron-fsdp --data-parallel-sharding-strategy"


def run_of(folder: Path, more: str) -> Any:
    (folder / "run.sh").write_text(f"{FLAGS} {more}".replace("\n", " "), encoding="utf-8")
    return read(folder / "run.sh")


@pytest.mark.parametrize(("more", "arguments", "kernel"), [
    (f"{FSDP} optim --overlap-grad-reduce", {"zero_stage": 1, "single_bucket": None}, "megatron_fsdp"),
    (f"{FSDP} optim_grads", {"zero_stage": 2, "single_bucket": 1}, "megatron_fsdp"),
    (f"{FSDP} optim_grads_params --overlap-grad-reduce --suggested-communication-unit-size 5000 --ddp-bucket-size 70",
     {"zero_stage": 3, "communication_unit_size": 5000, "ddp_bucket_size": 70}, "megatron_fsdp"),
    ("--use-megatron-fsdp", {"zero_stage": None, "distributed_optimizer": False}, None),
    ("--use-distributed-optimizer --data-parallel-sharding-strategy optim_grads", {"distributed_optimizer": True},
     None),
])
def test_flags(more: str, arguments: dict[str, Any], kernel: str | None, tmp_path: Path) -> None:
    run = run_of(tmp_path, more)
    assert {name: run.arguments.get(name) for name in arguments} == arguments
    assert run.arguments["kernels"].get("data_parallel") == kernel
    assert run.unknown == ()


@pytest.mark.parametrize(("more", "field", "rule"), [
    (f"{FSDP} everything", "--data-parallel-sharding-strategy", "must be one of no_shard, optim, optim_grads"),
    (f"{FSDP} optim --outer-dp-sharding-strategy optim", "--outer-dp-sharding-strategy", "not counted yet"),
    (f"{FSDP} optim --num-experts 8", "--use-megatron-fsdp", "not counted yet"),
    ("--use-torch-fsdp2", "--use-torch-fsdp2", "give --use-megatron-fsdp"),
])
def test_refused_flags(more: str, field: str, rule: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rule) as caught:
        run_of(tmp_path, more)
    assert caught.value.field == field


@pytest.mark.slow
def test_every_stage_and_a_file_of_it(tmp_path: Path) -> None:
    """ZeRO-3 of Megatron: less in every stage where the job is large; what is written is read again as the same."""
    peaks = []
    for stage, strategy in enumerate(STRATEGIES[1:], 1):
        found = run_of(tmp_path, f"{FSDP} {strategy} --overlap-grad-reduce").explain("h100-80gb", num_gpus=8)
        again = shardmath.explain(found.model, "h100-80gb", num_gpus=8, micro_batch_size=1, global_batch_size=16,
                                  seq_length=4096, zero_stage=stage, overlap_grad_reduce=1, vocab_multiple=128,
                                  kernels={"data_parallel": "megatron_fsdp"})
        assert again.ranks == found.ranks
        states = {role: sum(line.bytes for line in found.ranks[0].lines if line.role == role)
                  for role in ("weight", "gradient", "optimizer")}
        elements = found.ranks[0].parameters
        shares = {"weight": 2 / (8 if stage > 2 else 1), "gradient": 4 / (8 if stage > 1 else 1), "optimizer": 12 / 8}
        assert states == pytest.approx({role: share * elements for role, share in shares.items()}, rel=1e-3)
        (tmp_path / "again.sh").write_text(text := written("megatron", found), encoding="utf-8")
        assert "--use-megatron-fsdp" in text
        peaks.append(found.peak_bytes)
    assert peaks[0] > peaks[1]
    with pytest.raises(InputError, match="not counted yet: Megatron-FSDP with layers = experts"):
        shardmath.explain("mixtral-8x7b", "h100-80gb", num_gpus=8, zero_stage=3, expert_parallel=8)
