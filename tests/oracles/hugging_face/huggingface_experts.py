"""Hugging Face models of random shape with experts, with latent attention, and of the GPT family."""

from __future__ import annotations

from random import Random
from typing import Any

import torch
from oracles.hugging_face.huggingface import size
from transformers import (
    DeepseekV2Config,
    DeepseekV2ForCausalLM,
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    Dots1Config,
    Dots1ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoXConfig,
    GPTNeoXForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    Qwen2MoeConfig,
    Qwen2MoeForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

Shape = dict[str, int]


def common(shape: Shape) -> dict[str, Any]:
    """Settings that all families call the same."""
    return {
        "hidden_size": shape["h"], "num_attention_heads": shape["a"], "vocab_size": shape["u"],
        "num_hidden_layers": shape["L"], "max_position_embeddings": 64, "use_cache": False, "pad_token_id": None,
        "bos_token_id": None, "eos_token_id": None, "attn_implementation": "eager", "experts_implementation": "eager",
        "tie_word_embeddings": False, "dtype": torch.bfloat16,
    }


def mixtral(draw: Random, shape: Shape) -> tuple[Any, Shape]:
    """Mixtral: every layer has experts."""
    settings = MixtralConfig(
        **common(shape), num_key_value_heads=shape["k"], head_dim=shape["d"], intermediate_size=shape["fe"],
        num_local_experts=shape["E"], num_experts_per_tok=shape["q"],
    )
    return MixtralForCausalLM(settings), shape


def qwen(draw: Random, shape: Shape) -> tuple[Any, Shape]:
    """Qwen2-MoE with gated shared experts and biases, or Qwen3-MoE with norms of queries and keys."""
    settings: dict[str, Any] = {
        **common(shape), "num_key_value_heads": shape["k"], "head_dim": shape["d"], "intermediate_size": shape["f"],
        "num_experts": shape["E"], "num_experts_per_tok": shape["q"], "moe_intermediate_size": shape["fe"],
        "decoder_sparse_step": 1, "norm_topk_prob": draw.random() < 0.5,
    }
    if draw.randint(0, 1):
        return Qwen3MoeForCausalLM(Qwen3MoeConfig(**settings)), shape | {"qkn": 1}
    shared = draw.randint(1, 30)
    model = Qwen2MoeForCausalLM(Qwen2MoeConfig(**settings, shared_expert_intermediate_size=shared))
    return model, shape | {"bias": 1, "fs": shared, "sgate": 1}


def deepseek(draw: Random, shape: Shape) -> tuple[Any, Shape]:
    """DeepSeek-V2 or V3: latent attention, shared experts, some dense layers first."""
    rotary = 2 * draw.randint(1, 6)
    shape = shape | {
        "k": shape["a"], "dr": rotary, "d": rotary + draw.randint(1, 12), "dv": draw.randint(1, 12),
        "lq": draw.choice((0, draw.randint(1, 20))), "lk": draw.randint(1, 20), "ld": draw.randint(0, shape["L"]),
        "fs": shape["fe"] * draw.randint(1, 3),
    }
    settings: dict[str, Any] = {
        **common(shape), "num_key_value_heads": shape["a"], "intermediate_size": shape["f"],
        "n_routed_experts": shape["E"], "num_experts_per_tok": shape["q"], "moe_intermediate_size": shape["fe"],
        "n_shared_experts": shape["fs"] // shape["fe"], "first_k_dense_replace": shape["ld"],
        "q_lora_rank": shape["lq"] or None, "kv_lora_rank": shape["lk"], "qk_rope_head_dim": rotary,
        "qk_nope_head_dim": shape["d"] - rotary, "v_head_dim": shape["dv"], "n_group": 1, "topk_group": 1,
    }
    # V3 ranks groups of experts by the best two of each.
    if draw.randint(0, 1) and shape["E"] > 1:
        if draw.randint(0, 1):
            shape = shape | {"E": 8, "q": 2, "ng": 4, "gq": 2}
            settings |= {"n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 4, "topk_group": 2}
        return DeepseekV3ForCausalLM(DeepseekV3Config(**settings)), shape
    return DeepseekV2ForCausalLM(DeepseekV2Config(**settings, topk_method="greedy")), shape


def dots(draw: Random, shape: Shape) -> tuple[Any, Shape]:
    """dots.llm1: sigmoid scores with grouped heads, queries and keys normalised, some dense layers first."""
    E = max(shape["E"], 2)
    shape = shape | {"E": E, "qkn": 1, "ld": draw.randint(0, shape["L"]), "fs": shape["fe"] * draw.randint(1, 3)}
    return Dots1ForCausalLM(Dots1Config(
        **common(shape), num_key_value_heads=shape["k"], head_dim=shape["d"], intermediate_size=shape["f"],
        n_routed_experts=E, num_experts_per_tok=shape["q"], moe_intermediate_size=shape["fe"], sliding_window=None,
        n_shared_experts=shape["fs"] // shape["fe"], first_k_dense_replace=shape["ld"], norm_topk_prob=True,
        n_group=1, topk_group=1,
    )), shape


def gpt(draw: Random, shape: Shape) -> tuple[Any, Shape]:
    """GPT-2 with learned positions, or GPT-NeoX: heads of h/a elements, GELU, biases."""
    shape = shape | {"h": shape["a"] * shape["d"], "k": shape["a"], "lbias": 1}
    settings = common(shape)
    if draw.randint(0, 1):
        return GPTNeoXForCausalLM(GPTNeoXConfig(**settings, intermediate_size=shape["f"])), shape
    del settings["max_position_embeddings"], settings["num_hidden_layers"], settings["num_attention_heads"]
    return GPT2LMHeadModel(GPT2Config(
        **settings, n_layer=shape["L"], n_head=shape["a"], n_inner=shape["f"], n_positions=64,
    )), shape


def random_shape(draw: Random) -> Shape:
    """Draw sizes by letter; some families change a few of them."""
    k, E = size(draw, 3), size(draw, 9)
    a = k * size(draw, 3)
    return {
        "k": k, "a": a, "d": 2 * size(draw, 12), "h": a * size(draw, 16), "f": size(draw, 100),
        "s": size(draw, 40), "b": size(draw, 3), "u": size(draw, 200), "L": size(draw, 3), "E": E,
        "q": size(draw, min(E, 4)), "fe": size(draw, 40), "tied": 0,
    }


def for_grouped_products(shape: Shape) -> Shape:
    """The shape with rows of whole 16 bytes, as PyTorch's grouped matrix product asks for."""
    return shape | {"h": 8 * shape["h"], "fe": 8 * shape["fe"]}
