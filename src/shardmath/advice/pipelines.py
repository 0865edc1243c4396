"""Pipelines that are tried: stages of one size, and a shorter last one where a size does not divide the layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from shardmath.advice.columns import formula_column
from shardmath.choosing import UNEVEN
from shardmath.divisors import divisors
from shardmath.generated.definitions import CHOICES, IMPLEMENTATIONS
from shardmath.models import Model
from shardmath.parameters import checked
from shardmath.spaces import Space

#: What is left for the last stage where all others have as few layers in whole chunks as will do; 0 is an even share.
LAST_STAGE = (
    "0 if divides(pipeline_parallel * virtual_pipeline, num_layers) else"
    " max(0, num_layers - (pipeline_parallel - 1) * virtual_pipeline"
    " * ceil_div(num_layers, pipeline_parallel * virtual_pipeline))"
)
#: Numbers of chunks that a pipeline is tried with: so many of the smallest that divide the layers.
_CHUNKS = 8


def chunk_sizes(model: Model) -> tuple[int, ...]:
    """Numbers of chunks on a rank that interleaved pipelines are tried with."""
    return divisors(model.num_layers)[1:_CHUNKS + 1]


def is_uneven(model: Model, stages: int) -> bool:
    """Whether so many stages do not share the layers evenly, and leave some for a shorter last one."""
    values = {"pipeline_parallel": stages, "virtual_pipeline": 1, "num_layers": model.num_layers}
    return bool(formula_column(LAST_STAGE, values) > 0)


def stage_counts(
    model: Model, num_gpus: int, implementation: str, chunks: Sequence[int], asked: Mapping[str, Any],
) -> tuple[int, ...] | None:
    """Numbers of stages to try with these numbers of chunks; None for all that divide the GPUs.

    ``asked`` are the arguments of ``sweep``: what they name is what is tried. torchtitan has pipelines where they are
    asked for. Raises InputError for a number of GPUs that cannot be.
    """
    given: tuple[int, ...] | None = asked.get("pipeline_parallel")
    if given or implementation != "megatron" or _says_stages(asked):
        return given or None
    uneven = _has_uneven(model, implementation, chunks, asked)
    return tuple(size for size in divisors(checked("num_gpus", num_gpus))
                 if model.num_layers % size == 0 or (uneven and is_uneven(model, size)))


def with_last_stage(space: Space, model: Model, chunks: Sequence[int], asked: Mapping[str, Any]) -> Space:
    """The space, with a shorter last stage where its pipelines would otherwise not be legal."""
    sizes = space.axes["pipeline_parallel"]
    if (not isinstance(sizes, Sequence) or _says_stages(asked)
            or not _has_uneven(model, space.implementation, chunks, asked)
            or not any(is_uneven(model, int(size)) for size in sizes)):
        return space
    return replace(space, derived={**space.derived, "last_stage_layers": LAST_STAGE})


def _says_stages(asked: Mapping[str, Any]) -> bool:
    """Whether the layers of first and last stage are asked for."""
    return any(asked.get(name) for name in UNEVEN)


def _has_uneven(model: Model, implementation: str, chunks: Sequence[int], asked: Mapping[str, Any]) -> bool:
    """Whether a last stage may have fewer layers: the chunks of a model with experts have to be alike."""
    allowed = IMPLEMENTATIONS.get(implementation, {}).get("allowed", {}).get("stages", CHOICES["stages"][1])
    kernels = asked.get("kernels") or {}
    return "uneven" in allowed and "stages" not in kernels and not (model.num_experts and max(chunks, default=1) > 1)
