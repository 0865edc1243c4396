"""The generated evaluator for columns of layouts, compiled by Numba; it releases the interpreter lock."""

from __future__ import annotations

from functools import partial

from benchmarks.contenders import CORES, Contender, filling, in_blocks
from benchmarks.data import Columns, Job, Outputs
from shardmath.sweeps.engine import CHUNK


def contenders(job: Job) -> list[Contender]:
    """One thread and all cores. The evaluator is compiled, or loaded from its cache, before they run."""
    kernel, scalars = job.evaluator.kernel, job.scalars

    def fill(columns: Columns, outputs: Outputs, threads: int) -> None:
        inputs = [columns[name] for name in kernel.COLUMNS]
        count = len(inputs[0])

        def evaluate(start: int, stop: int) -> None:
            kernel.evaluate(start, stop, *scalars, *inputs, outputs["rule"], outputs["verdict"], outputs["peak"].base)

        in_blocks(evaluate, count, min(CHUNK, -(-count // threads)), threads)

    found = [
        filling("shardmath, generated and compiled", threads, partial(fill, threads=threads))
        for threads in sorted({1, CORES})
    ]
    found[0].run(job.space.columns(0, 2))
    return found
