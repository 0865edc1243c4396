"""Ways to evaluate columns of layouts, each with what it computes and on how many threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib import import_module

import numpy as np

from benchmarks.data import Columns, Job, Outputs
from shardmath.compiler.placing import outputs

#: Answers of contenders: all that the compiled evaluator writes (first broken rule, verdict, both end ranks
#: and the peak), or the peak without rules.
WHOLE, PEAK = "whole answer", "peak"
#: Threads of a contender on all cores.
CORES = os.cpu_count() or 1


#: The modules that make contenders, in the order of the tables; the first one is the compiled evaluator.
FAMILIES = ("compiled", "in_c", "same_answer", "lambdified", "jitted", "one_expression", "plain")


class LeftOutError(Exception):
    """A package of a contender is not installed: the run goes on without it, and says so."""


@dataclass(frozen=True)
class Contender:
    """One way to evaluate layouts, ready to run: compiled, lambdified, parsed.

    ``run`` takes columns and returns what it computes by name. ``sample`` is the number of layouts that it is
    run on where all would take too long. ``fill``, where there is one, writes into outputs that exist already.
    ``other`` says that it is another formula, whose answer has another name. ``kind`` is the type of its columns.
    """

    name: str
    computes: str
    threads: int
    run: Callable[[Columns], Outputs]
    sample: int | None = None
    fill: Callable[[Columns, Whole], None] | None = None
    other: bool = False
    family: str = ""
    kind: str = "float64"

    @property
    def key(self) -> tuple[str, str, int]:
        """Return a contender's identity: name, what it computes, threads."""
        return self.name, self.computes, self.threads


def family(name: str, job: Job) -> list[Contender]:
    """Return the contenders of one module, ready to run; only what they need is imported.

    Raises LeftOutError if that is not installed.
    """
    made: list[Contender] = import_module(f"{__name__}.{name}").contenders(job)
    return [replace(rival, family=name) for rival in made]


def filling(name: str, threads: int, fill: Callable[[Columns, Whole], None], kind: str = "float64") -> Contender:
    """Return a contender for the whole answer that fills outputs: its ``run`` allocates them each time."""

    def run(columns: Columns) -> Outputs:
        answer = Whole(len(columns["data_parallel"]))
        fill(columns, answer)
        return answer

    return Contender(name, WHOLE, threads, run, fill=fill, kind=kind)


def converted(columns: Columns, kind: str) -> Columns:
    """Columns of another type, as a table may have them: those that are of it already stay where they are."""
    return {name: values.astype(kind, copy=False) for name, values in columns.items()}


class Whole(Outputs):
    """Memory for the whole answer of ``count`` layouts; the sizes are rows of ``out``, as the evaluator fills it."""

    def __init__(self, count: int) -> None:
        super().__init__(rule=np.empty(count, np.int8), verdict=np.empty(count, np.int8))
        self.out = outputs(3, count)
        self.update(zip(("first", "last", "peak"), self.out[:, :count], strict=True))


def in_blocks(work: Callable[[int, int], None], count: int, block: int, threads: int) -> None:
    """Call ``work(start, stop)`` for every block of ``block`` rows, on ``threads`` threads."""
    if threads == 1:
        for start, stop in _blocks(count, block):
            work(start, stop)
        return
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(work, start, stop) for start, stop in _blocks(count, block)]:
            done.result()


def _blocks(count: int, block: int) -> Iterator[tuple[int, int]]:
    for start in range(0, count, block):
        yield start, min(start + block, count)
