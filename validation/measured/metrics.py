"""Errors of predictions and counts of verdicts, and whether the figures asked for are reached."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import median

from shardmath.account.judged import FITS, OUT
from validation.measured.case import FIT, Case, Measured
from validation.measured.estimates import Estimate, estimate


@dataclass(frozen=True)
class Pair:
    """One measured number beside the prediction of it, in bytes."""

    case: Case
    measured: Measured
    predicted: int
    published: Fraction | None
    site: str

    @property
    def error(self) -> float:
        """Predicted minus measured, as a share of the measured."""
        return self.predicted / self.measured.bytes - 1

    @property
    def difference(self) -> int:
        """Predicted minus measured, in bytes."""
        return self.predicted - self.measured.bytes


@dataclass(frozen=True)
class Summary:
    """How far predictions are from measurements: shares of the measured, signs dropped but for ``bias``."""

    count: int
    median: float
    worst: float
    bias: float

    @classmethod
    def of(cls, errors: Sequence[float]) -> Summary:
        """Summarise errors. Raises ValueError for none."""
        if not errors:
            raise ValueError("no errors to summarise")
        sizes = [abs(error) for error in errors]
        return cls(len(errors), median(sizes), max(sizes), median(errors))


@dataclass(frozen=True)
class Target:
    """A figure that was asked for, what was reached, and whether that will do."""

    words: str
    asked: str
    reached: str
    met: bool


def pairs(cases: Iterable[Case], quantity: str) -> tuple[Pair, ...]:
    """Return every measured number of this quantity that has a prediction."""
    compared = []
    for case in cases:
        said = estimate(case)
        if isinstance(said, Estimate):
            compared += [_pair(case, measured, said) for measured in case.measured if measured.quantity == quantity]
    return tuple(compared)


def published_errors(compared: Iterable[Pair]) -> list[float]:
    """Return errors of the published function where it has an estimate and its rank, the first, was measured."""
    return [float(pair.published / pair.measured.bytes) - 1 for pair in compared
            if pair.published is not None and pair.measured.rank in (0, None)]


def not_estimated(cases: Iterable[Case]) -> Counter[str]:
    """Count the cases without an estimate, by reason."""
    said = ((case, estimate(case)) for case in cases)
    return Counter(answer for _, answer in said if isinstance(answer, str))


def confusion(cases: Iterable[Case], verdict: str = "rule_80") -> Counter[tuple[str, str]]:
    """Return runs by one of their verdicts and status, without the cases that have no estimate."""
    counts: Counter[tuple[str, str]] = Counter()
    for case in cases:
        said = estimate(case)
        if isinstance(said, Estimate):
            counts[getattr(said, verdict), case.status] += 1
    return counts


def right_by_rule(counts: Counter[tuple[str, str]]) -> float:
    """Share of runs that went as the rule says, where whatever is not said to fit counts as out of memory.

    Raises ValueError for no runs.
    """
    if not counts.total():
        raise ValueError("no runs to count")
    return sum(number for (verdict, status), number in counts.items()
               if (verdict == FITS) == (status == FIT)) / counts.total()


def contradicted(cases: Iterable[Case]) -> tuple[Case, ...]:
    """Return runs that contradict the 80 % rule: said to fit without fitting, or said to be too large and trained."""
    wrong = []
    for case in cases:
        said = estimate(case)
        if isinstance(said, Estimate) and said.rule_80 in ((OUT,) if case.status == FIT else (FITS,)):
            wrong.append(case)
    return tuple(wrong)


def at_most(words: str, errors: Sequence[float], middle: float, worst: float | None = None) -> Target:
    """Return the target that the median error, and the worst if given, are at most so large."""
    summary = Summary.of(errors)
    asked, reached = f"median {middle:.1%}", f"median {summary.median:.2%}"
    met = summary.median <= middle
    if worst is not None:
        asked, reached = f"{asked}, worst {worst:.1%}", f"{reached}, worst {summary.worst:.2%}"
        met = met and summary.worst <= worst
    return Target(words, asked, reached, met)


def share_within(words: str, differences: Sequence[int], limit: int, share: float) -> Target:
    """Return the target that so large a share of differences is at most ``limit`` bytes. Raises ValueError for none."""
    if not differences:
        raise ValueError("no differences to count")
    inside = sum(abs(number) <= limit for number in differences) / len(differences)
    return Target(words, f"{share:.0%} within {limit / 2**20:.0f} MiB", f"{inside:.0%}", inside >= share)


def share_near(words: str, errors: Sequence[float], limit: float, share: float) -> Target:
    """Return the target that so large a share of errors is at most ``limit``. Raises ValueError for none."""
    if not errors:
        raise ValueError("no errors to count")
    inside = sum(abs(error) <= limit for error in errors) / len(errors)
    return Target(words, f"{share:.0%} within {limit:.0%}", f"{inside:.1%}", inside >= share)


def _pair(case: Case, measured: Measured, said: Estimate) -> Pair:
    rank = measured.rank if measured.rank is not None else said.peaks.index(max(said.peaks))
    return Pair(case, measured, said.of(measured), said.published, said.sites[rank])
