"""NVIDIA's dense Nemotron models, which recipes of NeMo train: LayerNorm, rotary positions, an MLP without a gate."""

from __future__ import annotations

from shardmath.models.model import Model

#: Layers, hidden size, inner width, query heads, key and value heads (NeMo, NemotronConfig and its subclasses).
_SIZES = {
    "nemotron3 8b": (32, 4096, 16384, 32, 32),
    "nemotron3 22b": (40, 6144, 24576, 48, 48),
    "nemotron4 15b": (32, 6144, 24576, 48, 8),
    "nemotron4 340b": (96, 18432, 73728, 96, 8),
}
_VOCABULARY = 256_000
_SEQ_LENGTH = 4096


def nemotron(name: str) -> Model | None:
    """Return the model that the table calls ``name``, or None.

    Its activation is the square of ReLU. As with GELU, a tensor as large as its input and its result are kept, so it
    goes by that name. Its rotary tables are half as wide as those counted.
    """
    if name not in _SIZES:
        return None
    layers, hidden, inner, heads, kv_heads = _SIZES[name]
    return Model(
        name=name, hidden_size=hidden, ffn_hidden_size=inner, num_layers=layers, num_attention_heads=heads,
        num_kv_heads=kv_heads, head_dim=hidden // heads, vocab_size=_VOCABULARY, tied_embeddings=False, qkv_bias=False,
        qk_norm=False, max_seq_length=_SEQ_LENGTH, normalisation="layer", mlp="gelu",
        source="NeMo, nemo/collections/llm/gpt/model/nemotron.py",
    )
