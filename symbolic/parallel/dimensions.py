"""The parallel dimensions inside a pipeline stage: tensor, sequence and context parallelism."""

from __future__ import annotations

from ..dimensions import (
    EXPERT_FFN,
    EXPERT_GATE_UP,
    EXPERTS,
    FFN,
    FFN_SCALES,
    GATE_UP_FEATURES,
    HEADS,
    HIDDEN_FEATURES,
    KEY_SEQUENCE,
    KEY_VALUE_FEATURES,
    KV_FEATURES,
    KV_HEADS,
    QKV_FEATURES,
    QUERY_FEATURES,
    SEQUENCE,
    SEQUENCE_OF_OTHERS,
    SEQUENCE_SP,
    SHARED_FFN,
    SHARED_GATE_UP,
    VALUE_FEATURES,
    VOCAB,
)
from ..parameters import symbols
from .rules import ParallelRule, Split, refuse_unknown

t, ts, c, e, et = symbols("t ts c e et")

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
        SHARED_FFN: Split.EVEN,
        SHARED_GATE_UP: Split.EVEN,
        KEY_VALUE_FEATURES: Split.EVEN,
        VALUE_FEATURES: Split.EVEN,
        HIDDEN_FEATURES: Split.EVEN,
        FFN_SCALES: Split.EVEN,
    },
    "Heads, MLP width and vocabulary are shared out. With more ranks than key and value heads every rank"
    " keeps one head, while the projection weights stay exactly 1/t.",
    "megatron_core",
)
SEQUENCE_PARALLEL = ParallelRule(
    "sequence_parallel", "Sequence parallelism (SP)", ts, {SEQUENCE_SP: Split.EVEN, SEQUENCE_OF_OTHERS: Split.EVEN},
    "Norms, residuals and the inputs of column-parallel projections are shared out over the tensor-parallel"
    " ranks; the gathered input is not kept.",
    "korthikanti2022",
)
CONTEXT = ParallelRule(
    "context_parallel", "Context parallelism (CP)", c,
    {SEQUENCE: Split.EVEN, SEQUENCE_SP: Split.EVEN, SEQUENCE_OF_OTHERS: Split.EVEN, KEY_SEQUENCE: Split.EVEN},
    "The sequence is shared out everywhere: queries, keys, values, outputs and statistics (ring exchange).",
    "megatron_core",
)

EXPERT = ParallelRule(
    "expert_parallel", "Expert parallelism (EP)", e, {EXPERTS: Split.EVEN},
    "Routed experts are shared out over ranks that hold different tokens; router and shared experts are not.",
    "megatron_core",
)

EXPERT_TENSOR = ParallelRule(
    "expert_tensor_parallel", "Expert tensor parallelism (ETP)", et,
    {EXPERT_FFN: Split.EVEN, EXPERT_GATE_UP: Split.EVEN},
    "The inner width of routed experts is shared out over ranks that all work on the same tokens; it need not be"
    " the tensor parallelism of the other layers.",
    "megatron_core",
)

SHAPE_RULES: tuple[ParallelRule, ...] = (TENSOR, SEQUENCE_PARALLEL, CONTEXT, EXPERT, EXPERT_TENSOR)
refuse_unknown(SHAPE_RULES)
