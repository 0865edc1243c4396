"""Third axis of tensor parallelism (AxoNN): sequences, and weights that are gathered for every product."""

from __future__ import annotations

from ...dimensions import HIDDEN_COLUMNS
from ...functions import Divides
from ...parameters import symbols
from ..rules import ParallelRule, Rule, Split

ty, tz, h, b, D, B = symbols("ty tz h b D B")

RULE = ParallelRule(
    "tensor_parallel_z", "Tensor parallelism, third axis (TPZ)", tz, {HIDDEN_COLUMNS: Split.EVEN},
    "Every rank keeps a share of the weights of projections, gathers them for a product and scatters their gradient;"
    " each works on sequences of its own.",
    "axonn",
    order=14,
    rules=(
        Rule("tensor_z", "tz", Divides(ty * tz, h), "times tensor_parallel_y must divide hidden_size"),
        Rule("tensor_z_batch", "tz", Divides(b * D * tz, B),
             "times micro_batch_size * data_parallel must divide global_batch_size"),
    ),
    options={"tensor_axes": ("three",)},
)
