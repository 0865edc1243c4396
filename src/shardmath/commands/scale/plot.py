"""A model over many GPUs: throughput of a GPU, utilisation and energy, against the number of GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from shardmath.commands.scale import Point, Scaling
from shardmath.errors import InputError
from shardmath.plots.picture import Panel, Picture, Table
from shardmath.plots.style import INK, short
from shardmath.reports.tables import gib

_HEIGHT = 1.9


def picture(scaling: Scaling) -> Picture:
    """Return one curve for each rate, from 0 on, with the layout where it changes.

    Raises InputError where nothing fits at any size.
    """
    points = [point for point in scaling.points if point.time is not None]
    if not points:
        raise InputError("plot", scaling.model.name, "must have something to show: nothing fits at any number of GPUs")
    rates = {
        "tokens/s of a GPU": [point.tokens_per_second_per_gpu for point in points],
        "MFU, %": [100 * point.time.mfu for point in points if point.time is not None],
    }
    if scaling.cluster.gpu.power_watts:
        rates["tokens/J"] = [point.tokens_per_joule for point in points]
    panels = tuple(
        Panel(partial(_draw, points=points, label=label, values=values), _HEIGHT, _said(points, label, values))
        for label, values in rates.items()
    )
    rows = [
        [f"{point.num_gpus:,}", str(point.global_batch_size), _layout(point), gib(point.peak_bytes),
         *(f"{values[place]:,.4g}" if values[place] < 1000 else f"{values[place]:,.0f}" for values in rates.values())]
        for place, point in enumerate(points)
    ]
    return Picture(
        f"{scaling.model.name} on {scaling.cluster.gpu.name}",
        f"{scaling.implementation}, sequences of {scaling.seq_length} tokens", panels,
        (Table("Fastest layout that fits at each number of GPUs",
               ("GPUs", "sequences of a step", "layout", "peak GiB", *rates), rows),),
    )


def _said(points: Sequence[Point], label: str, values: Sequence[float]) -> str:
    return (f"{label} against the number of GPUs: {values[0]:.4g} at {points[0].num_gpus:,} GPUs,"
            f" {values[-1]:.4g} at {points[-1].num_gpus:,}.")


def _draw(part: Any, points: Sequence[Point], label: str, values: Sequence[float]) -> None:
    """Draw a line over the numbers of GPUs, with the layout upright where it changes."""
    from matplotlib.ticker import NullLocator

    axes = part.add_subplot()
    sizes = [point.num_gpus for point in points]
    axes.plot(sizes, values, marker="o", markersize=3.5, color=INK)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes], rotation=45 if len(sizes) > 6 else 0)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_ylim(0, 1.15 * max(values))
    axes.margins(x=0.08)
    axes.set(xlabel="GPUs", ylabel=label)
    axes.spines[["top", "right"]].set_visible(False)
    before = ""
    for point, value in zip(points, values, strict=True):
        text = _parallel(point)
        if text != before:  # in the free room below the curve, or above it where it is low
            below = value > max(values) / 2
            axes.annotate(text, (point.num_gpus, value), (0, -6 if below else 6), textcoords="offset points",
                          fontsize=5.5, ha="center", va="top" if below else "bottom", rotation=90)
        before = text


def _layout(point: Point) -> str:
    """Return the sizes of the layout that are not 1, without those that follow from the number of GPUs."""
    return short(point.layout or {}, ("data_parallel",))


def _parallel(point: Point) -> str:
    """Return the sizes of parallelism alone."""
    return short(point.layout or {}, ("data_parallel", "micro_batch_size", "recompute"))
