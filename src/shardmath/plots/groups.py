"""Bars side by side in groups: a number of several things, each in two or more cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shardmath.plots.style import INK, SMALL
from shardmath.plots.words import three_digits

#: Inches.
HEIGHT = 2.2
#: Share of the room of a group that its bars fill.
_FILLED = 0.8


def draw_groups(
    part: Any, names: Sequence[str], cases: Mapping[str, Sequence[float | None]], label: str, up: str,
) -> None:
    """Draw a group of bars for each of ``names``, one bar for each case; an unknown number is a gap with a sign."""
    axes = part.add_subplot()
    width = _FILLED / len(cases)
    top = 1.2 * max(value for values in cases.values() for value in values if value is not None)
    for number, (case, values) in enumerate(cases.items()):
        places = [place + width * (number - (len(cases) - 1) / 2) for place in range(len(names))]
        axes.bar(places, [value or 0.0 for value in values], 0.92 * width, label=case, linewidth=0)
        for place, value in zip(places, values, strict=True):
            text = "–" if value is None else three_digits(value)
            axes.annotate(text, (place, value or 0.0), (0, 2), textcoords="offset points", ha="center", va="bottom",
                          fontsize=SMALL, color=INK)
    axes.set_xticks(range(len(names)), names)
    axes.set(xlabel=label, ylabel=up, ylim=(0, top), xlim=(-0.6, len(names) - 0.4))
    axes.spines[["top", "right"]].set_visible(False)
    if len(cases) > 1:
        part.legend(loc="outside lower center", ncols=len(cases), columnspacing=1, handlelength=1)
