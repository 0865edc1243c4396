"""The standard space: every layout of one model on one cluster. Its nests are part of the package."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .intervals import Limits
from .posing import Asked, Posing
from .problem import NestAxis

#: Ranks that share one copy of a model, and what is left of the GPUs for data parallelism.
MODEL_PARALLEL = "tensor_parallel * context_parallel * pipeline_parallel"
DATA_PARALLEL = f"num_gpus / ({MODEL_PARALLEL})"
#: The best layout is the fastest; where no speeds are known it has the least model-parallel ranks. Then comes the
#: largest margin, then the larger micro-batch.
BY_TIME = ("step.time", "peak", "-micro_batch_size")
BY_MEMORY = (MODEL_PARALLEL, "peak", "-micro_batch_size")
#: The axes with usual numbers of candidates, to choose the order of the loops by: the same for all jobs.
USUAL = {
    "tensor_parallel": 10, "context_parallel": 10, "pipeline_parallel": 10, "micro_batch_size": 10,
    "sequence_parallel": 2, "recompute": 5,
}


def standard(symbols: Mapping[str, Limits], switches: Iterable[str], ranking: tuple[str, ...]) -> Posing:
    """The standard space of a model without experts; ``switches`` are the parameters that recompute sets."""
    sets = {"recompute": tuple(switches)}
    return Posing(
        symbols=symbols,
        axes=tuple(NestAxis(name, sets.get(name, (name,)), size) for name, size in USUAL.items()),
        folded={},
        derived={"data_parallel": DATA_PARALLEL},
        automatic=(("data_parallel", f"divides({MODEL_PARALLEL}, num_gpus)"),),
        declared=(),
        questions=(
            Asked("best", "best", ranking, 1),
            Asked("best", "best_by_recompute", ranking, 1, per=("recompute",)),
            Asked("best", "smallest", ("peak",), None),
            Asked("best", "largest", ("-peak",), None),
        ),
        literal=False,
    )
