"""The generated evaluator for columns of layouts, compiled by Numba; it releases the interpreter lock."""

from __future__ import annotations

from functools import partial

from benchmarks.contenders import CORES, Contender, Whole, converted, filling, in_blocks
from benchmarks.data import Columns, Job
from shardmath.compiler.engine import CHUNK

#: Columns as a sweep makes them, and as narrow as a table may have them.
KINDS = {"shardmath, generated and compiled": "float64", "shardmath, columns of 16 bits": "uint16"}


def contenders(job: Job) -> list[Contender]:
    """Return one thread and all cores. The evaluator is compiled, or loaded from its cache, before they run."""
    kernel, scalars = job.evaluator.kernel, job.scalars

    def fill(columns: Columns, outputs: Whole, threads: int) -> None:
        inputs = [columns[name] for name in kernel.COLUMNS]
        count = len(inputs[0])

        def evaluate(start: int, stop: int) -> None:
            kernel.evaluate(start, stop, *scalars, *inputs, outputs["rule"], outputs["verdict"], outputs.out)

        shares = threads * -(-count // (threads * CHUNK))  # as many for each thread, of whole lines of the cache
        in_blocks(evaluate, count, -(-count // (shares * 8)) * 8, threads)

    flat = [
        filling(name, threads, partial(fill, threads=threads), kind)
        for name, kind in KINDS.items() for threads in sorted({1, CORES})
    ]
    for rival in flat:
        rival.run(converted(job.space.columns(0, 2), rival.kind))
    return flat
