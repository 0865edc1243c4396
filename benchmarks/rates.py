"""Check that all contenders agree, then time them in turn on the same layouts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter

import numpy as np

from benchmarks.contenders import FAMILIES, PEAK, WHOLE, Contender, LeftOutError, converted, family
from benchmarks.data import Batch, Columns, Job, Outputs

#: Outputs that are defined for every layout; the others are bytes, which an illegal layout has not.
_EVERYWHERE = ("rule", "verdict")
#: The contenders on one thread that ratios of rates are relative to: lambdify as one would write it, the
#: fastest one for the peak alone, and the one for the whole answer.
REFERENCES = {
    "columns": ("SymPy lambdify, cse=True, columns", PEAK),
    "blocks": ("SymPy lambdify, cse=True, blocks", PEAK),
    "whole": ("SymPy lambdify, cse=True, blocks", WHOLE),
}


@dataclass(frozen=True)
class Rate:
    """How long one contender took for ``rows`` layouts, in seconds; ``ratios`` are of rates.

    ``memory`` is the largest resident set, in MiB, of a fresh process that evaluates them; None if not measured.
    """

    batch: str
    contender: str
    computes: str
    threads: int
    rows: int
    best: float
    median: float
    rate: float
    ratios: Mapping[str, float]
    memory: float | None = None

    @property
    def key(self) -> tuple[str, str, int]:
        """The key of the contender."""
        return self.contender, self.computes, self.threads


class DisagreementError(Exception):
    """Two contenders gave different answers for a layout."""


def contenders(job: Job, sample: int) -> tuple[list[Contender], list[str]]:
    """Return every contender, ready to run, the compiled evaluator first; and those left out, with the reason."""
    rivals: list[Contender] = []
    left_out: list[str] = []
    for name in FAMILIES:
        try:
            rivals += family(name, job)
        except LeftOutError as missing:
            left_out.append(str(missing))
    return [replace(rival, sample=rival.sample and sample) for rival in rivals], left_out


def check(rivals: list[Contender], batch: Batch) -> None:
    """Compare every output with the first contender's: rules and verdicts everywhere, bytes where legal.

    Raises DisagreementError unless they are equal, to the last byte.
    """
    expected = rivals[0].run(batch.columns)
    for rival in (rival for rival in rivals[1:] if not rival.other):
        part = _part(rival, batch)
        for name, values in rival.run(part.columns).items():
            wanted, legal = expected[name][: len(part)], expected["rule"][: len(part)] == 0
            differs = (values != wanted) & (legal | (name in _EVERYWHERE))
            if differs.any():
                row = int(np.flatnonzero(differs)[0])
                layout = {key: int(column[row]) for key, column in part.columns.items()}
                pair = f"{values[row]} instead of {wanted[row]}"
                raise DisagreementError(f"{rival.name}: {name} = {pair} for {layout}")


def measure(rivals: list[Contender], batch: Batch, repeats: int) -> list[Rate]:
    """Time every contender ``repeats`` times, in turn, so that what else the machine does meets them all.

    Each timed run follows one that is not timed: caches and freed memory are then its own, not its rival's.
    """
    parts = [_part(rival, batch) for rival in rivals]
    seconds: list[list[float]] = [[] for _ in rivals]
    for _ in range(repeats):
        for rival, part, taken in zip(rivals, parts, seconds, strict=True):
            rival.run(part.columns)
            taken.append(_seconds(rival.run, part))
    rates = [len(part) / min(taken) for part, taken in zip(parts, seconds, strict=True)]
    references = {
        key: next(rate for rival, rate in zip(rivals, rates, strict=True)
                  if rival.key == (*reference, 1))
        for key, reference in REFERENCES.items()
    }
    return [
        Rate(batch.name, rival.name, rival.computes, rival.threads, len(part), min(taken), median(taken),
             rate, {key: rate / reference for key, reference in references.items()})
        for rival, part, taken, rate in zip(rivals, parts, seconds, rates, strict=True)
    ]


def _part(rival: Contender, batch: Batch) -> Batch:
    part = batch if rival.sample is None else batch.head(rival.sample)
    return replace(part, columns=converted(part.columns, rival.kind))


def _seconds(run: Callable[[Columns], Outputs], part: Batch) -> float:
    start = perf_counter()
    run(part.columns)
    return perf_counter() - start
