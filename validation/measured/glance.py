"""All tables at a glance: how many numbers, how far off, how many in the range that is stated, and what ran out."""

from __future__ import annotations

from collections.abc import Sequence

from shardmath.account.judged import FITS
from validation.measured.case import FIT, GIB, OUT_OF_MEMORY, PROCESS, RESERVED
from validation.measured.datasets import DATASETS, Dataset, cases_of
from validation.measured.estimates import Estimate, estimate
from validation.measured.metrics import Pair, Summary, confusion, not_estimated, pairs
from validation.tables import markdown

_ABOUT = """## All tables at a glance

*Refused* are runs without an estimate. *In the range*: measured numbers inside of the range that is stated for them,
which allocated memory has none of. That of reserved memory is the range of the
[formula](#reserved-memory-by-a-formula), where the fullest rank was measured. *Fits* are runs of which `explain` says
so, and how many of these ran out of memory: the worst that there is. What nanotron's runs crashed for is not recorded.
"""
_HEADS = ("table", "quantity", "runs", "refused", "numbers", "median", "worst", "in the range", "fits",
          "of them failed")


def section() -> str:
    """Return the table of all tables."""
    return f"{_ABOUT}\n{markdown(_HEADS, [line for dataset in DATASETS for line in lines(dataset)])}"


def lines(dataset: Dataset) -> list[tuple[object, ...]]:
    """Return a line for every quantity of a table, or one for a table that has outcomes alone."""
    cases = cases_of(dataset)
    refused, counts = not_estimated(cases).total(), confusion(cases, "verdict")
    failed = counts[FITS, OUT_OF_MEMORY]
    outcome = (counts[FITS, FIT] + failed, failed)
    made: list[tuple[object, ...]] = []
    for quantity in dataset.quantities:
        known = pairs(cases, quantity)
        if known:
            errors = Summary.of([pair.error for pair in known])
            made.append((dataset.title, quantity, len(cases), refused, errors.count, f"{errors.median:.2%}",
                          f"{errors.worst:.1%}", _inside(known, quantity), *outcome))
    return made or [(dataset.title, "fit or not", len(cases), refused, "", "", "", "", *outcome)]


def _inside(known: Sequence[Pair], quantity: str) -> str:
    """Count the measured numbers that lie in their range; figures of a process are rounded to a whole GiB."""
    judged = [inside for pair in known if (inside := _is_inside(pair, quantity)) is not None]
    return f"{sum(judged)} of {len(judged)}" if judged else ""


def _is_inside(pair: Pair, quantity: str) -> bool | None:
    said = estimate(pair.case)
    assert isinstance(said, Estimate)
    is_fullest = pair.measured.rank is None or said.peaks[pair.measured.rank] == max(said.peaks)
    if quantity == PROCESS:
        low, high = said.range
        return low - GIB // 2 <= pair.measured.bytes <= high + GIB // 2
    if quantity == RESERVED and is_fullest:
        (_, low), (_, high) = said.ends
        return low <= pair.measured.bytes <= high
    return None
