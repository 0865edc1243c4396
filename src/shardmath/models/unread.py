"""Families that cannot be read yet: the nearest one that can, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["UNREAD", "Missing"]


class Missing(NamedTuple):
    """Why a family is not read: it is like ``nearest`` but for ``component``, and ``parts`` that some files have.

    A part is named by its key, which has ``default`` where a file leaves it out and is there unless the value is false.
    """

    nearest: str
    component: str
    parts: tuple[tuple[str, object, str], ...] = ()


_LINEAR = "linear attention (gated delta rule) in most layers"
_INDEXER = "an indexer that chooses the keys of each query (sparse attention)"
_MAMBA = "state-space layers (Mamba 2)"

_GEMMA4 = Missing("gemma3_text", "norms of values, heads of another width in layers without windows", (
    ("attention_k_eq_v", False, "values that are their keys"),
    ("hidden_size_per_layer_input", 256, "embeddings of each layer"),
    ("num_kv_shared_layers", 0, "keys and values shared between layers"),
    ("enable_moe_block", False, "experts beside the MLP"),
))

#: By ``model_type``.
UNREAD: Mapping[str, Missing] = {"gemma4": _GEMMA4, "gemma4_text": _GEMMA4, **{name: Missing(*why) for name, why in {
    "afmoe": ("qwen3_moe", "a gate of attention's output, norms on both sides, and sigmoid scores"),
    "bamba": ("llama", f"{_MAMBA} in most layers"),
    "dbrx": ("mixtral", "LayerNorm without a shift, clipped queries, keys and values, and experts in a loop"),
    "deepseek_v32": ("deepseek_v3", _INDEXER),
    "deepseek_v4": ("deepseek_v3", f"compressed keys and values, and {_INDEXER}"),
    "exaone_moe": ("dots1", "windows in most layers, and no rotary embedding in the others"),
    "falcon_h1": ("llama", f"{_MAMBA} beside attention"),
    "falcon_mamba": ("llama", "state-space layers (Mamba)"),
    "gemma3n": ("gemma3_text", "embeddings of each layer, shared keys and values, alternating updates"),
    "gemma3n_text": ("gemma3_text", "embeddings of each layer, shared keys and values, alternating updates"),
    "glm_moe_dsa": ("deepseek_v3", _INDEXER),
    "gpt_bigcode": ("gpt2", "one key and value head for all queries"),
    "gptj": ("gpt_neox", "biases of the MLP alone, and one norm for attention and MLP"),
    "granitemoehybrid": ("granitemoe", _MAMBA),
    "jamba": ("mixtral", "state-space layers (Mamba)"),
    "kimi_linear": ("deepseek_v3", "linear attention (Kimi delta attention) in most layers"),
    "lfm2": ("llama", "short convolutions in place of attention"),
    "lfm2_moe": ("qwen3_moe", "short convolutions in place of attention"),
    "longcat_flash": ("deepseek_v3", "two attentions and two MLPs in a layer, and experts that pass tokens on"),
    "mamba": ("llama", "state-space layers (Mamba)"),
    "mamba2": ("llama", _MAMBA),
    "mimo_v2_flash": ("glm4_moe", "more keys, and sinks, in layers with windows, and values narrower than keys"),
    "ministral3": ("mistral", "a scale of queries by position, which every layer keeps"),
    "minimax": ("mixtral", "linear attention (lightning attention) in most layers"),
    "mpt": ("gpt2", "positions as a slope of the scores (ALiBi)"),
    "mllama": ("llama", "cross-attention layers, which read an image"),
    "nemotron_h": ("nemotron", f"{_MAMBA}, and layers of one part alone"),
    "olmo_hybrid": ("olmo3", _LINEAR),
    "qwen3_next": ("qwen3_moe", _LINEAR),
    "qwen3_5": ("qwen3", _LINEAR),
    "qwen3_5_moe": ("qwen3_moe", _LINEAR),
    "qwen3_5_moe_text": ("qwen3_moe", _LINEAR),
    "qwen3_5_text": ("qwen3", _LINEAR),
    "recurrent_gemma": ("gemma2", "recurrent layers (RG-LRU)"),
    "rwkv": ("llama", "recurrent layers (RWKV)"),
    "zamba2": ("llama", f"{_MAMBA} beside a shared attention"),
}.items()}}
