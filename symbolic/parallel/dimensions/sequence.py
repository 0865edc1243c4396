"""Sequence parallelism: tokens outside of the tensor-parallel region."""

from __future__ import annotations

from ...dimensions import SEQUENCE_OF_OTHERS, SEQUENCE_SP
from ...parameters import symbols
from ..rules import ParallelRule, Split

(ts,) = symbols("ts")

RULE = ParallelRule(
    "sequence_parallel", "Sequence parallelism (SP)", ts, {SEQUENCE_SP: Split.EVEN, SEQUENCE_OF_OTHERS: Split.EVEN},
    "Norms, residuals and the inputs of column-parallel projections are shared out over the tensor-parallel"
    " ranks; the gathered input is not kept.",
    "korthikanti2022",
    order=20,
)
