"""Gaps that need a word: rows that are far off, with their cause, or with what was tried where none is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from validation.measured.case import Case
from validation.measured.estimates import Estimate, estimate, other_estimate
from validation.measured.metrics import Pair, pairs
from validation.tables import markdown

#: Errors above this need a cause, or the words that none is known.
FAR = 0.03
UNKNOWN = "cause not known"
_HEADS = ("run", "error", "cause", "tried")


def table(cases: Sequence[Case], quantity: str) -> list[str]:
    """Return a sentence and the table of all rows that are far off; nothing where there is none.

    Raises ValueError for such a row without a cause of which nothing was tried.
    """
    return of_pairs(pairs(cases, quantity))


def of_pairs(every: Sequence[Pair]) -> list[str]:
    """Return the same of some numbers."""
    far = [pair for pair in every if abs(pair.error) > FAR]
    unexplained = sum(not pair.case.causes for pair in far)
    if not far:
        return []
    return [f"{len(far)} of {len(every)} are more than {FAR:.0%} off, {unexplained} of them without a known cause:",
            markdown(_HEADS, list(map(_line, far)))]


def _line(pair: Pair) -> tuple[str, ...]:
    errors = [(name, error) for name in pair.case.others if (error := error_of(pair, name)) is not None]
    if not errors and not pair.case.causes:
        raise ValueError(f"{pair.case.id}: neither a cause nor another reading of the row")
    rank = "" if pair.measured.rank is None else f", rank {pair.measured.rank}"
    return (f"{pair.case.id}{rank}", f"{pair.error:+.1%}", "; ".join(pair.case.causes) or UNKNOWN,
            "; ".join(f"{name}: {error:+.1%}" for name, error in errors))


def error_of(pair: Pair, name: str) -> float | None:
    """Return the error with another reading of the row, None where the reading has no estimate.

    A replay of the row moves by as much as its formula does.
    """
    said, own = other_estimate(pair.case, name), estimate(pair.case)
    if not isinstance(said, Estimate) or not isinstance(own, Estimate):
        return None
    moved = said.of(pair.measured) - replace(own, reserved=None).of(pair.measured)
    return (pair.predicted + moved) / pair.measured.bytes - 1
