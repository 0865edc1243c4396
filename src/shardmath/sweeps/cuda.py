"""Sweep on a GPU: the same nest as a kernel of numba-cuda, with the answers of the compiled one.

The GPU counts, and notes what may belong to an answer; the answer itself is put together here. Values are the same
float64: a quotient is rounded as on a processor, and a multiplication that is fused with an addition changes no integer
below 2**53.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardmath.errors import InputError
from shardmath.spaces import Best, Part, Question
from shardmath.sweeps.answers import Answer, BestAnswer, Found, FrontAnswer, HistogramAnswer
from shardmath.sweeps.nests import Nest, module_for_gpu
from shardmath.sweeps.rows import Table
from shardmath.sweeps.running import Workers, on_threads

#: Configurations of one chunk at least: some tenths of a second.
_CHUNK = 1 << 30
#: Threads of a block at most, and of those that run together.
_THREADS, _WARP = 256, 32
#: Most blocks that share out the shards.
_BLOCKS = 65535
#: Configurations that there is room to note for each question.
_ROOM = 1 << 18

Array = NDArray[Any]


def require_gpu() -> None:
    """Raise InputError where there is no GPU for Numba."""
    try:
        from numba import cuda

        found = cuda.is_available()
    except ImportError:
        found = False
    if not found:
        rule = "must have a GPU that Numba finds, with its driver and the CUDA toolkit: install shardmath[cuda]"
        raise InputError("device", "cuda", rule, "cpu")


@contextmanager
def on_gpu(nest: Nest) -> Iterator[Workers]:
    """One thread that hands out large chunks: the GPU works on one at a time."""
    with on_threads(nest, 1) as workers:
        yield replace(workers, chunk=_CHUNK)


class CudaNest(Nest):
    """A nest whose stretches are swept on the GPU. Raises InputError where there is none."""

    def __init__(self, part: Part, questions: Sequence[Question], module: Any = None) -> None:
        require_gpu()
        asked = sorted(questions, key=lambda question: question.kind == "rows")
        super().__init__(part, questions, module or module_for_gpu(part, tuple(asked)))

    def swept(self, start: int, stop: int, known: Answer, table: Table | None = None) -> Answer:
        """The answer for shards ``start`` to ``stop`` alone, as ``Nest.swept``; ``evaluated`` are the legal ones.

        The kernel compares with what is known when it starts. Where more is better than that than there is room for,
        it starts again, knowing what was noted: there is more room than an answer has, so that it is something new.
        """
        found = known.seed()
        entries, alive, broken, given, row = self._prepared
        found.broken += broken * (self._below * (stop - start))
        if table is not None:
            table.size[0] = 0
        while alive:
            launch = _Launch(self, found, table)
            launch.run(start, stop, entries, given, row)
            launch.
        return found
