"""Pipelines that are tried: numbers of chunks, and stages for layers that no number of stages divides."""

from __future__ import annotations

from dataclasses import replace

from shardmath.configuration.choosing import has_own_pipeline, options_of
from shardmath.configuration.run import Search
from shardmath.divisors import divisors
from shardmath.input.parameters import UNEVEN
from shardmath.models.model import Model
from shardmath.search.spaces import Constraint, Space

#: Parameters by which the embedding and the loss count as layers when layers are shared out.
ACCOUNTED = ("account_for_embedding", "account_for_loss")
_COUNTED = " + ".join(ACCOUNTED)
#: Layers of a shorter last stage, where all other stages have as few layers in whole chunks as will do; 0 is an even
#: share.
LAST_STAGE = (
    f"0 if {_COUNTED} > 0 or divides(pipeline_parallel * virtual_pipeline, num_layers) else"
    " max(0, num_layers - (pipeline_parallel - 1) * virtual_pipeline"
    " * ceil_div(num_layers, pipeline_parallel * virtual_pipeline))"
)
#: One stage has all layers, whatever else counts as one: only one such layout is looked at.
ONE_STAGE = Constraint("one_stage_alike", f"pipeline_parallel > 1 or {_COUNTED} == 0", said=(
    "account_for_embedding", "and account_for_loss change nothing without a pipeline"))


def chunk_counts(model: Model, uneven: bool) -> tuple[int, ...]:
    """Return numbers of chunks on a rank, above 1, that share out the layers evenly.

    With ``uneven`` stages, also those that do so where embedding or loss count as layers. None where the first layers
    of a model with experts are dense: its chunks are not alike, which several on a rank have to be.
    """
    if model.num_experts and model.first_dense_layers:
        return ()
    totals = range(model.num_layers, model.num_layers + (len(ACCOUNTED) if uneven else 0) + 1)
    return tuple(sorted({size for total in totals for size in divisors(total) if 1 < size <= total // 2}))


def has_uneven(implementation: str, search: Search) -> bool:
    """Check if stages may differ: the implementation has them in every schedule, and ``search`` does not fix them."""
    fixed = "stages" in (search.kernels or {}) or any(name in search.others for name in UNEVEN)
    return "uneven" in options_of(implementation, "stages") and not has_own_pipeline(implementation) and not fixed


def with_uneven(space: Space) -> Space:
    """Get the space with all kinds of stages: even ones, a shorter last one, embedding and loss counted as layers."""
    return replace(
        space, axes={**space.axes, **dict.fromkeys(ACCOUNTED, (0, 1))},
        derived={**space.derived, "last_stage_layers": LAST_STAGE}, constraints=(*space.constraints, ONE_STAGE),
    )
