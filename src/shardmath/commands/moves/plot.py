"""Moves as bars: elasticities of the peak, the peak after each single change, and the cheapest sets of changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardmath.commands.explain.report import heading
from shardmath.commands.moves import Move, Moves, Sensitivity
from shardmath.commands.moves.report import in_changes
from shardmath.generated.definitions import VERDICTS
from shardmath.plots.bars import draw_rows
from shardmath.plots.picture import Panel, Picture, Table
from shardmath.plots.style import INK, SMALL, three_digits
from shardmath.reports.tables import gib

GIB = 2**30
#: Inches of one bar, and of what stands around all of them.
_ROW, _AROUND = 0.2, 0.75
#: Symbols and changes that are drawn, the first of each table.
_SHOWN = 12
#: Points of the names of rows.
_NAMES = 5.5
_FITS, _NOT = VERDICTS[0][0], VERDICTS[-1][0]


def picture(moves: Moves) -> Picture:
    """Return elasticities, the peak after each change of one thing, and the sets of changes that fit or are faster."""
    sets, title = (moves.gains, "faster, and still fits") if moves.fits else (moves.smallest, "makes it fit")
    symbols = moves.sensitivities[:_SHOWN]
    panels = [_of_symbols(symbols), _of_changes(moves, moves.differences[:_SHOWN], "one thing changed")]
    if sets:
        panels.append(_of_changes(moves, sets[:_SHOWN], title))
    asked, *layout = heading(moves.explanation).splitlines()
    tables = [Table("Sensitivities of the peak", ("symbol", "value", "elasticity", "bytes per unit"), [
        [item.name, f"{item.value:,}", f"{float(item.elasticity):+.3f}",
         "" if item.slope is None else f"{float(item.slope):,.6g}"] for item in moves.sensitivities])]
    for name, changes in (("One thing changed", moves.differences), (f"{title[0].upper()}{title[1:]}", sets)):
        if changes:
            tables.append(Table(name, ("changes", "peak GiB", "margin GiB", "seconds", "time"), [
                [in_changes(move), gib(move.peak_bytes), _signed(move.margin_bytes),
                 "" if move.seconds is None else f"{move.seconds:.2f}", _longer(move)] for move in changes]))
    return Picture(asked, " ".join(layout), tuple(panels), tuple(tables))


def _signed(size: int) -> str:
    return f"{'-' if size < 0 else ''}{gib(abs(size))}"


def _longer(move: Move) -> str:
    return "" if move.ratio is None else f"{move.ratio - 1:+z.1%}"


def _drawn(text: str) -> str:
    """Return a number with the minus of print, as the axes have it."""
    return text.replace("-", "\N{MINUS SIGN}")


def _of_symbols(symbols: Sequence[Sensitivity]) -> Panel:
    said = ", ".join(f"{item.name} {float(item.elasticity):+.2f}" for item in symbols[:3])
    return Panel(lambda part: _draw_symbols(part, symbols), _AROUND + _ROW * len(symbols),
                 f"Change of the peak in percent for one percent of each symbol: {said} and others.")


def _draw_symbols(part: Any, symbols: Sequence[Sensitivity]) -> None:
    axes = part.add_subplot()
    values = [float(item.elasticity) for item in symbols]
    draw_rows(axes, [item.name for item in symbols], values, [_NOT if value > 0 else _FITS for value in values], _NAMES)
    for place, value in enumerate(values):
        axes.annotate(_drawn(f"{value:+.2f}"), (max(value, 0.0), place), (2, 0), textcoords="offset points",
                      va="center", fontsize=SMALL)
    axes.axvline(0, color=INK, linewidth=0.7)
    axes.set_xlim(1.1 * min(0.0, *values), 1.3 * max(0.1, *values))
    axes.set_xlabel("% of the peak for 1 % of the symbol\nblue: less memory", fontsize=7)


def _of_changes(moves: Moves, changes: Sequence[Move], title: str) -> Panel:
    said = f"{in_changes(changes[0])}: {gib(changes[0].peak_bytes)} GiB" if changes else "none"
    return Panel(lambda part: _draw_changes(part, moves, changes, title), _AROUND + _ROW * len(changes),
                 f"Peak after changes, {title}, with the time that they cost: {said}, and others.")


def _draw_changes(part: Any, moves: Moves, changes: Sequence[Move], title: str) -> None:
    axes = part.add_subplot()
    sizes = [move.peak_bytes / GIB for move in changes]
    draw_rows(axes, [in_changes(move).replace("->", "→") for move in changes], sizes,
              [_FITS if move.fits else _NOT for move in changes], _NAMES)
    for place, (move, size) in enumerate(zip(changes, sizes, strict=True)):
        words = three_digits(size) + (f"\n{_drawn(_longer(move))} time" if move.ratio is not None else "")
        axes.annotate(words, (1, place), (2, 0), xycoords=("axes fraction", "data"), textcoords="offset points",
                      va="center", fontsize=5, linespacing=0.95)
    now, limit = moves.peak_bytes / GIB, moves.limit_bytes / GIB
    for at, style, label in ((now, "-", "now"), (limit, "--", "fits")):
        axes.axvline(at, color=INK, linewidth=0.7, linestyle=style, zorder=0)
        axes.annotate(label, (at, 1), (0, 2), xycoords=("data", "axes fraction"), textcoords="offset points",
                      ha="center", fontsize=5.5)
    axes.set_xlim(0, 1.04 * max(now, limit, *sizes))
    axes.set_title(title, fontsize=SMALL, pad=11)
    axes.set_xlabel("peak, GiB; blue: fits", fontsize=7)
