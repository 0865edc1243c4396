"""Bytes that losses of TRL and ms-swift keep beside logits: labels, masks, logarithms of sums, and counted labels."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from oracles.instruments.saved import Saved, functions_of
from oracles.libraries.preference import batch_of, has, model_of, trainer_loss
from torch import Tensor

TABLE = "preference_kept"

__all__ = ["TABLE", "count", "has"]


def count(row: Mapping[str, str]) -> dict[str, int]:
    """Count saved int64 and bool tensors, results of log-sum-exp, and weights that a cross entropy has summed up."""
    shape = {letter: int(row[letter]) for letter in ("h", "a", "k", "d", "f", "u", "L", "tied", "s", "b")}
    model = model_of(row, shape)
    batch = batch_of(row, shape)
    with Saved() as saved:
        loss = trainer_loss(row, model, None)(batch)
        kept = {kind: saved.bytes(model, of=getattr(torch, kind)) for kind in ("int64", "bool")}
    sums = [each._saved_result for each in functions_of(loss, "Logsumexp")]
    weights = [each._saved_total_weight for each in functions_of(loss, "NllLoss")]
    return kept | {"sums": _bytes(sums), "total_weight": _bytes(weights)}


def _bytes(tensors: list[Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors)
