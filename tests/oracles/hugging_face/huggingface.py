"""Hugging Face models of random shape: Llama, Qwen2 (with bias) and Qwen3 (with norms of queries and keys)."""

from __future__ import annotations

from random import Random
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

Shape = dict[str, int]

#: Family: classes, and the letters that differ.
FAMILIES: dict[str, tuple[type[Any], type[PreTrainedModel], Shape]] = {
    "llama": (LlamaConfig, LlamaForCausalLM, {"bias": 0, "qkn": 0}),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, {"bias": 1, "qkn": 0}),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, {"bias": 0, "qkn": 1}),
}


def size(draw: Random, most: int) -> int:
    """Draw a size from 1 to ``most``; one in four is 1, where tensors become views of others."""
    return 1 if draw.random() < 0.25 else draw.randint(1, most)


def random_shape(draw: Random) -> Shape:
    """Draw sizes by letter. The width of all queries is mostly not that of the residual stream.

    Llama's configuration wants h to be a multiple of a; rotary embeddings want d even.
    """
    k = size(draw, 4)
    a = k * size(draw, 4)
    return {
        "k": k, "a": a, "d": 2 * size(draw, 20), "h": a * size(draw, 16), "f": size(draw, 200),
        "s": size(draw, 48), "b": size(draw, 4), "u": size(draw, 300), "L": size(draw, 3),
        "tied": draw.randint(0, 1),
    }


def with_large_vocabulary(draw: Random, shape: Shape) -> Shape:
    """The shape with a vocabulary so large that both passes peak in the loss.

    With fewer tokens than hidden_size the gradient of the head's weight would make the head the peak.
    """
    vocabulary = 4 * shape["h"] + 20 * shape["f"] + 20 * shape["a"] * shape["d"] + draw.randint(0, 99)
    return shape | {"u": vocabulary, "s": max(shape["s"], -(-shape["h"] // shape["b"]))}


def causal_lm(family: str, shape: Shape, attention: str, *, dtype: torch.dtype = torch.bfloat16) -> PreTrainedModel:
    """Make the model with weights of ``dtype``; the values do not matter."""
    config_class, model_class, _ = FAMILIES[family]
    config = config_class(
        hidden_size=shape["h"], num_attention_heads=shape["a"], num_key_value_heads=shape["k"],
        head_dim=shape["d"], intermediate_size=shape["f"], vocab_size=shape["u"], num_hidden_layers=shape["L"],
        tie_word_embeddings=bool(shape["tied"]), max_position_embeddings=max(shape["s"], 64), use_cache=False,
        pad_token_id=None, bos_token_id=None, eos_token_id=None, attn_implementation=attention, dtype=dtype,
    )
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        return model_class(config).train()
    finally:
        torch.set_default_dtype(before)


def token_ids(shape: Shape) -> Tensor:
    """Make a batch of token ids."""
    return torch.zeros(shape["b"], shape["s"], dtype=torch.long)


def run_layer(model: PreTrainedModel, hidden: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Run the first layer; return its output, and the rotary tables that all layers share."""
    decoder: Any = model.model
    positions = torch.arange(hidden.shape[1])[None]
    tables = decoder.rotary_emb(hidden, positions)
    layer: nn.Module = decoder.layers[0]
    return layer(hidden, position_embeddings=tables, position_ids=positions), tables
