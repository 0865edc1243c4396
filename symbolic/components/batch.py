"""The batch: what the data loader gave for the micro-batch whose loss is computed, and the attention mask."""

from __future__ import annotations

from typing import Any

from sympy import Eq, Integer

from ..choices import MEGATRON_PEAKS
from ..dimensions import ALL_KEYS, BATCH, SEQUENCE
from ..functions import Iverson
from ..ledger import Component, Lifetime, Place, Role, Tensor, transient
from ..parameters import symbols

b, t, p, rfull = symbols("b t p rfull")

_TOKENS = (SEQUENCE, BATCH)
_MASK = (BATCH, SEQUENCE, ALL_KEYS)
_FORWARD = ("loss_forward",)
_SOURCE = "megatron_training"
_MASKED: Any = {"mask": ("dataloader",)}
_ALONE = Iverson(Eq(p, 1))
#: Full recompute keeps the mask of every micro-batch as an argument; on the only stage the first row has it.
_NOT_KEPT = Integer(1) - rfull * _ALONE

COMPONENTS = (
    Component(
        "batch", "Batch", 8, Place.LAST,
        (
            # On the only stage without shards of the vocabulary, the embedding keeps the ids themselves.
            transient("ids", "batch", _TOKENS, 8, _SOURCE, "int64 token ids", _FORWARD,
                      when=1 - Iverson(Eq(t, 1)) * _ALONE),
            transient("labels", "batch", _TOKENS, 8, _SOURCE, "int64 labels", _FORWARD),
            transient("labels_copy", "batch", _TOKENS, 8, _SOURCE, "contiguous copy of the transposed labels", _FORWARD,
                      when=Iverson(b > 1)),
            transient("loss_mask", "batch", _TOKENS, 4, _SOURCE, "fp32 mask of the loss", _FORWARD),
            transient("position_ids", "batch", _TOKENS, 8, _SOURCE, "int64 positions", _FORWARD,
                      positions=("rotary", "partial")),
            # On the only stage, the position embedding keeps them.
            transient("embedded_position_ids", "batch", _TOKENS, 8, _SOURCE, "int64 positions", _FORWARD,
                      when=1 - _ALONE, positions=("learned",)),
            transient("attention_mask", "batch", _MASK, 1, _SOURCE, "bool causal mask", _FORWARD, when=_NOT_KEPT,
                      **_MASKED),
        ),
        note="On the tensor-parallel rank that reads the data, which holds the whole batch on the first and last stage."
        " All of it is gone when the backward pass begins; stages between have nothing.",
        options={"peak": MEGATRON_PEAKS},
    ),
    Component(
        "mask_argument", "Attention mask kept by full recompute", 9, Place.FIRST,
        (
            Tensor("attention_mask", "batch", Role.INPUT, _MASK, 1, Lifetime.IN_FLIGHT, _SOURCE,
                   "bool causal mask, an argument of every recomputed layer", when=rfull, options=_MASKED),
        ),
        options={"peak": MEGATRON_PEAKS},
    ),
)
