"""Kept beside a slice of a sequence: its keys and values where layers are recomputed, and angles of other slices."""

from __future__ import annotations

from ..dimensions import BATCH, HEAD_DIM, KV_HEADS, SEQUENCE
from ..ledger import Component, Lifetime, Place, Role, Tensor, saved
from ..parameters import symbols

(sn,) = symbols("sn")
_PAIRS = (SEQUENCE, BATCH, KV_HEADS, HEAD_DIM)
_SLICED = ("tokens", "1f1b")

COMPONENTS = (
    Component(
        "sliced_keys", "Keys and values kept of recomputed slices", 16, Place.LAYER,
        tuple(
            saved(name, "checkpoint", _PAIRS, 2, "sun2024", f"{name} of the slice, for later ones", checkpoint="layer")
            for name in ("keys", "values")
        ),
        options={"slices": _SLICED},
    ),
    Component(
        "sliced_tables", "Rotary table beyond a slice", 61, Place.STAGE,
        (
            Tensor("rope.frequencies", "rope", Role.BUFFER, (SEQUENCE, HEAD_DIM), 4, Lifetime.ONCE, "megatron_core",
                   "fp32 rotary angles of every position of the other slices", when=sn - 1,
                   options={"rope": ("fused", "unfused"), "heads": ("grouped",), "positions": ("rotary",),
                            "documents": ("one",)}),
        ),
        options={"slices": _SLICED},
    ),
)
