"""Bars: memory by role stacked beside the memory of a GPU, parts of a time, numbers side by side, and named rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shardmath.account.accounting import RankAccount
from shardmath.generated.definitions import ROLES, RULE_SHARE
from shardmath.plots.picture import Table
from shardmath.plots.style import INK, ROLE_COLOURS, SIGNS, SMALL, STRONG, three_digits
from shardmath.reports.tables import gib

#: Inches.
HEIGHT = 3.0
GIB = 2**30
#: Bars with a total above each; of more only some have a number below.
_LABELLED = 8
#: A bar is as wide as if there were so many.
_FEWEST = 3

#: By label of a line.
_STYLES = {"fits": "--", f"{RULE_SHARE:.0%}": ":", "100%": "-"}


@dataclass(frozen=True)
class Bar:
    """One account with the name that stands below it, and the memory of its GPU in bytes."""

    label: str
    account: RankAccount
    memory: int

    @property
    def lines(self) -> Mapping[str, float]:
        """Sizes in GiB at which there is a line, by its label: what fits, the published rule, and all of the memory."""
        size = self.memory / GIB
        return {"fits": self.account.limit / GIB, f"{RULE_SHARE:.0%}": RULE_SHARE * size, "100%": size}


def draw(part: Any, bars: Sequence[Bar], label: str, up: str) -> None:
    """Draw bars into a (sub)figure: ``label`` stands below them all, ``up`` beside them."""
    axes = part.add_subplot()
    places = range(len(bars))
    roles = {role: [bar.account.by_role[role] / GIB for bar in bars] for role in ROLES}
    heights = _stack(axes, [
        (role, sizes, {"color": ROLE_COLOURS[role]}) for role, sizes in roles.items() if any(sizes)])
    top = 1.14 * max(*heights, *(bar.memory / GIB for bar in bars))
    _frame(part, axes, len(bars), xlabel=label, ylabel=up, ylim=(0, top))
    _lines(axes, bars)
    if len(bars) <= _LABELLED:
        for place, bar in enumerate(bars):
            _label(axes, place, bar, top)
    step = -(-len(bars) // _LABELLED)
    axes.set_xticks(places[::step], [bar.label for bar in bars[::step]])


def _stack(axes: Any, layers: Iterable[tuple[str, Sequence[float], Mapping[str, str]]]) -> list[float]:
    """Draw layers of bars one on the other, each with label, sizes and look; return how high the bars are."""
    heights: list[float] = []
    for label, sizes, look in layers:
        heights = heights or [0.0] * len(sizes)
        axes.bar(range(len(sizes)), sizes, 0.8, heights, label=label, linewidth=0, **look)
        heights = [height + size for height, size in zip(heights, sizes, strict=True)]
    return heights


def _frame(part: Any, axes: Any, count: int, **settings: Any) -> None:
    """Give so many bars their room, and the legend its own below."""
    side = max(0.6, (_FEWEST - count) / 2)
    axes.set(xlim=(-side, count - 1 + side), **settings)
    axes.spines[["top", "right"]].set_visible(False)
    part.legend(loc="outside lower center", ncols=4, columnspacing=1, handlelength=1)


def _lines(axes: Any, bars: Sequence[Bar]) -> None:
    """Draw limits of memory: a line through all bars, or one over each if they have several GPUs."""
    for label, style in _STYLES.items():
        heights = [bar.lines[label] for bar in bars]
        if len(set(heights)) == 1:
            axes.axhline(heights[0], color=INK, linewidth=0.7, linestyle=style)
        else:
            for place, height in enumerate(heights):
                axes.plot((place - 0.48, place + 0.48), (height,) * 2, color=INK, linewidth=0.7, linestyle=style)
        axes.annotate(label, (1, heights[-1]), (3, 0), xycoords=("axes fraction", "data"), textcoords="offset points",
                      va="center", fontsize=SMALL)


def _label(axes: Any, place: int, bar: Bar, top: float) -> None:
    """Write the verdict's sign and the total above a bar, moved up where they would stand on a line."""
    height, room = bar.account.total / GIB, 0.11 * top
    for line in bar.lines.values():
        if line - room < height < line:
            height = line
    axes.annotate(f"{SIGNS[bar.account.verdict]}\n{three_digits(bar.account.total / GIB)}", (place, height), (0, 2),
                  textcoords="offset points", ha="center", va="bottom", fontsize=SMALL)


def accounts(caption: str, title: str, named: Iterable[tuple[str, RankAccount]]) -> Table:
    """Return accounts as a table, one row for each with its name in the column ``title``."""
    rows = [
        [name, *(gib(item.by_role[role]) for role in ROLES), gib(item.total), f"{item.share:.1%}", item.verdict,
         item.rule_80, item.site]
        for name, item in named
    ]
    return Table(caption, (title, *ROLES, "total", "share", "verdict", "80 % rule", "peaks"), rows)


#: Inches.
GROUPS_HEIGHT = 2.2
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


#: Hatches of stacked parts from the eighth on, which have the colours of the first ones.
_HATCHES = ("", "////", "....")


def draw_stacked(
    part: Any, names: Sequence[str], parts: Mapping[str, Sequence[float]], sums: Sequence[float], label: str, up: str,
) -> None:
    """Draw a bar for each of ``names``: ``parts`` one on the other, and above them the sum of these and thinner ones.

    ``parts`` has the numbers of each part, one for every bar.
    """
    from matplotlib import rcParams

    axes = part.add_subplot()
    colours = rcParams["axes.prop_cycle"].by_key()["color"]
    heights = _stack(axes, [
        (text, sizes, {"color": colours[number % len(colours)], "hatch": _HATCHES[number // len(colours)]})
        for number, (text, sizes) in enumerate(parts.items())])
    for place, (height, total) in enumerate(zip(heights, sums, strict=True)):
        axes.annotate(three_digits(total), (place, height), (0, 2), textcoords="offset points", ha="center",
                      va="bottom", fontsize=SMALL)
    axes.set_xticks(range(len(names)), names)
    _frame(part, axes, len(names), xlabel=label, ylabel=up, ylim=(0, 1.14 * max(heights)))


def draw_rows(
    axes: Any, names: Sequence[str], sizes: Sequence[float], verdicts: Sequence[str], size: float, start: float = 0.0,
) -> None:
    """Draw a row for each of ``names``, the first on top: a bar from ``start``, coloured by its verdict."""
    axes.barh(range(len(names)), [end - start for end in sizes], 0.7, [start] * len(names), linewidth=0,
              color=[STRONG[verdict] for verdict in verdicts])
    name_rows(axes, names, size)


def name_rows(axes: Any, names: Sequence[str], size: float) -> None:
    """Write names of ``size`` points beside rows, the first on top, without the frame of the plot."""
    axes.set_yticks(range(len(names)), names, fontsize=size)
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
