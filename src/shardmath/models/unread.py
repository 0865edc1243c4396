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
_INDEXER = "an indexer that chooses the keys of each query (sparse attention)"
_MAMBA = "state-space layers (Mamba 2)"

_RELATIVE = "positions as logits of distances, and short convolutions"
_SINKS = "windows but in the first of four layers, and sinks that scale attention's output"
_IN_TURNS = "layers that are run several times"

#: By ``model_type``.
UNREAD: Mapping[str, Missing] = {name: Missing(*why) for name, why in {
    "afmoe": ("qwen3_moe", "a gate of attention's output, norms on both sides, and sigmoid scores"),
    "aria_text": ("mixtral", "shared experts, and a router that chooses before its softmax"),
    "axk1": ("deepseek_v3", "a norm behind experts"),
    "axk2": ("deepseek_v3", f"gated norms, and {_INDEXER}"),
    "bailing_hybrid": ("deepseek_v3", "linear attention in most layers"),
    "bamba": ("llama", f"{_MAMBA} in most layers"),
    "bitnet": ("llama", "norms inside of attention and MLP"),
    "codegen": ("gpt_neox", "biases of the MLP alone, and one norm for attention and MLP"),
    "cohere2_moe": ("cohere2", "experts"),
    "cwm": ("llama", "windows in all layers but the first of four"),
    "dbrx": ("mixtral", "LayerNorm without a shift, clipped queries, keys and values, and experts in a loop"),
    "deepseek_v32": ("deepseek_v3", _INDEXER),
    "deepseek_v4": ("deepseek_v3", f"compressed keys and values, and {_INDEXER}"),
    "diffllama": ("llama", "differences of two attentions"),
    "doge": ("llama", "masks that values choose, and experts of single vectors"),
    "dots3_note_text": ("deepseek_v3", _INDEXER),
    "dory": ("gemma2", f"gates of attention's output, norms without scales, and {_IN_TURNS}"),
    "falcon_h1": ("llama", f"{_MAMBA} beside attention"),
    "falcon_mamba": ("llama", "state-space layers (Mamba)"),
    "flint": ("qwen3_moe", "sinks, windows in an irregular order, and sigmoids without a bias"),
    "gemma3n": ("gemma3_text", "embeddings of each layer, shared keys and values, alternating updates"),
    "gemma3n_text": ("gemma3_text", "embeddings of each layer, shared keys and values, alternating updates"),
    "glm_moe_dsa": ("deepseek_v3", _INDEXER),
    "gpt_bigcode": ("gpt2", "one key and value head for all queries"),
    "gpt_neo": ("gpt2", "projections without biases, and windows in every second layer"),
    "gptj": ("gpt_neox", "biases of the MLP alone, and one norm for attention and MLP"),
    "granite_swa": ("granite", _SINKS),
    "granitemoe_swa": ("granitemoeshared", _SINKS),
    "granitemoehybrid": ("granitemoe", _MAMBA),
    "hrm_text": ("llama", f"norms without scales, and {_IN_TURNS}"),
    "hy_v4": ("deepseek_v3", f"several residual streams (hyper-connections), and {_INDEXER}"),
    "inkling2_loop_text": ("qwen3_moe", f"{_RELATIVE}, and {_IN_TURNS}"),
    "inkling2_text": ("qwen3_moe", _RELATIVE),
    "inkling_text": ("qwen3_moe", _RELATIVE),
    "jamba": ("mixtral", "state-space layers (Mamba)"),
    "jetmoe": ("mixtral", "experts of attention"),
    "kimi_linear": ("deepseek_v3", "linear attention (Kimi delta attention) in most layers"),
    "kolibri1": ("exaone_moe", "norms on both sides, and a router that chooses before its sigmoid"),
    "laguna": ("qwen3_moe", "gates of heads, another number of heads in some layers, and sigmoids of 16-bit logits"),
    "lara_mini": ("qwen3_moe", _LINEAR),
    "lfm2": ("llama", "short convolutions in place of attention"),
    "lfm2_moe": ("qwen3_moe", "short convolutions in place of attention"),
    "lfm3": ("llama", "short convolutions in place of attention"),
    "longcat_flash": ("deepseek_v3", "two attentions and two MLPs in a layer, and experts that pass tokens on"),
    "mamba": ("llama", "state-space layers (Mamba)"),
    "mamba2": ("llama", _MAMBA),
    "mimo_v2_flash": ("glm4_moe", "more keys, and sinks, in layers with windows, and values narrower than keys"),
    "minimax": ("mixtral", "linear attention (lightning attention) in most layers"),
    "minimax_m3_vl_text": ("minimax_m2", _INDEXER),
    "ministral3": ("mistral", "a scale of queries by position, which every layer keeps"),
    "mllama": ("llama", "cross-attention layers, which read an image"),
    "mpt": ("gpt2", "positions as a slope of the scores (ALiBi)"),
    "nanochat": ("llama", "norms without scales"),
    "nemotron_h": ("nemotron", f"{_MAMBA}, and layers of one part alone"),
    "olmo_hybrid": ("olmo3", _LINEAR),
    "persimmon": ("gpt_neox", "squared ReLU, and norms of queries and keys"),
    "phi4_multimodal": ("phi3", "adapters for images and sound in every layer"),
    "qwen3_5": ("qwen3", _LINEAR),
    "qwen3_5_moe": ("qwen3_moe", _LINEAR),
    "qwen3_5_moe_text": ("qwen3_moe", _LINEAR),
    "qwen3_5_text": ("qwen3", _LINEAR),
    "qwen3_next": ("qwen3_moe", _LINEAR),
    "qwen4_exp": ("qwen3_moe", f"{_LINEAR}, and {_INDEXER}"),
    "qwen4_exp_text": ("qwen3_moe", f"{_LINEAR}, and {_INDEXER}"),
    "recurrent_gemma": ("gemma2", "recurrent layers (RG-LRU)"),
    "rwkv": ("llama", "recurrent layers (RWKV)"),
    "xglm": ("opt", "positions of sines"),
    "zamba2": ("llama", f"{_MAMBA} beside a shared attention"),
    "zaya": ("qwen3_moe", "convolutions of queries and keys, and routers that are MLPs"),
}.items()}
