"""The fronts that a space was asked for: configurations that none beats, in two of its formulas."""

from __future__ import annotations

from functools import partial
from typing import Any

from shardmath.commands.explore.answer import Explored, Unbeaten
from shardmath.errors import ABSENT, InputError
from shardmath.generated.definitions import VERDICTS
from shardmath.plots.picture import Panel, Picture, Table
from shardmath.plots.style import INK, STRONG, VERDICT_MARKERS
from shardmath.reports.tables import gib
from shardmath.search.nests.configurations import Configuration

_HEIGHT = 2.6
#: Lines of a front for the values of its third formula.
_STYLES = ("-", "--", ":")
#: Bytes of a GiB, for plots of formulas in bytes.
_GIB = 2**30


def picture(explored: Explored, name: str = "Fronts of a space") -> Picture:
    """Return a plot of every front of the space called ``name``: its first formula across, its second up.

    Raises InputError if the space asks for no front, or none has a configuration.
    """
    fronts = {title: item for title, item in explored.answers.items() if isinstance(item, Unbeaten)}
    if not fronts:
        raise InputError("plot", ABSENT, "needs a question of the space that is a front")
    shown = {title: item for title, item in fronts.items() if item.configurations}
    if not shown:
        raise InputError("plot", name, "must have something to show: the fronts are empty")
    panels = tuple(Panel(partial(_draw, answered=item), _HEIGHT, _said(title, item)) for title, item in shown.items())
    return Picture(
        name, _counted(explored), panels,
        tuple(_table(title, item) for title, item in shown.items()),
    )


def _counted(explored: Explored) -> str:
    """Count the configurations, and those that are legal and fit where the method counts these."""
    if explored.legal is None:
        return f"{explored.size:,} configurations, cut by bounds"
    return f"{explored.done:,} configurations, {explored.legal:,} legal, {explored.verdicts[VERDICTS[0][0]]:,} fit"


def _said(title: str, answered: Unbeaten) -> str:
    across, up, *_ = answered.question.by
    return f"{title}: {up} against {across} for {len(answered.configurations)} configurations that none beats."


def _value(text: str, item: Configuration) -> float:
    return item.keys[text] / (_GIB if item.part.unit(text) == "bytes" else 1)


def _title(text: str, item: Configuration) -> str:
    unit = item.part.unit(text)
    return f"{text}, {'GiB' if unit == 'bytes' else unit}" if unit else text


def _table(title: str, answered: Unbeaten) -> Table:
    first, by = answered.configurations[0], answered.question.by
    names = [name for name in first.labels if name not in by]
    rows = [
        [*(f"{_value(text, item):,.6g}" for text in by), *(str(item.labels[name]) for name in names),
         gib(item.peak_bytes), item.verdict, item.rule_80]
        for item in answered.configurations
    ]
    return Table(title, [*(_title(text, first) for text in by), *names, "peak GiB", "verdict", "80 % rule"], rows)


def _kinds(answered: Unbeaten) -> list[tuple[float, ...]]:
    """Return the values of a third formula, each with a line of its own; none if they are many."""
    _, _, *rest = answered.question.by
    kinds = sorted({tuple(float(item.keys[text]) for text in rest) for item in answered.configurations})
    return kinds if len(kinds) <= len(_STYLES) else []


def _draw(part: Any, answered: Unbeaten) -> None:
    axes = part.add_subplot()
    across, up, *rest = answered.question.by
    items = answered.configurations
    for name, _meaning in VERDICTS:
        points = [item for item in items if item.verdict == name]
        if points:
            axes.plot([_value(across, item) for item in points], [_value(up, item) for item in points],
                      linestyle="none", marker=VERDICT_MARKERS[name], markersize=4, color=STRONG[name], label=name)
    for kind, style in zip(_kinds(answered), _STYLES, strict=False):
        line = sorted((_value(across, item), _value(up, item)) for item in items
                      if item.verdict == VERDICTS[0][0] and [*map(item.keys.__getitem__, rest)] == [*kind])
        if line:
            label = ", ".join(f"{text} = {value:g}" for text, value in zip(rest, kind, strict=True))
            axes.plot(*zip(*line, strict=True), drawstyle="steps-post", linewidth=0.7, color=INK, zorder=0,
                      linestyle=style, label=label or None)
    first = items[0]
    axes.set(xlabel=_title(across, first), ylabel=_title(up, first))
    axes.margins(0.08)
    axes.spines[["top", "right"]].set_visible(False)
    part.legend(loc="outside lower center", ncols=1 if rest else 3)
