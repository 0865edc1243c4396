"""Plots of step time: predicted over measured, and what following a prediction costs, as SVG."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardmath.plots.style import COLUMN, INK, MARKERS, SMALL, STYLE, plain_logarithmic
from validation.measured.plots import BAND, HEIGHT, svg
from validation.timed.metrics import spread
from validation.timed.results import CALIBRATED, Result

#: Regret below which a bar is drawn no shorter, in percent.
LEAST = 0.01
#: Letters of names of which three stand side by side.
_SHORT = 14


def predicted_over_measured(outcome: Result) -> str:
    """Return milliseconds of a sequence on logarithmic axes, calibrated on other groups, markers by group."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    ranking = outcome.rankings[CALIBRATED]
    with rc_context(STYLE):
        figure = Figure(figsize=(COLUMN, 1.15 * HEIGHT), layout="constrained")
        axes = figure.add_subplot()
        for place, (group, (predicted, measured)) in enumerate(ranking.by_group.items()):
            axes.plot(1000 * measured, 1000 * predicted, linestyle="none", marker=MARKERS[place % len(MARKERS)],
                      markersize=3, markerfacecolor="none", markeredgewidth=0.6, label=f"{group} ({len(measured)})")
        every = 1000 * np.concatenate([ranking.predicted, ranking.measured])
        ends = np.array([every.min() / 1.2, every.max() * 1.2])
        axes.plot(ends, ends, color=INK, linewidth=0.6, zorder=0)
        for share in (1 - BAND, 1 + BAND):
            axes.plot(ends, share * ends, color="grey", linewidth=0.5, linestyle=":", zorder=0)
        axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends, aspect="equal",
                 xlabel="measured, ms for a sequence", ylabel="predicted, ms for a sequence")
        plain_logarithmic(axes.xaxis, *ends)
        plain_logarithmic(axes.yaxis, *ends)
        columns = 3 if max(map(len, ranking.by_group)) <= _SHORT else 2
        figure.legend(fontsize=5.5, loc="outside lower center", ncols=columns, columnspacing=1, handletextpad=0.3)
        return svg(figure)


def regrets(results: Sequence[Result]) -> str:
    """Mean regret of every table by the way in which the layout was chosen, on a logarithmic axis."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    ways = list(results[0].rankings)
    with rc_context(STYLE):
        figure = Figure(figsize=(5.5, 3.2), layout="constrained")
        axes = figure.add_subplot()
        width = 0.8 / len(ways)
        for place, way in enumerate(ways):
            means = [100 * spread(list(item.rankings[way].regret.values()))[0] for item in results]
            at = np.arange(len(results)) + (place - (len(ways) - 1) / 2) * width
            bars = axes.bar(at, [max(mean, LEAST) for mean in means], width, label=way, linewidth=0)
            shown = [f"{mean:.2g}" if mean < 100 else f"{mean:,.0f}" for mean in means]
            axes.bar_label(bars, shown, fontsize=SMALL, padding=2, rotation=90)
        axes.set(yscale="log", ylim=(LEAST, 1e4), ylabel="mean regret, %")
        plain_logarithmic(axes.yaxis, *axes.get_ylim())
        axes.set_xticks(range(len(results)), [item.table.title.partition(" on ")[0] for item in results])
        figure.legend(ncols=3, loc="outside lower center")
        return svg(figure)
