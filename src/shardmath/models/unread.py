"""Families that cannot be read yet: the nearest one that can, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["UNREAD", "Missing"]


class Missing(NamedTuple):
    """Why a family is not read: it is like ``nearest`` but for ``component``."""

    nearest: str
    component: str


_LINEAR = "linear attention (gated delta rule) in most layers"
_MAMBA = "state-space layers (Mamba 2)"

#: By ``model_type``.
UNREAD: Mapping[str, Missing] = {name: Missing(*why) for name, why in {
    "falcon": ("gpt_neox", "attention of its own, which keeps a mask and repeated keys and values"),
    "dbrx": ("mixtral", "LayerNorm without a shift, clipped queries, keys and values, and experts in a loop"),
    "falcon_h1": ("llama", f"{_MAMBA} beside attention"),
    "falcon_mamba": ("llama", "state-space layers (Mamba)"),
    "gemma3n": ("gemma3_text", "embeddings of each layer, shared keys and values, alternating updates"),
    "gemma3n_text": ("gemma3_text", "embeddings of each layer, shared keys and values, alternating updates"),
    **dict.fromkeys(("gemma4", "gemma4_text"), (
        "gemma3_text", "layers without windows that have other heads and no values of their own, norms of values,"
        " embeddings of each layer, shared keys and values, and experts beside the MLP")),
    "gpt_bigcode": ("gpt2", "one key and value head for all queries"),
    "gptj": ("gpt_neox", "biases of the MLP alone, and one norm for attention and MLP"),
    "granitemoehybrid": ("granitemoe", _MAMBA),
    "jamba": ("mixtral", "state-space layers (Mamba)"),
    "kimi_linear": ("deepseek_v3", "linear attention (Kimi delta attention) in most layers"),
    "lfm2": ("llama", "short convolutions in place of attention"),
    "lfm2_moe": ("qwen3_moe", "short convolutions in place of attention"),
    "mamba": ("llama", "state-space layers (Mamba)"),
    "mamba2": ("llama", _MAMBA),
    "minicpm3": ("deepseek_v2", "latent attention in a model without experts"),
    "ministral3": ("mistral", "a scale of queries by position, which every layer keeps"),
    "minimax": ("mixtral", "linear attention (lightning attention) in most layers"),
    "mpt": ("gpt2", "positions as a slope of the scores (ALiBi)"),
    "mllama": ("llama", "cross-attention layers, which read an image"),
    "nemotron_h": ("nemotron", f"{_MAMBA}, and layers of one part alone"),
    "qwen3_next": ("qwen3_moe", _LINEAR),
    "qwen3_5": ("qwen3", _LINEAR),
    "qwen3_5_moe": ("qwen3_moe", _LINEAR),
    "recurrent_gemma": ("gemma2", "recurrent layers (RG-LRU)"),
    "rwkv": ("llama", "recurrent layers (RWKV)"),
    "zamba2": ("llama", f"{_MAMBA} beside a shared attention"),
}.items()}
