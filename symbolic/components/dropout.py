"""Dropout of the residual stream: the masks that stay until the backward pass, one byte for every element."""

from __future__ import annotations

from ..dimensions import BATCH, HIDDEN, SEQUENCE_SP
from ..ledger import Component, Place, saved
from ..parameters import symbol

drop = symbol("drop")

_RESIDUAL = (SEQUENCE_SP, BATCH, HIDDEN)

COMPONENTS = (
    Component(
        "embedding_dropout", "Dropout after the embedding", 12, Place.FIRST,
        (
            saved("mask", "dropout", _RESIDUAL, 1, "megatron_core", "bool mask of the dropped elements", when=drop),
        ),
    ),
    Component(
        "hidden_dropout", "Dropout after attention and MLP", 55, Place.LAYER,
        (
            saved("attention_mask", "attention_dropout", _RESIDUAL, 1, "megatron_core",
                  "bool mask of dropout after the output projection", when=drop),
            saved("mlp_mask", "mlp_dropout", _RESIDUAL, 1, "megatron_core",
                  "bool mask of dropout after the MLP", when=drop),
        ),
        note="Fused with bias and residual addition by torch.compile or not, the mask is kept, not the seed."
        " The masks of the attention probabilities are rows of attention.",
    ),
)
