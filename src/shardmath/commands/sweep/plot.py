"""A sweep as a map of what fits, TP across and PP up, and as fronts of step time against memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from math import isnan
from typing import Any

from shardmath.commands.sweep.answer import SweepResult
from shardmath.commands.sweep.gathered import Gathered
from shardmath.errors import InputError
from shardmath.generated.definitions import RULE_SHARE, VERDICTS
from shardmath.plots.picture import Panel, Picture, Table
from shardmath.plots.style import (
    BLACK,
    GROUNDS,
    INK,
    SIGNS,
    SMALL,
    STRONG,
    VERDICT_MARKERS,
    plain_logarithmic,
    short,
    three_digits,
)
from shardmath.reports.sizes import batch_in_words
from shardmath.reports.tables import gib

GIB = 2**30
#: Inches of a row of the map, of what stands around it, and of the other plot without its list of layouts.
_ROW, _AROUND, _FRONT, _LISTED = 0.29, 0.9, 3.0, 0.13
#: Layouts that are more than so many times as slow as the fastest are not shown.
_SLOWEST = 10
#: Cells of the map across and up, above which only their signs are written.
_MOST_ACROSS, _MOST_UP = 6, 24
#: By verdict, the line through its front: in words, and its style. What runs out of memory has none.
_LINES = {VERDICTS[0][0]: ("best that fit", "-"), VERDICTS[1][0]: ("best that are uncertain", "--")}
_TITLES = ("", "layout", "DP", "SP", "recompute", "seconds", "peak GiB", "verdict", "80 % rule")

Layout = Mapping[str, Any]


def picture(result: SweepResult, gathered: Gathered | None = None) -> Picture:
    """Return the map of what fits and, where the time of a step is known, the fronts of all legal layouts.

    The layouts are swept once more where none were ``gathered``. Raises InputError if no layout is legal.
    """
    gathered = gathered or result.gathered()
    if not gathered.count:
        raise InputError("plot", result.model.name, "must have something to show: no layout is legal")
    value = result.values
    title = f"{result.model.name} on {value['num_gpus']} x {result.gpu.name} ({result.gpu.memory_gib:g} GiB)"
    subtitle = (f"{result.implementation}, {batch_in_words(value['global_batch_size'], value['seq_length'])},"
                f" {gathered.count:,} legal layouts")
    best, front = gathered.best, gathered.front
    memory = result.gpu.memory_bytes
    panels = [_map_panel(best)]
    tables = [Table("Best layout for each TP and PP", ("TP", "PP", *_TITLES[1:]), [
        [str(t), str(p), *_words(item)] for (t, p), item in sorted(best.items())
    ])]
    if front:
        named = _named(front)
        panels.append(_front_panel(gathered, front, named, memory))
        letters = {id(item): letter for letter, item in named.items()}
        unbeaten = "No legal layout with as good a verdict is both faster and smaller than one of these"
        tables.append(Table(unbeaten, _TITLES, [[letters.get(id(item), ""), *_words(item)] for item in front]))
    return Picture(title, subtitle, tuple(panels), tuple(tables))


def _words(item: Layout) -> list[str]:
    return [
        short(item, ("data_parallel", "recompute")), str(item["data_parallel"]),
        "on" if item["sequence_parallel"] else "off", item["recompute"],
        f"{item['step_seconds']:.2f}" if _timed(item) else "", gib(item["peak_bytes"]), item["verdict"],
        item["rule_80"],
    ]


def _timed(item: Layout) -> bool:
    return not isnan(item["step_seconds"])


def _fronts(front: Sequence[Layout]) -> dict[str, list[Layout]]:
    """Return the fronts that have a line by verdict, the fastest layout of each first."""
    return {name: list(items) for name, items in groupby(front, lambda item: item["verdict"]) if name in _LINES}


def _map_panel(best: Mapping[tuple[int, int], Layout]) -> Panel:
    across, up = sorted({t for t, _ in best}), sorted({p for _, p in best})
    fitting = sum(item["verdict"] == VERDICTS[0][0] for item in best.values())
    alt = (f"Map of tensor-parallel by pipeline-parallel sizes: of {len(best)} that are legal, {fitting} have a layout"
           " that fits.")
    row = _ROW if len(up) <= _MOST_UP else _ROW / 2
    return Panel(lambda part: _draw_map(part, best, across, up), _AROUND + row * len(up), alt)


def _draw_map(
    part: Any, best: Mapping[tuple[int, int], Layout], across: Sequence[int], up: Sequence[int],
) -> None:
    from matplotlib.patches import Patch, Rectangle

    axes = part.add_subplot()
    written = len(across) <= _MOST_ACROSS and len(up) <= _MOST_UP
    for x, t in enumerate(across):
        for y, p in enumerate(up):
            item = best.get((t, p))
            if item is None:
                axes.text(x, y, "–", ha="center", va="center", fontsize=SMALL)
                continue
            verdict = item["verdict"]
            axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor=GROUNDS[verdict], edgecolor="white"))
            axes.text(x, y, _cell(item) if written else SIGNS[verdict], ha="center", va="center", fontsize=5.5,
                      color=BLACK, linespacing=1.1)
    axes.set(xlim=(-0.5, len(across) - 0.5), ylim=(-0.5, len(up) - 0.5), xlabel="TP", ylabel="PP")
    axes.set_xticks(range(len(across)), map(str, across))
    axes.set_yticks(range(len(up)), map(str, up))
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    timed = any(map(_timed, best.values()))
    axes.set_title(f"for each TP and PP the {'fastest layout that fits, or else the ' if timed else ''}smallest",
                   fontsize=SMALL)
    shown = {item["verdict"] for item in best.values()}
    handles = [Patch(facecolor=GROUNDS[name], edgecolor=INK, linewidth=0.4, label=f"{SIGNS[name]} {name}")
               for name, _ in VERDICTS if name in shown]
    part.legend(handles=handles, loc="outside lower center", ncols=len(handles), handlelength=1.2, columnspacing=1.2)


def _cell(item: Layout) -> str:
    """Return the sign of the verdict with the seconds of what fits, and the peak below."""
    sign, peak = SIGNS[item["verdict"]], f"{three_digits(item['peak_bytes'] / GIB)} GiB"
    fits = item["verdict"] == VERDICTS[0][0] and _timed(item)
    return f"{sign} {three_digits(item['step_seconds'])} s\n{peak}" if fits else f"{sign} {peak}"


def _named(front: Sequence[Layout]) -> dict[str, Layout]:
    """Return lettered layouts: the fastest and the smallest that fits, and the fastest that is uncertain.

    Where none may fit they are the fastest and the smallest of all.
    """
    first, *others = _fronts(front).values() or [front]
    chosen = [first[0], *([first[-1]] if len(first) > 1 else ()), *(items[0] for items in others)]
    return dict(zip("abc", chosen, strict=False))


def _front_panel(gathered: Gathered, front: Sequence[Layout], named: Mapping[str, Layout], memory: int) -> Panel:
    listed = "; ".join(f"{letter}: {text}" for letter, text in _listed(named).items())
    counts = ", ".join(f"{len(items)} {_LINES[name][0]}" for name, items in _fronts(front).items())
    alt = f"Step time against peak memory of all legal layouts. Lines: {counts or 'none, as none fits'}. {listed}."
    return Panel(lambda part: _draw_front(part, gathered, front, named, memory), _FRONT + _LISTED * len(named), alt)


def _listed(named: Mapping[str, Layout]) -> dict[str, str]:
    """Return the named layouts in words."""
    return {
        letter: f"{short(item)}: {item['step_seconds']:.2f} s, {gib(item['peak_bytes'])} GiB"
        for letter, item in named.items()
    }


def _draw_front(
    part: Any, gathered: Gathered, front: Sequence[Layout], named: Mapping[str, Layout], memory: int,
) -> None:
    axes = part.add_subplot()
    times = sorted(item["step_seconds"] for item in front)
    slowest = _SLOWEST * times[0]
    for name, _ in VERDICTS:
        peaks, seconds = gathered.cloud(name)
        shown = seconds <= slowest
        if shown.any():
            axes.plot(peaks[shown] / GIB, seconds[shown], linestyle="none", marker=VERDICT_MARKERS[name],
                      markersize=2, markeredgewidth=0.4, markerfacecolor="none", color=STRONG[name], alpha=0.8,
                      label=name)
    for name, items in _fronts(front).items():
        label, style = _LINES[name]
        axes.plot([item["peak_bytes"] / GIB for item in items], [item["step_seconds"] for item in items],
                  drawstyle="steps-pre", linestyle=style, marker=VERDICT_MARKERS[name], markersize=2.5, linewidth=0.8,
                  color=INK, label=label)
    axes.set(xscale="log", yscale="log")
    axes.set_ylim(times[0] / 1.4, min(axes.get_ylim()[1], slowest * 1.05))
    for share, style, side in ((RULE_SHARE, ":", "right"), (1.0, "-", "left")):
        axes.axvline(share * memory / GIB, color=INK, linewidth=0.6, linestyle=style, zorder=0)
        axes.annotate(f" {share:.0%} ", (share * memory / GIB, 1), (0, 2), xycoords=("data", "axes fraction"),
                      textcoords="offset points", ha=side, fontsize=SMALL)
    plain_logarithmic(axes.xaxis, *axes.get_xlim())
    plain_logarithmic(axes.yaxis, *axes.get_ylim())
    for letter, item in named.items():
        axes.annotate(letter, (item["peak_bytes"] / GIB, item["step_seconds"]), (-3, -3),
                      textcoords="offset points", ha="right", va="top", fontsize=7, fontweight="bold", clip_on=True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_ylabel("seconds of a step" + (f", up to {_SLOWEST} times the least" if times[-1] > slowest else ""),
                    fontsize=7)
    above = {letter for letter, item in named.items() if item["step_seconds"] > axes.get_ylim()[1]}
    lines = "".join(f"\n{letter}  {text}{', above the plot' if letter in above else ''}"
                    for letter, text in _listed(named).items())
    axes.set_xlabel("peak memory, GiB")
    axes.annotate(lines, (0, 0), (0, -24), xycoords="axes fraction", textcoords="offset points", ha="left", va="top",
                  fontsize=6, linespacing=1.4)
    part.legend(loc="outside lower center", ncols=2, markerscale=2, handlelength=1.2, columnspacing=1)
