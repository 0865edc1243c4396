"""The generated evaluator for columns of layouts, compiled by Numba; it releases the interpreter lock."""

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
        first, last, peak = (np.zeros(count) for _ in range(3))
        inputs = [columns[name] for name in kernel.COLUMNS]

        def evaluate(start: int, stop: int) -> None:
            kernel.evaluate(start, stop, *scalars, *inputs, rule, verdict, first, last, peak)

        in_blocks(evaluate, count, min(CHUNK, -(-count // threads)), threads)
        return {"rule": rule, "verdict": verdict, "first": first, "last": last, "peak": peak}

    run(job.space.columns(0, 2), 1)
    return [
        Contender("shardmath, generated and compiled", WHOLE, threads, partial(run, threads=threads))
        for threads in sorted({1, CORES})
    ]
