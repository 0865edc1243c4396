"""Second axis of tensor parallelism (AxoNN): the residual width of weights, and the vocabulary once more."""

from __future__ import annotations

from ...dimensions import HIDDEN_COLUMNS, HIDDEN_PART, VOCAB
from ...functions import Divides
from ...parameters import symbols
from ..rules import ParallelRule, Rule, Split

ty, h = symbols("ty h")

RULE = ParallelRule(
    "tensor_parallel_y", "Tensor parallelism, second axis (TPY)", ty,
    {HIDDEN_COLUMNS: Split.EVEN, HIDDEN_PART: Split.EVEN, VOCAB: Split.PADDED},
    "The side of every projection that meets the residual stream is shared out; the stream itself is whole on every"
    " rank. Partial products are summed over these ranks.",
    "singh2023",
    order=12,
    rules=(Rule("tensor_y", "ty", Divides(ty, h), "must divide hidden_size"),),
    options={"tensor_axes": ("three",)},
)
