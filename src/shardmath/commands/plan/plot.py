"""The plan of a training: days, money and gains of more GPUs against their number, one curve for each kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from shardmath.commands.plan.answers import Band, Offer, Plan
from shardmath.commands.plan.report import short
from shardmath.errors import InputError
from shardmath.plots.picture import Panel, Picture, Table
from shardmath.plots.style import INK, MARKERS

_HEIGHT = 1.9
#: A limit so many times above the curves is left out, which would be flat.
_FAR = 2
#: A panel: its label, its numbers as (low, middle, high), and the plan's limit.
Curve = tuple[str, Callable[[Offer], Band | None], Callable[[Plan], float | None]]


def _kept(offer: Offer) -> Band | None:
    return None if offer.gain is None else Band(*(100 * offer.gain.kept,) * 3)


def _per_watt(offer: Offer) -> Band | None:
    return None if offer.gain is None or offer.gain.per_watt is None else Band(*(offer.gain.per_watt,) * 3)


_CURVES: tuple[Curve, ...] = (
    ("days", lambda offer: offer.days, lambda plan: plan.deadline_days),
    ("cost", lambda offer: offer.cost, lambda plan: plan.budget),
    ("energy, kWh", lambda offer: offer.energy_kwh, lambda plan: None),
    ("gain of added GPUs, %", _kept, lambda plan: None),
    ("tokens/J of added GPUs", _per_watt, lambda plan: None),
)


def picture(plan: Plan) -> Picture:
    """Return one panel for each amount that is known, with bands and the limits that were asked for.

    Raises InputError where nothing fits on any of the GPUs.
    """
    offers = [offer for offer in plan.offers if offer.phases]
    if not offers:
        raise InputError("plot", plan.model.name, "must have something to show: nothing fits on any of the GPUs")
    panels, shown = [], []
    for label, band, limit in _CURVES:
        points = [(offer.gpu, offer.num_gpus, numbers) for offer in offers if (numbers := band(offer)) is not None]
        if points:
            panels.append(Panel(partial(_draw, points=points, label=label, limit=limit(plan)), _HEIGHT,
                                _said(points, label)))
            shown.append((label, band))
    rows = [[f"{offer.num_gpus:,} {offer.gpu}", *(_text(band(offer)) for _, band in shown)] for offer in offers]
    return Picture(
        f"{plan.model.name}, {short(plan.tokens)} tokens", f"{short(plan.batch_tokens)} tokens in a step",
        tuple(panels),
        (Table("Resources of the training", ("GPUs", *(label for label, _ in shown)), rows),),
    )


def _text(band: Band | None) -> str:
    return "" if band is None else short(band.middle)


def _said(points: Sequence[tuple[str, int, Band]], label: str) -> str:
    kinds = dict.fromkeys(kind for kind, *_ in points)
    ends = []
    for kind in kinds:
        own = [(size, band) for name, size, band in points if name == kind]
        ends.append(f"{kind} {short(own[0][1].middle)} at {own[0][0]:,} GPUs, {short(own[-1][1].middle)} at"
                    f" {own[-1][0]:,}")
    return f"{label[0].upper()}{label[1:]} against the number of GPUs: {'; '.join(ends)}."


def _draw(part: Any, points: Sequence[tuple[str, int, Band]], label: str, limit: float | None) -> None:
    """Draw a line with its band for each kind over the numbers of GPUs; a dashed line is the plan's limit."""
    from matplotlib.ticker import FuncFormatter, NullLocator

    axes = part.add_subplot()
    for marker, kind in zip(MARKERS * len(points), dict.fromkeys(kind for kind, *_ in points), strict=False):
        own = [(size, band) for name, size, band in points if name == kind]
        sizes = [size for size, _ in own]
        (line,) = axes.plot(sizes, [band.middle for _, band in own], marker=marker, markersize=3.5, label=kind)
        axes.fill_between(sizes, [band.low for _, band in own], [band.high for _, band in own], alpha=0.15, linewidth=0,
                          color=line.get_color())
    top = 1.12 * max(band.high for *_, band in points)
    if limit is not None and limit <= _FAR * top:
        axes.axhline(limit, color=INK, linestyle="--", linewidth=0.7)
        top = max(top, 1.12 * limit)
    sizes = sorted({size for _, size, _ in points})
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes], rotation=45 if len(sizes) > 6 else 0)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_ylim(0, top or 1)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda number, _: short(number)))
    axes.margins(x=0.08)
    axes.set(xlabel="GPUs", ylabel=label)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend()
