"""Peaks of a step of families of Transformers against Transformers itself, where a layer is the largest, and elsewhere."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
from families import read_config
from oracles.family_steps import recorded
from oracles.public_families import FAMILIES

from shardmath.account.accounting import explanation
from shardmath.account.configured import configured

pytestmark = pytest.mark.slow

#: Families whose layers are walked operation by operation.
WALKED = ("arcee", "gemma", "hunyuan_v1_dense", "llama", "mistral", "nemotron", "olmo", "opt", "phi3", "qwen3", "seed_oss",
          "smollm3", "starcoder2", "exaone4", "gemma3_text")


def drawn(draw: Random, family: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Draw a config.json and a run: long or short sequences, wide or narrow layers, small vocabularies."""
    k, each, d = draw.choice((1, 2, 4)), draw.choice((1, 2, 4)), draw.choice((16, 32))
    config = {
        "model_type": family, "hidden_size": k * each * d, "num_attention_heads": k * each, "num_key_value_heads": k,
        "intermediate_size": 32 * draw.randint(1, 30), "num_hidden_layers": draw.randint(1, 4),
        "vocab_size": draw.randint(20, 300), "head_dim": d, "tie_word_embeddings": draw.random() < 0.5,
        "max_position_embeddings": 4096, **FAMILIES[family](draw),
    }
    if "ffn_dim" in config:
        config["ffn_dim"] = config["intermediate_size"]
    run = {"sequence": draw.choice((16, 64, 256, 1024)), "batch": draw.choice((1, 2)), "full": draw.random() < 0.3,
           "microbatches": draw.choice((1, 1, 2))}
    return config, run


def ours(folder: Path, config: dict[str, Any], *, sequence: int, batch: int, full: bool, microbatches: int) -> Any:
    return explanation(configured(
        read_config(folder, config), "b300", implementation="huggingface", seq_length=sequence, micro_batch_size=batch,
        global_batch_size=batch * microbatches, recompute="full" if full else "none", torch_workspace_bytes=0,
        kernels={"peak": "torch", "loss": "huggingface_freed", "attention": "sdpa"}))


@pytest.mark.cases(3, 40)
@pytest.mark.parametrize("family", WALKED)
def test_peak_of_a_step(draw: Random, family: str, tmp_path: Path) -> None:
    config, run = drawn(draw, family)
    assert ours(tmp_path, config, **run).peak_bytes == recorded(config, **run).peak, (config, run)
