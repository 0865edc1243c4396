"""A fit as bars: how far each symbol can go from its value as asked, and the peaks there and one legal value on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardmath.commands.fit.answers import Bound, FitAnswer, Fits
from shardmath.errors import InputError
from shardmath.generated.definitions import VERDICTS
from shardmath.plots.bars import draw_rows, name_rows
from shardmath.plots.picture import Panel, Picture, Table
from shardmath.plots.style import INK, SMALL, STRONG, plain_logarithmic, three_digits
from shardmath.reports.tables import gib

GIB = 2**30
#: Inches of one symbol, and of what stands around all of them.
_ROW, _AROUND = 0.3, 0.75
#: Points of the names of rows.
_NAMES = 7
_TITLES = ("symbol", "solved for", "now", "fits", "peak GiB", "next", "peak GiB")
_FITS, _NOT = VERDICTS[0][0], VERDICTS[-1][0]


def picture(fits: Fits) -> Picture:
    """Return the values that fit as multiples of those that were asked, and the peaks on both sides of the limit.

    Raises InputError where no value of any symbol fits.
    """
    solved = [item for item in fits.answers if item.at is not None]
    if not solved:
        raise InputError("plot", fits.model, "must have something to show: no value fits")
    peaks = [item for item in solved if item.unit != "bytes"]
    panels = [Panel(lambda part: _draw_factors(part, fits), _AROUND + _ROW * len(fits.answers),
                    "Values that fit, over those that were asked: "
                    + "; ".join(f"{item.symbol} {_said(fits, item)}" for item in fits.answers) + ".")]
    if peaks:
        panels.append(Panel(lambda part: _draw_peaks(part, fits, peaks), _AROUND + _ROW * len(peaks),
                            f"Peaks at these values and at the next legal ones; up to {gib(fits.limit)} GiB fits."))
    return Picture(
        f"{fits.model} on {fits.gpu} ({fits.gpu_memory / GIB:g} GiB)",
        f"{fits.implementation}: a peak of at most {gib(fits.limit)} GiB; as asked it has {gib(fits.peak)} GiB",
        tuple(panels), (Table("What fits", _TITLES, [_row(fits, item) for item in fits.answers]),))


def _said(fits: Fits, item: FitAnswer) -> str:
    return f"{_number(item, fits.now(item.symbol))} -> {'none' if item.at is None else _number(item, item.at.value)}"


def _number(item: FitAnswer, value: int) -> str:
    return f"{gib(value)} GiB" if item.unit == "bytes" else f"{value:,}"


def _row(fits: Fits, item: FitAnswer) -> list[str]:
    def of(bound: Bound | None) -> list[str]:
        return ["none", ""] if bound is None else [_number(item, bound.value), gib(bound.peak)]

    return [item.symbol, "largest" if item.largest else "smallest", _number(item, fits.now(item.symbol)),
            *of(item.at), *of(item.beyond)]


def _draw_factors(part: Any, fits: Fits) -> None:
    """Draw a bar from 1 to the multiple that fits, with both values beside it."""
    axes = part.add_subplot()
    solved = fits.answers
    factors = [1.0 if item.at is None else item.at.value / fits.now(item.symbol) for item in solved]
    least, most = min(1.0, *factors), max(1.0, *factors)
    room = (most / least) ** 0.5 if most > least else 2
    axes.set_xscale("log")
    draw_rows(axes, [item.symbol for item in solved], factors, [_FITS] * len(solved), _NAMES, start=1)
    for place, (factor, item) in enumerate(zip(factors, solved, strict=True)):
        axes.annotate(_said(fits, item).replace("->", "→"), (max(1.0, factor), place), (3, 0),
                      textcoords="offset points", va="center", fontsize=SMALL)
    axes.axvline(1, color=INK, linewidth=0.7)
    axes.set_xlim(least / 1.3, most * max(4, room))
    plain_logarithmic(axes.xaxis, *axes.get_xlim())
    axes.set_xlabel("what fits, as a multiple of what was asked")


def _draw_peaks(part: Any, fits: Fits, solved: Sequence[FitAnswer]) -> None:
    """Draw the peak of each value that fits and of the next one, with a line at what fits."""
    axes = part.add_subplot()
    rows = [(place, bound, item) for place, item in enumerate(solved) for bound in (item.at, item.beyond)]
    for verdict, label in ((_FITS, "fits"), (_NOT, "next legal value")):
        own = [(place, bound) for place, bound, item in rows
               if bound is not None and (bound is item.at) == (verdict == _FITS)]
        if not own:
            continue
        shift = -0.19 if verdict == _FITS else 0.19
        axes.barh([place + shift for place, _ in own], [bound.peak / GIB for _, bound in own], 0.34, linewidth=0,
                  color=STRONG[verdict], label=label)
        for place, bound in own:
            axes.annotate(three_digits(bound.peak / GIB), (bound.peak / GIB, place + shift), (2, 0),
                          textcoords="offset points", va="center", fontsize=5.5)
    axes.axvline(float(fits.limit) / GIB, color=INK, linewidth=0.7, linestyle="--")
    axes.set_xlim(0, 1.12 * max(float(fits.limit), *(bound.peak for _, bound, _ in rows if bound)) / GIB)
    name_rows(axes, [item.symbol for item in solved], _NAMES)
    axes.set_xlabel("peak, GiB; dashed: the most that fits")
    part.legend(loc="outside lower center", ncols=2, handlelength=1, columnspacing=1)
