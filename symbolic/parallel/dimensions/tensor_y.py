"""Second axis of tensor parallelism (AxoNN): the residual width of weights, and the vocabulary once more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from sympy import Integer

from ...dimension import ONE
from ...dimensions import BATCH, HIDDEN, HIDDEN_COLUMNS, HIDDEN_PART, SEQUENCE, VOCAB
from ...functions import Divides, Iverson
from ...parameters import symbols
from ...work import NONE, Transfer
from ..rules import GroupOfRanks, ParallelRule, Projections, Rule, Split

t, ty, h = symbols("t ty h")

#: The choice that has this dimension.
_THREE = {"tensor_axes": ("three",)}
_STREAM = (SEQUENCE, BATCH, HIDDEN)


def _projected(projections: Projections) -> tuple[Transfer, ...]:
    """Return what is exchanged for two projections, of which the second is transposed.

    Partial products are summed: outputs of the first, gradients of the inputs of the second. The residual stream is
    whole on these ranks, so what leaves the block is gathered, and so is its gradient.
    """
    first, outputs, second, inputs = projections
    over_y: Any = {"kernels": Iverson(ty > 1), "options": _THREE}
    return (
        Transfer(f"{first}.y", first, "tensor_y", (SEQUENCE, BATCH, outputs), 2, Integer(2), NONE, "axonn",
                 "partial outputs of the projection, summed", **over_y),
        Transfer(f"{first}.y_input", first, "tensor_y", _STREAM, 2, NONE, ONE, "axonn",
                 "gradient of the part of the residual stream that the rank worked on, gathered", **over_y),
        Transfer(f"{second}.y", second, "tensor_y", _STREAM, 2, ONE, NONE, "axonn",
                 "parts of the projection's output, gathered", **over_y),
        Transfer(f"{second}.y_input", second, "tensor_y", (SEQUENCE, BATCH, inputs), 2, NONE, Integer(2), "axonn",
                 "partial gradients of the projection's input, summed", **over_y),
    )


def _over_vocabulary(row: Transfer) -> Iterator[Transfer]:
    """Yield a transfer as it is with one axis, and between the ranks of the first two of three."""
    yield replace(row, options={**row.options, "tensor_axes": ("one",)})
    yield replace(row, name=f"{row.name}.xy", ranks="tensor_xy", kernels=row.kernels.xreplace({t: t * ty}),
                  options={**row.options, **_THREE})


RULE = ParallelRule(
    "tensor_parallel_y", "Tensor parallelism, second axis (TPY)", ty,
    {HIDDEN_COLUMNS: Split.EVEN, HIDDEN_PART: Split.EVEN, VOCAB: Split.PADDED},
    "The side of every projection that meets the residual stream is shared out; the stream itself is whole on every"
    " rank. Partial products are summed over these ranks.",
    "singh2023",
    order=12,
    rules=(Rule("tensor_y", "ty", Divides(ty, h), "must divide hidden_size"),),
    options=_THREE,
    place=10,
    groups=(
        GroupOfRanks("tensor_y", ty, "ranks of the second tensor axis", 12),
        GroupOfRanks("tensor_xy", t * ty, "ranks that share out the vocabulary", 14, Integer(1)),
    ),
    projected=_projected, over_vocabulary=_over_vocabulary,
)
