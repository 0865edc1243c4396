"""Choose layouts: least model-parallel size first, then the largest margin below the GPU's memory.

Until there is a model of time, fewer model-parallel ranks stand for less communication.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shardmath.generated.definitions import VERDICTS
from shardmath.sweeps.engine import Evaluated

RULE = "least tensor * context * pipeline ranks, then the largest margin"
FITS = next(number for number, (name, _) in enumerate(VERDICTS) if name == "fits")


@dataclass(frozen=True)
class Layout:
    """One evaluated layout. Sizes in bytes; ``share`` is peak over GPU memory."""

    tensor_parallel: int
    context_parallel: int
    pipeline_parallel: int
    data_parallel: int
    micro_batch_size: int
    sequence_parallel: int
    recompute: str
    num_microbatches: int
    first_stage_bytes: int
    last_stage_bytes: int
    peak_bytes: int
    share: float
    verdict: str
    virtual_pipeline: int = 1
    expert_parallel: int = 1

    @property
    def model_parallel(self) -> int:
        """Ranks that share one copy of the model."""
        return self.tensor_parallel * self.context_parallel * self.pipeline_parallel

    @property
    def order(self) -> tuple[int, int, int]:
        """The sorting key: smaller is better. Equal ones are sorted by their larger micro-batch."""
        return (self.model_parallel, self.peak_bytes, -self.micro_batch_size)


def ranked(chunk: Evaluated) -> NDArray[np.intp]:
    """The rows of the layouts that fit, best first; equal ones in the order of the space."""
    rows = np.flatnonzero(chunk.verdict == FITS)
    tensor, context, pipeline, micro_batch = (
        chunk.columns[name][rows]
        for name in ("tensor_parallel", "context_parallel", "pipeline_parallel", "micro_batch_size")
    )
    return rows[np.lexsort((-micro_batch, chunk.peak[rows], tensor * context * pipeline))]


def layout(chunk: Evaluated, row: int, modes: tuple[str, ...], batch: int, memory: int) -> Layout:
    """One row of a chunk as a ``Layout``; ``batch`` in sequences, ``memory`` in bytes."""
    column = {name: int(values[row]) for name, values in chunk.columns.items()}
    peak = int(chunk.peak[row])
    return Layout(
        column["tensor_parallel"], column["context_parallel"], column["pipeline_parallel"],
        column["data_parallel"], column["micro_batch_size"], column["sequence_parallel"],
        modes[column["recompute"]], batch // (column["data_parallel"] * column["micro_batch_size"]),
        int(chunk.first[row]), int(chunk.last[row]), peak, peak / memory, VERDICTS[int(chunk.verdict[row])][0],
        column.get("virtual_pipeline", 1), column.get("expert_parallel", 1),
    )
