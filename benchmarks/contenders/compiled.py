"""The generated evaluator that a sweep runs, compiled by Numba; it releases the interpreter lock."""

from __future__ import annotations

from functools import partial

import numpy as np

from benchmarks.contenders import CORES, WHOLE, Contender, in_blocks
from benchmarks.data import Columns, Job, Outputs
from shardmath.sweeps.engine import CHUNK


def contenders(job: Job) -> list[Contender]:
    """One thread and all cores. The evaluator is compiled, or loaded from its cache, before they run."""
    kernel, scalars = job.evaluator.kernel, job.scalars

    def run(columns: Columns, threads: int) -> Outputs:
        count = len(columns["data_parallel"])
        rule, verdict = np.zeros(count, np.int8), np.zeros(count, np.int8)
        out = np.zeros((len(kernel.OUTPUTS), count))
        inputs = [columns[name] for name in kernel.COLUMNS]

        def evaluate(start: int, stop: int) -> None:
            kernel.evaluate(start, stop, *scalars, *inputs, rule, verdict, out)

        in_blocks(evaluate, count, min(CHUNK, -(-count // threads)), threads)
        return {"rule": rule, "verdict": verdict, **dict(zip(("first", "last", "peak"), out, strict=True))}

    run(job.space.columns(0, 2), 1)
    return [
        Contender("shardmath, generated and compiled", WHOLE, threads, partial(run, threads=threads))
        for threads in sorted({1, CORES})
    ]
