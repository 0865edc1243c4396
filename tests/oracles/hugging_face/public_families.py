"""Small models of random shape of the families that people train, each from a config.json of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import torch
from oracles.hugging_face.huggingface import size
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

Draw = Callable[[Random], dict[str, Any]]


def _some(**options: tuple[Any, ...]) -> Draw:
    """Draw one of the values of each key."""
    return lambda draw: {key: draw.choice(values) for key, values in options.items()}


def _falcon(draw: Random) -> dict[str, Any]:
    """Draw several key and value heads with a new decoder, else one."""
    k, new = draw.randint(2, 4), draw.random() < 0.5
    a = k * size(draw, 3)
    return {
        "num_attention_heads": a, "num_kv_heads": k, "hidden_size": a * 8 * draw.randint(1, 4),
        "ffn_hidden_size": size(draw, 200), "new_decoder_architecture": new,
        "num_ln_in_parallel_attn": draw.choice((None, 1, 2) if new else (None, 1)),
    }


def _latent(draw: Random) -> dict[str, Any]:
    """Draw widths of latent attention, whose queries are compressed or not."""
    return {
        "q_lora_rank": draw.choice((None, size(draw, 40))), "kv_lora_rank": size(draw, 40),
        "qk_nope_head_dim": 8 * size(draw, 3), "qk_rope_head_dim": 2 * size(draw, 8), "v_head_dim": 8 * size(draw, 4),
    }


def _two_widths(draw: Random) -> dict[str, Any]:
    """Draw heads of layers without windows, some wider than those of which a kernel shares keys."""
    step = draw.randint(2, 3)
    return {
        "layer_types": (["sliding_attention"] * (step - 1) + ["full_attention"]) * draw.randint(1, 3),
        "global_head_dim": draw.choice((8, 40, 256, 264)), "num_global_key_value_heads": draw.choice((1, None)),
        "attention_k_eq_v": draw.random() < 0.5, "attention_bias": draw.random() < 0.5,
        "final_logit_softcapping": draw.choice((30.0, None)),
    }


_SHARES = (0.25, 0.5, 0.75, 1.0)
_EITHER = (False, True)
#: Keys that only some families have, by ``model_type``, with values to draw.
FAMILIES: Mapping[str, Draw] = {
    "apertus": _some(attention_bias=_EITHER),
    "arcee": _some(attention_bias=_EITHER, mlp_bias=_EITHER),
    "bloom": _some(),
    "cohere": _some(use_qk_norm=_EITHER, attention_bias=_EITHER),
    "cohere2": _some(attention_bias=_EITHER),
    "ernie4_5": _some(use_bias=_EITHER),
    "exaone4": _some(sliding_window=(64,)),
    "falcon": _falcon,
    "gemma": _some(attention_bias=_EITHER),
    "gemma2": _some(final_logit_softcapping=(30.0, None), attn_logit_softcapping=(50.0, None)),
    "gemma3_text": _some(attention_bias=_EITHER),
    "gemma4_text": lambda draw: {**_two_widths(draw), "hidden_size_per_layer_input": 0},
    "gemma4_unified_text": _two_widths,
    "glm": _some(partial_rotary_factor=_SHARES, attention_bias=_EITHER),
    "glm4": _some(partial_rotary_factor=_SHARES, attention_bias=_EITHER),
    "granite": _some(attention_bias=_EITHER, mlp_bias=_EITHER, embedding_multiplier=(1.0, 12.0)),
    "helium": _some(attention_bias=_EITHER),
    "hunyuan_v1_dense": _some(attention_bias=_EITHER),
    "hyperclovax": _some(use_post_norm=_EITHER, attention_bias=_EITHER, mlp_bias=_EITHER),
    "internlm3": lambda draw: dict.fromkeys(("qkv_bias", "bias"), draw.random() < 0.5),
    "iquestcoder": _some(attention_bias=_EITHER, mlp_bias=_EITHER),
    "jais2": _some(attention_bias=_EITHER, mlp_bias=_EITHER),
    "llama": _some(attention_bias=_EITHER, mlp_bias=_EITHER),
    "minicpm3": _latent,
    "ministral": _some(sliding_window=(64,)),
    "mistral": _some(sliding_window=(None, 64)),
    "nemotron": _some(partial_rotary_factor=_SHARES, attention_bias=_EITHER, mlp_bias=_EITHER),
    "olmo": _some(attention_bias=_EITHER),
    "olmo2": _some(attention_bias=_EITHER),
    "olmo3": _some(attention_bias=_EITHER),
    "opt": lambda draw: {"ffn_dim": size(draw, 200)},
    "phi": _some(partial_rotary_factor=_SHARES, hidden_act=("gelu_new", "gelu")),
    "phi3": _some(partial_rotary_factor=(1.0, 0.75)),
    "qwen3": _some(attention_bias=_EITHER),
    "seed_oss": _some(attention_bias=_EITHER, attention_out_bias=_EITHER),
    "smollm3": _some(attention_bias=_EITHER, mlp_bias=_EITHER),
    "stablelm": _some(partial_rotary_factor=_SHARES, use_qkv_bias=_EITHER, qk_layernorm=_EITHER,
                      use_parallel_residual=_EITHER),
    "starcoder2": _some(use_bias=_EITHER),
    "vaultgemma": _some(final_logit_softcapping=(30.0, None), attn_logit_softcapping=(50.0, None)),
    "youtu": _latent,
}
#: Families with windows, wider than any sequence here: of narrower ones see docs/limits.md.
_WINDOWED = ("cohere2", "gemma2", "gemma3_text", "gemma4_text", "gemma4_unified_text", "olmo3", "vaultgemma")
#: Families whose heads share out the residual stream: others may have wider ones.
_EVEN_HEADS = ("apertus", "bloom", "cohere", "falcon", "helium", "olmo", "olmo2", "olmo3", "opt", "phi", "phi3",
               "stablelm")
#: Families in which every query head has a key and a value head of its own.
_OWN_KEYS = ("minicpm3", "youtu")
#: Dropout of residuals under the key of its own that it has in some families.
RESIDUAL_DROPOUT = {"opt": "dropout", "seed_oss": "residual_dropout"}
#: Tokens.
LONGEST = 48


def random_config(draw: Random, family: str) -> dict[str, Any]:
    """Draw a config.json; some have one key and value head, one layer, or one token."""
    k = size(draw, 4)
    a = k * size(draw, 4)
    d = 8 * draw.randint(1, 4)
    h = a * d if family in _EVEN_HEADS else a * size(draw, 16)
    config = {
        "model_type": family, "hidden_size": h, "intermediate_size": size(draw, 200),
        "num_hidden_layers": size(draw, 7), "num_attention_heads": a, "num_key_value_heads": k,
        "vocab_size": size(draw, 300), "head_dim": d,
        **({"num_key_value_heads": a} if family in _OWN_KEYS else {}),
        "max_position_embeddings": 64, "tie_word_embeddings": draw.random() < 0.5,
        **({"sliding_window": 64} if family in _WINDOWED else {}), **FAMILIES[family](draw),
    }
    if "layer_types" in config:
        config["num_hidden_layers"] = len(config["layer_types"])
    if family in _EVEN_HEADS and family != "helium":  # the others take none
        del config["head_dim"]
    if family in _OWN_KEYS:  # their classes call the rotary part so
        config["head_dim"] = config["qk_rope_head_dim"]
    return config


def built(config: dict[str, Any], attention: str, dropout: float = 0.0) -> PreTrainedModel:
    """Make the model in bf16 with dropout of the probabilities of attention.

    Weights of LayerNorm are fp32, with which a CPU keeps fp32 statistics, as a GPU does.
    """
    keys = {key: value for key, value in config.items() if key != "model_type"}
    made = CONFIG_MAPPING[config["model_type"]](
        **keys, use_cache=False, pad_token_id=None, bos_token_id=0, eos_token_id=None, attention_dropout=dropout,
        **{key: 0.0 for family, key in RESIDUAL_DROPOUT.items() if family == config["model_type"]},
    )
    model = AutoModelForCausalLM.from_config(made, attn_implementation=attention, dtype=torch.bfloat16).train()
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.float()
    return model
