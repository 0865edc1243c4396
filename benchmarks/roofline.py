"""Measured limits of the machine, copies and multiply-adds, and the share of them that evaluators reach."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from benchmarks.contenders import CORES, Contender, LeftOutError, Whole, converted
from benchmarks.data import Batch, Job
from benchmarks.machine import widths
from benchmarks.native import IEEE, build, render
from shardmath.compiler.engine import Column

#: Independent chains of multiply-adds: two units with a latency of four cycles need eight, and sixteen registers
#: hold twelve with the factor and the addend.
CHAINS = 12
#: Bytes to copy, and rounds of multiply-adds, for every layout of a run.
_COPIED, _ROUNDS = 64, 4


@dataclass(frozen=True)
class Limit:
    """The most of something that was measured; ``rate`` is in ``unit`` per second."""

    name: str
    threads: int
    rate: float
    unit: str


@dataclass(frozen=True)
class Stream:
    """A contender between columns and outputs that lie in memory.

    ``rate`` is in layouts per second, ``size`` has the bytes of one layout in columns and outputs, ``share`` is
    the part that they make of the fastest copy on as many threads.
    """

    contender: str
    threads: int
    rate: float
    size: int
    share: float

    @property
    def bandwidth(self) -> float:
        """Bytes per second."""
        return self.rate * self.size


@dataclass(frozen=True)
class Roofline:
    """The limits of the machine, what evaluators reach of them, and a line for each limit that is not measured."""

    rows: int
    limits: Sequence[Limit]
    streams: Sequence[Stream]
    left_out: Sequence[str]


def roofline(job: Job, rivals: Sequence[Contender], batch: Batch, rows: int, repeats: int) -> Roofline:
    """Measure with ``rows`` layouts, and with copies and counts of multiply-adds that take about as long."""
    limits, left_out = copies(_COPIED * rows, repeats), []
    reached = streams(job, rivals, batch, rows, limits, repeats)
    try:
        limits += multiply_adds(widths(), _ROUNDS * rows, repeats)
    except LeftOutError as missing:
        left_out.append(f"fused multiply-add, {missing}")
    return Roofline(rows, limits, reached, left_out)


def copies(size: int, repeats: int) -> list[Limit]:
    """Copies of ``size`` bytes by NumPy and by a plain loop; every byte counts twice, as it is read and written."""
    source, target = np.ones(size // 8), np.zeros(size // 8)
    streams = []
    for name, copy in (("copy, NumPy", np.copyto), ("copy with a factor, Numba", _plain_copy())):

        def work(part: int, parts: int, copy: Callable[[Column, Column], None] = copy) -> None:
            rows = slice(len(source) * part // parts, len(source) * (part + 1) // parts)
            copy(target[rows], source[rows])

        streams += [
            Limit(name, threads, 2 * source.nbytes / _best(work, threads, repeats), "B")
            for threads in sorted({1, CORES})
        ]
    return streams


def _plain_copy() -> Callable[[Column, Column], None]:
    """Return a loop of plain stores: without the factor the compiler would call the library's copy."""
    from numba import njit

    @njit(nogil=True)  # type: ignore[untyped-decorator]
    def copy(target: Column, source: Column) -> None:
        for row in range(len(source)):
            target[row] = 3.0 * source[row]

    compiled: Callable[[Column, Column], None] = copy
    return compiled


def multiply_adds(widths: Sequence[int], rounds: int, repeats: int) -> list[Limit]:
    """Fused multiply-adds in float64, for vectors of so many bits; each counts as two operations.

    Raises LeftOutError without gcc.
    """
    rates = []
    for bits in widths:
        function = build(render("multiply_add.c", bits=bits, chains=CHAINS), IEEE).multiply_add
        function.restype = ctypes.c_double

        def work(part: int, parts: int, function: Callable[..., float] = function) -> None:
            function(ctypes.c_int64(rounds), ctypes.c_double(0.5), ctypes.c_double(0.5))

        operations = 2 * CHAINS * (bits // 64) * rounds
        for threads in sorted({1, CORES}):
            rate = threads * operations / _best(work, threads, repeats)
            rates.append(Limit(f"fused multiply-add, {bits} bits", threads, rate, "FLOP"))
    return rates


def streams(
    job: Job, rivals: Sequence[Contender], batch: Batch, rows: int, limits: Sequence[Limit], repeats: int
) -> list[Stream]:
    """Return the contenders that write into given outputs, on ``rows`` layouts: ``batch`` again and again."""
    plain = {name: np.resize(batch.columns[name], rows) for name in job.evaluator.kernel.COLUMNS}
    outputs = Whole(rows)
    fillers = [rival for rival in rivals if rival.fill is not None]
    columns = {kind: converted(plain, kind) for kind in {rival.kind for rival in fillers}}
    seconds: list[list[float]] = [[] for _ in fillers]
    for _ in range(repeats):
        for rival, taken in zip(fillers, seconds, strict=True):
            assert rival.fill is not None
            start = perf_counter()
            rival.fill(columns[rival.kind], outputs)
            taken.append(perf_counter() - start)
    sizes = [sum(array.itemsize for array in (*columns[rival.kind].values(), *outputs.values())) for rival in fillers]
    rates = [rows / min(taken) for taken in seconds]
    return [
        Stream(rival.name, rival.threads, rate, size, rate * size / _copied(limits, rival.threads))
        for rival, rate, size in zip(fillers, rates, sizes, strict=True)
    ]


def _copied(limits: Sequence[Limit], threads: int) -> float:
    return max(limit.rate for limit in limits if limit.unit == "B" and limit.threads == threads)


def _best(work: Callable[[int, int], None], threads: int, repeats: int) -> float:
    """Get the shortest time in which ``threads`` threads do a part of ``work`` each, after a run that is not timed."""
    with ThreadPoolExecutor(threads) as pool:
        def run() -> float:
            start = perf_counter()
            list(pool.map(work, range(threads), [threads] * threads))
            return perf_counter() - start

        run()
        return min(run() for _ in range(repeats))
