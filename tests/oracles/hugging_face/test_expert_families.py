"""Small random models of families with experts on the meta device of Transformers: every parameter, by the reader."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from families import parameters_in_the_ledger, read_config
from transformers import AutoConfig, AutoModelForCausalLM

Keys = dict[str, Any]


def common(draw: Random) -> Keys:
    """Keys that all families call the same."""
    k = draw.randint(1, 3)
    return {
        "hidden_size": 2 * draw.randint(2, 20), "num_attention_heads": k * draw.randint(1, 3), "num_key_value_heads": k,
        "head_dim": 4 * draw.randint(1, 5), "num_hidden_layers": draw.randint(1, 4), "vocab_size": draw.randint(9, 99),
        "intermediate_size": draw.randint(1, 40), "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
        "tie_word_embeddings": draw.random() < 0.5,
    }


def sigmoids(draw: Random) -> Keys:
    """Keys of families with sigmoid scores."""
    return {
        "n_routed_experts": 2 * draw.randint(1, 4), "num_experts_per_tok": draw.randint(1, 2), "n_group": 1,
        "topk_group": 1, "moe_intermediate_size": draw.randint(1, 30), "n_shared_experts": draw.randint(1, 2),
        "norm_topk_prob": True, "first_k_dense_replace": 0, "attention_bias": False,
    }


def glm4_moe(draw: Random) -> Keys:
    """GLM 4.5, with and without biases and norms of queries and keys."""
    return {**sigmoids(draw), "attention_bias": draw.random() < 0.5, "use_qk_norm": draw.random() < 0.5,
            "partial_rotary_factor": draw.choice((0.5, 1.0)), "num_nextn_predict_layers": 0}


def dots1(draw: Random) -> Keys:
    """dots.llm1."""
    return {**sigmoids(draw), "sliding_window": None}


def kimi_k2(draw: Random) -> Keys:
    """Kimi K2, whose classes are those of DeepSeek-V3."""
    heads = draw.randint(1, 3)
    return {
        **sigmoids(draw), "num_attention_heads": heads, "num_key_value_heads": heads, "num_nextn_predict_layers": 0,
        "q_lora_rank": draw.choice((None, 5)), "kv_lora_rank": draw.randint(1, 9), "qk_nope_head_dim": 3,
        "qk_rope_head_dim": 2 * draw.randint(1, 3), "v_head_dim": draw.randint(1, 9),
    }


def glm4_moe_lite(draw: Random) -> Keys:
    """GLM-4.7-Flash, whose file names the kind of every layer or none."""
    layers, keys = draw.randint(2, 4), kimi_k2(draw)
    dense = draw.randrange(layers)
    del keys["first_k_dense_replace"]
    return {**keys, "num_hidden_layers": layers, "mlp_layer_types": draw.choice(
        (None, ["dense"] * dense + ["sparse"] * (layers - dense)))}


def solar_open(draw: Random) -> Keys:
    """Solar Open, with and without biases."""
    return {**sigmoids(draw), "attention_bias": draw.random() < 0.5}


def granitemoe(draw: Random) -> Keys:
    """Granite 3 with experts."""
    return {"num_local_experts": draw.randint(2, 6), "num_experts_per_tok": draw.randint(1, 2)}


def granitemoeshared(draw: Random) -> Keys:
    """The same with a shared expert."""
    return {**granitemoe(draw), "shared_intermediate_size": draw.choice((0, draw.randint(1, 30)))}


def hunyuan_v1_moe(draw: Random) -> Keys:
    """Hunyuan-A13B, whose files list numbers by layer."""
    return {"num_experts": draw.randint(2, 6), "moe_topk": draw.randint(1, 2)}


def ernie4_5_moe(draw: Random) -> Keys:
    """ERNIE 4.5 with dense layers first, and with experts in every n-th layer."""
    interval = draw.choice((1, 1, 2))
    return {
        "num_hidden_layers": 4, "moe_num_experts": draw.randint(2, 6), "moe_k": draw.randint(1, 2), "use_bias": False,
        "moe_intermediate_size": draw.randint(1, 30), "moe_num_shared_experts": draw.randint(0, 2),
        "moe_layer_start_index": draw.randint(0, 3) if interval == 1 else 0, "moe_layer_interval": interval,
    }


FAMILIES: tuple[Callable[[Random], Keys], ...] = (
    glm4_moe, dots1, kimi_k2, glm4_moe_lite, solar_open, granitemoe, granitemoeshared, hunyuan_v1_moe, ernie4_5_moe,
)


@pytest.mark.cases(3, 40)
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_parameters(draw: Random, family: Callable[[Random], Keys], tmp_path: Path) -> None:
    keys = {**common(draw), **family(draw)}
    if family is glm4_moe_lite:
        keys["head_dim"] = keys["qk_rope_head_dim"]  # the same key of its class
    if keys.get("moe_topk") and draw.random() < 0.5:
        listed = {**keys, "moe_topk": [keys["moe_topk"]] * keys["num_hidden_layers"]}
    else:
        listed = keys
    name = {"kimi_k2": "deepseek_v3"}.get(family.__name__, family.__name__)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(name, **listed))
    trained = sum(each.numel() for each in model.parameters() if each.requires_grad)
    read = read_config(tmp_path, {"model_type": family.__name__, **listed})
    assert parameters_in_the_ledger(read)["all"] == trained
