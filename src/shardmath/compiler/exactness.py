"""Where the arithmetic of compiled evaluators ends: integers stay exact in float64 below a power of two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardmath.errors import InputError

#: Sums of a few terms below this stay exact integers in float64.
EXACT = 2**49


def refuse_inexact(model: str, values: Mapping[str, int]) -> None:
    """Raise InputError if a product that the rules or terms start from would not be exact in float64.

    ``values`` are by parameter name, each the largest one that occurs; ``model`` is the name to blame.
    """
    if max(products(values)) >= EXACT:
        raise InputError("model", model, "must have matrices and batches below 2^49 elements, for exact arithmetic")


def products(values: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the largest products that rules and terms start from: elements of matrices, tokens of a batch.

    ``values`` has numbers or columns by parameter name, of which some may lack.
    """
    heads, kv_heads, width, inner, hidden, vocabulary, multiple, gpus, tokens, batch = (
        values.get(name, 0) for name in (
            "num_attention_heads", "num_kv_heads", "head_dim", "ffn_hidden_size", "hidden_size", "vocab_size",
            "vocab_multiple", "num_gpus", "seq_length", "global_batch_size",
        )
    )
    matrices = ((heads + 2 * kv_heads) * width, 2 * inner, vocabulary + multiple * gpus)
    return (*(matrix * hidden for matrix in matrices), tokens * batch)
