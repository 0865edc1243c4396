"""Context parallelism: tokens everywhere."""

from __future__ import annotations

from ...dimensions import KEY_SEQUENCE, SEQUENCE, SEQUENCE_OF_OTHERS, SEQUENCE_SP
from ...parameters import symbols
from ..rules import GroupOfRanks, ParallelRule, Split

(c,) = symbols("c")

RULE = ParallelRule(
    "context_parallel", "Context parallelism (CP)", c,
    {SEQUENCE: Split.EVEN, SEQUENCE_SP: Split.EVEN, SEQUENCE_OF_OTHERS: Split.EVEN, KEY_SEQUENCE: Split.EVEN},
    "The sequence is shared out everywhere: queries, keys, values, outputs and statistics (ring exchange).",
    "megatron_core",
    order=30,
    place=40,
    groups=(GroupOfRanks("context", c, "context-parallel ranks", 20, sends=True,
                         pairs={"context": ("all_to_all",)}),),
)
