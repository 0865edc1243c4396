"""Where the arithmetic of compiled evaluators ends: integers stay exact in float64 below a power of two."""

from __future__ import annotations

from collections.abc import Mapping

from shardmath.errors import InputError

#: Sums of a few terms below this stay exact integers in float64.
EXACT = 2.0**49


def refuse_inexact(model: str, values: Mapping[str, int]) -> None:
    """Raise InputError if a product that the rules or terms start from would not be exact in float64.

    ``values`` are by parameter name, each the largest one that occurs; ``model`` is the name to blame.
    """
    heads = values["num_attention_heads"] + 2 * values["num_kv_heads"]
    widths = (
        heads * values["head_dim"], 2 * values["ffn_hidden_size"],
        values["vocab_size"] + values["vocab_multiple"] * values["num_gpus"],
    )
    if max(widths) * values["hidden_size"] >= EXACT or values["seq_length"] * values["global_batch_size"] >= EXACT:
        rule = "must have matrices and batches below 2^49 elements, for exact arithmetic"
        raise InputError("model", model, rule)
