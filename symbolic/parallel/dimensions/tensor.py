"""Tensor parallelism: heads, MLP width and vocabulary."""

from __future__ import annotations

from ...dimensions import (
    FFN,
    FFN_SCALES,
    GATE_UP_FEATURES,
    HEADS,
    HIDDEN_FEATURES,
    KEY_VALUE_FEATURES,
    KV_FEATURES,
    KV_HEADS,
    LOCAL_RANK,
    QKV_FEATURES,
    QUERY_FEATURES,
    SHARED_FFN,
    SHARED_FFN_SCALES,
    SHARED_GATE_UP,
    VALUE_FEATURES,
    VOCAB,
)
from ...parameters import symbols
from ..rules import GroupOfRanks, ParallelRule, Split

(t,) = symbols("t")

RULE = ParallelRule(
    "tensor_parallel", "Tensor parallelism (TP)", t,
    {
        HEADS: Split.EVEN,
        KV_HEADS: Split.AT_LEAST_ONE,
        FFN: Split.EVEN,
        VOCAB: Split.PADDED,
        QUERY_FEATURES: Split.EVEN,
        KV_FEATURES: Split.EVEN,
        QKV_FEATURES: Split.EVEN,
        GATE_UP_FEATURES: Split.EVEN,
        SHARED_FFN: Split.EVEN,
        SHARED_GATE_UP: Split.EVEN,
        KEY_VALUE_FEATURES: Split.EVEN,
        VALUE_FEATURES: Split.EVEN,
        HIDDEN_FEATURES: Split.EVEN,
        FFN_SCALES: Split.EVEN,
        SHARED_FFN_SCALES: Split.EVEN,
        LOCAL_RANK: Split.EVEN,
    },
    "Heads, MLP width and vocabulary are shared out. With more ranks than key and value heads every rank"
    " keeps one head, while the projection weights stay exactly 1/t.",
    "megatron_core",
    order=10,
    place=20,
    groups=(GroupOfRanks("tensor", t, "tensor-parallel ranks", 10),),
)
