"""Families that cannot be read say the nearest one that can, and what is missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shardmath.errors import InputError
from shardmath.models.model import Model
from shardmath.models.unread import UNREAD


@pytest.mark.parametrize(("family", "nearest", "missing"), [
    ("qwen3_5_text", "qwen3", "linear attention (gated delta rule) in most layers"),
    ("qwen3_5_moe_text", "qwen3_moe", "linear attention (gated delta rule) in most layers"),
    ("olmo_hybrid", "olmo3", "linear attention"), ("bamba", "llama", "state-space layers (Mamba 2) in most layers"),
    ("deepseek_v32", "deepseek_v3", "an indexer that chooses the keys of each query"),
    ("deepseek_v4", "deepseek_v3", "compressed keys and values"), ("glm_moe_dsa", "deepseek_v3", "an indexer"),
    ("afmoe", "qwen3_moe", "a gate of attention's output"), ("cwm", "llama", "windows in all layers"),
    ("longcat_flash", "deepseek_v3", "two attentions and two MLPs in a layer"),
    ("mimo_v2_flash", "glm4_moe", "more keys, and sinks, in layers with windows"),
])
def test_families_of_2026_are_refused_with_what_is_missing(
    family: str, nearest: str, missing: str, tmp_path: Path,
) -> None:
    """Layers of these kinds stand in their modeling files of Transformers 5.24."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": family}), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        Model.from_config(tmp_path / "config.json")
    assert f"it is {nearest} with {missing}" in caught.value.rule


def test_the_nearest_family_of_each_is_no_other_that_is_refused() -> None:
    assert not {why.nearest for why in UNREAD.values()} & {*UNREAD}
