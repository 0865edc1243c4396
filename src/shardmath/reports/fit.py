"""A configuration asked backwards, in the terminal: answers, what binds, and the inverted formulas."""

from __future__ import annotations

from shardmath.inverse import Answer, Fits
from shardmath.inverse.answers import Bound
from shardmath.reports.tables import console, gib, table


def show(found: Fits) -> None:
    """Print a line for each answer, and for a single one the formula too."""
    out = console()
    out.print(f"{found.model} on {found.gpu} ({gib(found.gpu_memory)} GiB), {found.implementation}: at most"
              f" {float(found.share):.6g} of the memory, {gib(found.limit)} GiB", markup=False)
    titles = ("solved for", "", "now", "fits", "peak", "rank", "moment", "next", "peak", "how")
    rows = [_row(found, answer) for answer in found.answers]
    out.print(table(titles, rows, right=(2, 3, 4, 5, 7, 8)))
    if len(found.answers) == 1:
        (answer,) = found.answers
        for line in _details(answer):
            out.print(line, markup=False, soft_wrap=True)


def _row(found: Fits, answer: Answer) -> list[str]:
    way = "largest" if answer.largest else "smallest"
    fits = "none" if answer.at is None else _number(answer, answer.at.value)
    start = [answer.symbol, way, _number(answer, found.now(answer.symbol)), fits]
    at = ["", "", ""] if answer.at is None else [gib(answer.at.peak), str(answer.at.rank), answer.at.moment]
    beyond = ["", ""] if answer.beyond is None else [_number(answer, answer.beyond.value), gib(answer.beyond.peak)]
    return [*start, *at, *beyond, answer.method]


def _number(answer: Answer, value: int) -> str:
    return f"{gib(value)} GiB" if answer.unit == "bytes" else f"{value:,}"


def _details(answer: Answer) -> list[str]:
    lines = []
    for bound, what in ((answer.at, "At the answer"), (answer.beyond, "Beyond it")):
        if bound is not None:
            lines.append(_along(answer, bound, what))
    return [line for line in lines if line]


def _along(answer: Answer, bound: Bound, what: str) -> str:
    along = {name: value for name, value in bound.values.items() if name != answer.symbol}
    return f"{what}: {', '.join(f'{name} = {value:,}' for name, value in along.items())}" if along else ""
