"""Predicted over measured memory, one plot for each table, as SVG that is the same on every run."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from typing import Any

from validation.measured.case import GIB
from validation.measured.metrics import Pair

WIDTH, HEIGHT = 3.5, 3.3
#: How far from the diagonal the dotted lines are, and the range above which an axis has fewer numbers.
BAND, DECADE = 0.1, 20
#: Markers that can be told apart without colour.
MARKERS = "os^Dv<>PX*"
STYLE: dict[Any, Any] = {"svg.hashsalt": "shardmath", "svg.fonttype": "none", "font.size": 8, "axes.linewidth": 0.6}


def predicted_over_measured(found: Sequence[Pair]) -> str:
    """The SVG of one table: GiB on logarithmic axes, the diagonal with dotted lines beside it, markers by group.

    Raises ValueError for no pairs.
    """
    if not found:
        raise ValueError("nothing to plot")
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    with rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        axes = figure.add_subplot()
        groups = list(dict.fromkeys(pair.case.group for pair in found))
        for place, group in enumerate(groups):
            points = [pair for pair in found if pair.case.group == group]
            axes.plot([pair.measured.bytes / GIB for pair in points], [pair.predicted / GIB for pair in points],
                      linestyle="none", marker=MARKERS[place % len(MARKERS)], markersize=3.5, markerfacecolor="none",
                      markeredgewidth=0.7, label=f"{group} ({len(points)})", gid=f"group-{place}")
        ends = _ends(found)
        axes.plot(ends, ends, color="black", linewidth=0.6, zorder=0)
        for share in (1 - BAND, 1 + BAND):
            axes.plot(ends, [share * end for end in ends], color="grey", linewidth=0.5, linestyle=":", zorder=0)
        axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends, aspect="equal",
                 xlabel="measured, GiB", ylabel="predicted, GiB")
        for axis in (axes.xaxis, axes.yaxis):
            wide = ends[1] > DECADE * ends[0]
            axis.set_major_locator(LogLocator(subs=(1, 2, 5) if wide else (1, 1.5, 2, 3, 4, 6, 8)))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_formatter(NullFormatter())
        axes.legend(frameon=False, fontsize=6.5, loc="upper left")
        return svg(figure)


def svg(figure: Any) -> str:
    """The text of a figure, without trailing blanks and without a date. Called with ``STYLE`` set."""
    text = StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"


def _ends(found: Sequence[Pair]) -> tuple[float, float]:
    sizes = [size / GIB for pair in found for size in (pair.measured.bytes, pair.predicted)]
    return min(sizes) / 1.15, max(sizes) * 1.15
