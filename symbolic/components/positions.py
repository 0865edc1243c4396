"""Learned positions: the table that the first stage adds to the embedding, whole on every tensor-parallel rank."""

from __future__ import annotations

from ..dimensions import BATCH, HIDDEN, POSITIONS, SEQUENCE
from ..ledger import Component, Lifetime, Place, Role, Tensor, weight

COMPONENTS = (
    Component(
        "position_embedding", "Learned position embedding", 11, Place.FIRST,
        (
            weight("weight", "position_embedding", (POSITIONS, HIDDEN), "megatron_core",
                   "position table, on every tensor-parallel rank"),
            Tensor("ids", "position_embedding", Role.INPUT, (SEQUENCE, BATCH), 8, Lifetime.IN_FLIGHT,
                   "megatron_core", "int64 positions; the lookup keeps its input",
                   options={"position_ids": ("batch", "shifted")}),
            Tensor("ids_shared", "position_embedding", Role.INPUT, (SEQUENCE,), 8, Lifetime.IN_FLIGHT,
                   "transformers", "int64 positions, the same for all sequences; the lookup keeps its input",
                   options={"position_ids": ("shared",)}),
        ),
        options={"positions": ("learned",)},
    ),
)
