"""Predicted over measured memory, one plot for each table, as SVG that is the same on every run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardmath.plots.picture import in_black, svg_of
from shardmath.plots.style import COLUMN, INK, MARKERS, SMALL, STYLE, plain_logarithmic
from validation.measured.case import GIB
from validation.measured.metrics import Pair

#: Inches of a plot, and of each line of the legend below it.
HEIGHT = 3.3
_LEGEND = 0.12
#: Letters of the longest name in a legend of two columns; wider ones would be cut.
_WIDEST = 32
#: How far from the diagonal the dotted lines are.
BAND = 0.1


def predicted_over_measured(pairs: Sequence[Pair]) -> str:
    """Return the SVG of one table: GiB on logarithmic axes, the diagonal with dotted lines beside it, markers by group.

    Raises ValueError for no pairs.
    """
    if not pairs:
        raise ValueError("nothing to plot")
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        groups = list(dict.fromkeys(pair.case.group for pair in pairs))
        points_of = {group: [pair for pair in pairs if pair.case.group == group] for group in groups}
        names = {group: f"{group} ({len(points)})" for group, points in points_of.items()}
        columns = 2 if len(groups) > 1 and max(map(len, names.values())) <= _WIDEST else 1
        figure = Figure(figsize=(COLUMN, HEIGHT + _LEGEND * -(-len(groups) // columns)), layout="constrained")
        axes = figure.add_subplot()
        for place, (group, points) in enumerate(points_of.items()):
            axes.plot([pair.measured.bytes / GIB for pair in points], [pair.predicted / GIB for pair in points],
                      linestyle="none", marker=MARKERS[place % len(MARKERS)], markersize=3.5, markerfacecolor="none",
                      markeredgewidth=0.7, label=names[group], gid=f"group-{place}")
        ends = _ends(pairs)
        axes.plot(ends, ends, color=INK, linewidth=0.6, zorder=0)
        for share in (1 - BAND, 1 + BAND):
            axes.plot(ends, [share * end for end in ends], color="grey", linewidth=0.5, linestyle=":", zorder=0)
        axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends, aspect="equal",
                 xlabel="measured, GiB", ylabel="predicted, GiB")
        plain_logarithmic(axes.xaxis, *ends)
        plain_logarithmic(axes.yaxis, *ends)
        figure.legend(fontsize=SMALL, loc="outside lower center", ncols=columns, columnspacing=1, handletextpad=0.3)
        return svg(figure)


def svg(figure: Any) -> str:
    """Return the text of a figure, in black on nothing. Called with ``STYLE`` set."""
    return in_black(svg_of(figure))


def _ends(pairs: Sequence[Pair]) -> tuple[float, float]:
    sizes = [size / GIB for pair in pairs for size in (pair.measured.bytes, pair.predicted)]
    return min(sizes) / 1.15, max(sizes) * 1.15
