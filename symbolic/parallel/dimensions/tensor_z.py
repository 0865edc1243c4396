"""Third axis of tensor parallelism (AxoNN): sequences, and weights that are gathered for every product."""

from __future__ import annotations

from sympy import Integer

from ...dimension import ONE
from ...dimensions import HIDDEN_COLUMNS, HIDDEN_PART
from ...functions import Divides, Iverson
from ...parameters import symbols
from ...work import Transfer
from ..rules import GroupOfRanks, ParallelRule, Projections, Rule, Split

ty, tz, h, b, D, B, og, ow = symbols("ty tz h b D B og ow")

#: The choice that has this dimension.
_THREE = {"tensor_axes": ("three",)}


def _projected(projections: Projections) -> tuple[Transfer, ...]:
    """Return the collectives of two projections: weights gathered in each pass, their gradients scattered."""
    first, outputs, second, inputs = projections
    return tuple(
        Transfer(f"{name}.z", name, "tensor_z", (features, HIDDEN_PART), 2, ONE, Integer(2), "axonn",
                 "weights gathered for each pass, their gradient summed and scattered",
                 kernels=2 * Iverson(tz > 1), prefetched=(ow, og), options=_THREE)
        for name, features in ((first, outputs), (second, inputs))
    )


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
    options=_THREE,
    place=30, own_sequences=True,
    groups=(GroupOfRanks("tensor_z", tz, "ranks of the third tensor axis", 16),),
    projected=_projected,
)
