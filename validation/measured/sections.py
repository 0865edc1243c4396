"""A section of docs/validation.md for each table: targets, errors by group, and every row where there are few."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from textwrap import fill

from shardmath.account.judged import FITS, OUT, UNCERTAIN
from validation.measured.case import FIT, GIB, OUT_OF_MEMORY, PEAK, RESERVED, STEADY, Case
from validation.measured.datasets import MIB, Dataset, cases_of
from validation.measured.details import details
from validation.measured.estimates import Estimate, estimate
from validation.measured.metrics import (
    Pair,
    Summary,
    Target,
    confusion,
    not_estimated,
    pairs,
    published_errors,
)
from validation.measured.words import refusals, remarks
from validation.tables import markdown


def section(dataset: Dataset) -> str:
    """Return the section of one table.

    Raises ValueError if a sentence about its rows would not be true.
    """
    cases = cases_of(dataset)
    covered = [case for case in cases if isinstance(estimate(case), Estimate)]
    parts = [f"## {dataset.title}", paragraph(dataset.about),
             f"Table: `tests/data/{dataset.table}`, {len(cases)} runs."]
    if any(case.measured for case in covered):
        parts.append(f"![{dataset.title}: predicted over measured](validation/{dataset.name}.svg)")
    if covered:
        parts += [targets(dataset.targets(covered)), *(by_group(covered, name) for name in dataset.quantities)]
        if any(case.status == OUT_OF_MEMORY for case in cases) or not dataset.quantities:
            parts.append(verdicts(covered))
        parts += map(paragraph, remarks(dataset.name, covered))
        parts += details(dataset.name, covered)
    parts += map(paragraph, refusals(dataset.name, cases))
    parts.append(without_estimate(cases))
    if dataset.listed and covered:
        parts += [every_row(covered, name) for name in dataset.quantities]
    return "\n\n".join(part for part in parts if part)


def targets(goals: Sequence[Target]) -> str:
    """Return the table of goals and of what was reached."""
    if not goals:
        return ""
    return markdown(("target", "asked", "reached", "met"),
                    [(item.words, item.asked, item.reached, "yes" if item.met else "**no**") for item in goals])


def by_group(cases: Iterable[Case], quantity: str) -> str:
    """Return errors by group, with those of the published function beside them where it has any."""
    compared = pairs(cases, quantity)
    groups = list(dict.fromkeys(pair.case.group for pair in compared))
    heads = [quantity, "numbers", "median", "worst", "signed median"]
    if quantity != STEADY:
        heads += ["published: numbers", "median", "worst"]
    lines = [_line(group, [pair for pair in compared if pair.case.group == group], quantity) for group in groups]
    if len(groups) > 1:
        lines.append(_line("all", compared, quantity))
    return markdown(heads, lines) if compared else ""


def verdicts(cases: Iterable[Case]) -> str:
    """Return runs by verdict, by that of the 80 % rule, and by what became of them."""
    every = tuple(cases)
    counts = [confusion(every, name) for name in ("verdict", "rule_80")]
    lines = [(verdict, *(own[verdict, status] for own in counts for status in (FIT, OUT_OF_MEMORY)))
             for verdict in (FITS, UNCERTAIN, OUT)]
    return markdown(("", "verdict: trained", "out of memory", "80 % rule: trained", "out of memory"), lines)


def without_estimate(cases: Iterable[Case]) -> str:
    """Return the runs that have no estimate, by reason."""
    reasons = not_estimated(cases)
    if not reasons:
        return ""
    lines = [(number, reason.replace("|", "\\|")) for reason, number in sorted(reasons.items())]
    return f"{reasons.total()} runs have no estimate.\n\n{markdown(('runs', 'because'), lines)}"


def every_row(cases: Iterable[Case], quantity: str) -> str:
    """Return one line for every measured number of this quantity."""
    lines = [
        (pair.case.id, pair.case.layout, "" if pair.measured.rank is None else pair.measured.rank,
         f"{pair.measured.bytes / GIB:.3f}", f"{pair.predicted / GIB:.3f}", f"{pair.difference / MIB:+,.1f}",
         f"{pair.error:+.2%}", pair.site, _published(pair))
        for pair in pairs(cases, quantity)
    ]
    if not lines:
        return ""
    heads = ("run", "layout", "rank", "measured GiB", "predicted GiB", "difference MiB", "error", "peak at",
             "published GiB")
    return markdown(heads, lines)


def paragraph(text: str) -> str:
    """Text filled to 110 columns."""
    return fill(" ".join(text.split()), 110, break_long_words=False, break_on_hyphens=False)


def _line(group: str, compared: Sequence[Pair], quantity: str) -> tuple[object, ...]:
    if quantity == STEADY:
        signed = [pair.difference / MIB for pair in compared]
        sizes = [abs(number) for number in signed]
        return group, len(sizes), f"{median(sizes):.1f} MiB", f"{max(sizes):.1f} MiB", f"{median(signed):+.1f} MiB"
    own = Summary.of([pair.error for pair in compared])
    cells = [group, own.count, f"{own.median:.2%}", f"{own.worst:.2%}", f"{own.bias:+.2%}"]
    errors = published_errors(compared) if quantity in (PEAK, RESERVED) else []
    if not errors:
        return *cells, 0, "", ""
    other = Summary.of(errors)
    return *cells, other.count, f"{other.median:.2%}", f"{other.worst:.2%}"


def _published(pair: Pair) -> str:
    known = pair.published is not None and pair.measured.rank in (0, None)
    return f"{float(pair.published or 0) / GIB:.3f}" if known else ""
