"""Model classes of frameworks with models of their own: a model is answered for where one class has all of it.

Each need that a class meets is a line of its source in catalogue/code.toml. Numbers that scale embeddings, residuals
or logits, and layers without rotary embedding, make no tensor and are no need.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardmath.models.model import Model

__all__ = ["MODEL_CLASSES", "NEEDS", "UNCOUNTED", "class_of", "missing", "needs_of"]

#: Needs of models, in words that follow "has no".
NEEDS: Mapping[str, str] = {
    "grouped": "heads with keys and values as wide as queries",
    "latent": "latent attention",
    "qkv_bias": "biases of queries, keys and values",
    "output_bias": "bias after attention without biases in the MLP",
    "mlp_bias": "biases in the MLP without one after attention",
    "qk_norm": "norms of queries and keys",
    "whole_keys": "norms of whole keys that several heads share",
    "whole_behind": "norms of whole queries and keys beside norms behind attention",
    "head_dim": "heads of another width than hidden_size / num_attention_heads",
    "tied": "tied embeddings",
    "dense": "model without experts",
    "experts": "experts in every layer",
    "experts_behind": "experts behind dense layers",
    "experts_apart": "experts in every n-th layer",
    "shared_experts": "shared experts",
    "shared_width": "shared experts whose width is no multiple of an expert's",
}

_LLAMA = ("grouped", "dense")
_EXPERTS = ("dense", "experts", "shared_experts")

#: Needs that each model class meets, by framework; one that is not here has classes for every family.
MODEL_CLASSES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "megatron": {"GPTModel": tuple(
        need for need in NEEDS if need not in ("output_bias", "mlp_bias", "whole_keys", "whole_behind"))},
    "torchtitan": {
        "llama3": _LLAMA,
        "llama4": ("grouped", "experts_apart", *_EXPERTS),
        "qwen3": ("grouped", "qk_norm", "head_dim", "tied", *_EXPERTS),
        "deepseek_v3": ("latent", "experts_behind", *_EXPERTS),
        "gpt_oss": ("grouped", "head_dim", "qkv_bias", "experts"),
    },
    "nanotron": {
        "llama": (*_LLAMA, "tied"),
        "qwen2": (*_LLAMA, "tied", "qkv_bias", "experts", "experts_behind", "experts_apart", "shared_experts",
                  "shared_width"),
    },
}
#: Classes of which no saved tensors are counted.
UNCOUNTED: Mapping[str, tuple[str, ...]] = {"torchtitan": ("gpt_oss",), "nanotron": ("qwen2",)}


def needs_of(model: Model) -> list[str]:
    """Return what a model needs of its class."""
    latent, width = model.kv_lora_rank > 0, model.num_attention_heads * model.head_dim
    whole = model.qk_norms == "width"
    shared, expert = model.shared_expert_ffn_hidden_size, max(1, model.moe_ffn_hidden_size)
    experts, behind, apart = model.num_experts > 0, model.first_dense_layers > 0, model.moe_layer_step > 1
    needed = (
        ("latent", latent),
        ("grouped", not latent),
        ("qkv_bias", model.qkv_bias),
        ("output_bias", model.attention_output_bias and not model.mlp_bias),
        ("mlp_bias", model.mlp_bias and not model.attention_output_bias),
        ("qk_norm", model.qk_norm),
        ("whole_keys", whole and model.num_kv_heads != model.num_attention_heads),
        ("whole_behind", whole and model.norms != "pre"),
        ("head_dim", not latent and width != model.hidden_size),
        ("tied", model.tied_embeddings),
        ("dense", not experts),
        ("experts", experts and not behind and not apart),
        ("experts_behind", experts and behind),
        ("experts_apart", experts and apart),
        ("shared_experts", shared > 0),
        ("shared_width", shared % expert > 0),
    )
    return [name for name, holds in needed if holds]


def class_of(implementation: str, model: Model) -> str:
    """Return the model class of a framework that lacks least of what a model needs; "" where it has no classes."""
    classes, needed = MODEL_CLASSES.get(implementation, {}), needs_of(model)
    counts = [(len([need for need in needed if need not in has]), name) for name, has in classes.items()]
    least = min([count for count, _ in counts], default=0)
    return next((name for count, name in counts if count == least), "")


def missing(implementation: str, model: Model) -> str:
    """Say what the nearest model class of a framework lacks of a model; "" if it lacks nothing."""
    nearest = class_of(implementation, model)
    if nearest == "":
        return ""
    lacks = [NEEDS[need] for need in needs_of(model) if need not in MODEL_CLASSES[implementation][nearest]]
    if lacks:
        return f"its nearest model class, {nearest}, has no {' and no '.join(lacks)}"
    uncounted = nearest in UNCOUNTED.get(implementation, ())
    return f"what its model class {nearest} keeps is not counted yet" if uncounted else ""
