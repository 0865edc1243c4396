"""Pinned blocks that FSDP2 asks for on the host, against the ledger."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
import torch.distributed as dist
from families import read_config
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import LlamaConfig, LlamaForCausalLM

from shardmath.account.configured import configured
from shardmath.account.replaying import replayed


def _pinned(config: dict[str, Any], ranks: int) -> list[int]:
    """Return the bytes of each tensor that is pinned while a model is sharded for the first of some ranks."""
    asked: list[int] = []

    def pin(tensor: torch.Tensor) -> torch.Tensor:
        asked.append(tensor.nbytes)
        return tensor

    dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(torch.Tensor, "pin_memory", pin)
            model = LlamaForCausalLM(LlamaConfig(**config)).bfloat16()
            units = {"mesh": init_device_mesh("cpu", (ranks,)), "offload_policy": CPUOffloadPolicy()}
            for layer in model.model.layers:
                fully_shard(layer, **units)
            fully_shard(model, **units)
    finally:
        dist.destroy_process_group()
    return asked


@pytest.mark.cases(4, 60)
def test_each_shard_and_its_gradient_are_a_power_of_two(draw: Random, tmp_path: Path) -> None:
    """Reduced gradients are as large as shards; copies from a GPU that nothing waits for are pinned too."""
    heads, ranks = draw.choice((1, 2, 4)), draw.choice((2, 4, 8))
    config = {
        "num_hidden_layers": draw.randint(1, 3), "num_attention_heads": heads, "num_key_value_heads": heads,
        "head_dim": 8 * draw.randint(1, 4), "hidden_size": 8 * draw.randint(1, 30),
        "intermediate_size": 8 * draw.randint(1, 30), "vocab_size": 8 * draw.randint(1, 60),
        "tie_word_embeddings": draw.random() < 0.5, "max_position_embeddings": 64}
    asked = _pinned(config, ranks)
    account = replayed(configured(
        read_config(tmp_path, {"model_type": "llama", **config}), "h100-80gb", implementation="huggingface",
        num_gpus=ranks, seq_length=8,
        kernels={"data_parallel": "fsdp", "units": "root", "zero_offload": "fsdp", "peak": "saved"}))
    assert account.peak.host == 4 * sum(asked)
    assert account.pinned_bytes == 2 * sum((1 << (size - 1).bit_length()) - size for size in asked)
