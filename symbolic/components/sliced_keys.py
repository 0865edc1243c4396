"""Keys and values that full recompute keeps of a slice of a sequence, because later slices attend to them."""

from __future__ import annotations

from ..dimensions import BATCH, HEAD_DIM, KV_HEADS, SEQUENCE
from ..ledger import Component, Place, saved

_PAIRS = (SEQUENCE, BATCH, KV_HEADS, HEAD_DIM)

COMPONENTS = (
    Component(
        "sliced_keys", "Keys and values kept of recomputed slices", 16, Place.LAYER,
        tuple(
            saved(name, "checkpoint", _PAIRS, 2, "sun2024", f"{name} of the slice, for later ones", checkpoint="layer")
            for name in ("keys", "values")
        ),
        options={"slices": ("tokens", "1f1b")},
    ),
)
