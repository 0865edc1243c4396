"""Expert-parallel ranks of Transformers that work on one batch, of which each sends a slice to experts."""

from __future__ import annotations

from ...dimensions import RECEIVED, SENT
from ...functions import Divides
from ...parameters import symbols
from ..rules import ParallelRule, Rule, Split

xb, xn, e, D, s, b = symbols("xb xn e D s b")

RULE = ParallelRule(
    "shared_batch", "Ranks with one batch", xb, {SENT: Split.EVEN, RECEIVED: Split.EVEN},
    "All that is no routed expert is whole on each of these ranks and does the same work; the tokens that a rank sends"
    " to experts are a slice of their batch.",
    "transformers",
    order=45,
    rules=(
        Rule("shared_experts_ranks", "xb", Divides(xb, e), "must divide expert_parallel"),
        Rule("shared_tokens", "xb", Divides(xb, s * b),
             "must divide seq_length * micro_batch_size: slices of other sizes are not counted yet"),
        Rule("shared_load", "load", Divides(xb, xn), "must leave whole tokens on each of shared_batch ranks"),
    ),
    options={"shared_batches": ("shared",)},
    shares_sequences=True,
)
