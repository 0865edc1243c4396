"""Tables that a stage keeps once: the rotary table and the attention mask."""

from __future__ import annotations

from ..dimensions import BATCH, HEAD_DIM, HEADS, KEY_SEQUENCE, SEQUENCE
from ..ledger import Component, Lifetime, Place, Role, Tensor
from ..parameters import symbol

rfull = symbol("rfull")
_TABLE = (SEQUENCE, HEAD_DIM)

COMPONENTS = (
    Component(
        "tables", "Tables of a stage", 60, Place.STAGE,
        (
            Tensor("rope.frequencies", "rope", Role.BUFFER, _TABLE, 4, Lifetime.ONCE, "megatron_core",
                   "fp32 rotary angles of every position",
                   options={"rope": ("fused", "unfused"), "positions": ("rotary",), "heads": ("grouped",)}),
            Tensor("rope.cos", "rope", Role.BUFFER, _TABLE, 2, Lifetime.ONCE, "transformers",
                   "bf16 cosines, shared by all layers",
                   options={"rope": ("shared",), "positions": ("rotary",), "heads": ("grouped",)}),
            Tensor("rope.sin", "rope", Role.BUFFER, _TABLE, 2, Lifetime.ONCE, "transformers",
                   "bf16 sines, shared by all layers",
                   options={"rope": ("shared",), "positions": ("rotary",), "heads": ("grouped",)}),
            Tensor("position_ids", "rope", Role.BUFFER, (SEQUENCE,), 8, Lifetime.ONCE, "transformers",
                   "int64 positions, kept by the closures of full recompute", when=rfull,
                   options={"rope": ("shared",), "positions": ("rotary",)}),
            Tensor("mask", "mask", Role.BUFFER, (SEQUENCE, KEY_SEQUENCE), 1, Lifetime.ONCE, "megatron_core",
                   "bool causal mask, shared by all layers", options={"attention": ("unfused",)}),
            Tensor("scores", "core_attention", Role.BUFFER, (BATCH, HEADS, SEQUENCE, KEY_SEQUENCE), 2, Lifetime.ONCE,
                   "megatron_core", "global memory buffer that the scores are added to; never freed",
                   options={"attention": ("unfused", "fused_softmax")}),
        ),
    ),
)
