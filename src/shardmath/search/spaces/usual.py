"""The standard space: every layout of one model on one cluster."""

from collections.abc import Collection

from shardmath.generated.definitions import ABSENT_RANKS

#: Ranks that share one copy of a model, and what is left of the GPUs, where no system has further axes.
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


def model_parallel(names: Collection[str]) -> str:
    """Return the ranks that share one copy of a model, as a formula of the degrees that are among ``names``."""
    return " * ".join([MODEL_PARALLEL, *(name for name in ABSENT_RANKS if name in names)])
