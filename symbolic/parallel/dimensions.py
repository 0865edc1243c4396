"""The parallel dimensions inside a pipeline stage: tensor, sequence and context parallelism."""

from __future__ import annotations

from ..dimensions import (
    EXPERTS,
    FFN,
    GATE_UP_FEATURES,
    HEADS,
    KEY_SEQUENCE,
    KV_FEATURES,
    KV_HEADS,
    QKV_FEATURES,
    QUERY_FEATURES,
    SEQUENCE,
    SEQUENCE_SP,
    VOCAB,
)
from ..parameters import symbols
from .rules import ParallelRule, Split, refuse_unknown

t, ts, c, e = symbols("t ts c e")

TENSOR = ParallelRule(
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
    },
    "Heads, MLP width and vocabulary are shared out. With more ranks than key and value heads every rank"
    " keeps one head, while the projection weights stay exactly 1/t.",
    "megatron_core",
)
SEQUENCE_PARALLEL = ParallelRule(
    "sequence_parallel", "Sequence parallelism (SP)", ts, {SEQUENCE_SP: Split.EVEN},
    "Norms, residuals and the inputs of column-parallel projections are shared out over the tensor-parallel"
    " ranks; the gathered input is not kept.",
    "korthikanti2022",
)
CONTEXT = ParallelRule(
    "context_parallel", "Context parallelism (CP)", c,
    {SEQUENCE: Split.EVEN, SEQUENCE_SP: Split.EVEN, KEY_SEQUENCE: Split.EVEN},
    "The sequence is shared out everywhere: queries, keys, values, outputs and statistics (ring exchange).",
    "megatron_core",
)

EXPERT = ParallelRule(
    "expert_parallel", "Expert parallelism (EP)", e, {EXPERTS: Split.EVEN},
    "Routed experts are shared out over ranks that hold different tokens; router and shared experts are not.",
    "megatron_core",
)

SHAPE_RULES: tuple[ParallelRule, ...] = (TENSOR, SEQUENCE_PARALLEL, CONTEXT, EXPERT)
refuse_unknown(SHAPE_RULES)
