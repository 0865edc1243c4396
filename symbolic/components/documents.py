"""Documents of a packed sequence: where each begins, and its positions, which begin anew with every document."""

from __future__ import annotations

from ..dimensions import BATCH, DOCUMENT_BOUNDS, SEQUENCE
from ..ledger import Component, Lifetime, Place, Role, Tensor, saved

COMPONENTS = (
    Component(
        "document_bounds", "Bounds of documents in attention", 21, Place.LAYER,
        (
            saved("bounds", "core_attention", (DOCUMENT_BOUNDS,), 4, "transformers",
                  "int32 first tokens of documents, made in every layer from positions", position_ids=("shared",)),
        ),
        options={"documents": ("packed",)},
    ),
    Component(
        "documents", "Documents of a batch", 3, Place.STAGE,
        (
            Tensor("positions", "batch", Role.INPUT, (SEQUENCE, BATCH), 8, Lifetime.ONCE, "transformers",
                   "int64 positions, which begin anew with every document", options={"position_ids": ("shared",)}),
            Tensor("bounds_given", "batch", Role.INPUT, (DOCUMENT_BOUNDS,), 4, Lifetime.ONCE, "megatron_core",
                   "int32 first tokens of documents, which all layers share", options={"position_ids": ("batch",)}),
        ),
        options={"documents": ("packed",)},
    ),
)
