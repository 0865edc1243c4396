"""Tables in the terminal, made by rich; plain enough to be pasted into a report, and as narrow as the terminal is."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from copy import copy
from dataclasses import replace
from fractions import Fraction

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Column, Table
from rich.text import Text

from shardmath.generated.definitions import VERDICTS
from shardmath.reports.captured import WIDTH, capturing
from shardmath.reports.waiting import silence

#: Column of the probability that the process on the fullest rank runs out of memory.
RUNS_OUT = "runs out"
#: Column of the published rule's verdict.
RULE = "80 % rule"
#: Least width of the last column, which wraps, before others go.
_LEAST = 18
#: Colours of the verdicts, which are always written out too.
_COLOURS = dict(zip((name for name, _ in VERDICTS), ("green", "yellow", "red"), strict=True))


def console() -> Console:
    """Return the terminal at its width, or plain text for a file, a pipe or an answer's text.

    Brackets are text: a formula has them. ``COLUMNS`` says how wide plain text may be.
    """
    if (own := capturing()) is not None:
        return own
    silence()
    terminal = Console(highlight=False, markup=False)
    if terminal.is_terminal:
        return terminal
    width = None if os.environ.get("COLUMNS", "").isdecimal() else WIDTH
    return Console(highlight=False, markup=False, width=width, color_system=None)


class FittedTable(Table):
    """A table that comes to fit: with closer columns, then with wrapped ones, then without those that are ``spare``.

    The last of these goes first. Cells that still do not fit are folded, never cropped. A cell that is a verdict has
    its colour.
    """

    spare: Sequence[str] = ()

    def add_row(self, *cells: RenderableType | None, **options: object) -> None:
        """Add a row; see rich."""
        coloured = (judged(cell) if isinstance(cell, str) else cell for cell in cells)
        super().add_row(*coloured, **options)  # type: ignore[arg-type]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render what fits."""
        shown = self._fitted(console, options)
        yield from Table.__rich_console__(shown, console, options)
        kept = {column.header for column in shown.columns}
        if gone := [str(column.header) for column in self.columns if column.header not in kept]:
            yield Text(f"Left out at this width: {', '.join(gone)}.")

    def _fitted(self, console: Console, options: ConsoleOptions) -> FittedTable:
        shown, left = copy(self), list(self.spare)
        while not shown._fits(console, options):
            if shown.padding != (0, 0, 0, 0):
                shown.padding = 0
            elif (folded := _folded(shown.columns, options.max_width)) is not None:
                shown.columns = folded
                break
            elif left:
                gone = left.pop()
                kept = [column for column in shown.columns if column.header != gone]
                shown.columns = [replace(column, _index=place) for place, column in enumerate(kept)]
            else:
                shown.columns = [replace(column, no_wrap=False, overflow="fold") for column in shown.columns]
                break
        return shown

    def _fits(self, console: Console, options: ConsoleOptions) -> bool:
        wide = options.update(max_width=10 * WIDTH)
        *others, last = (console.measure(_alone(column), options=wide) for column in self.columns)
        _, right, _, left = self.padding
        edges = 2 + len(others) * (1 + left + right)
        least = max(min(last.maximum, _LEAST), _longest_word(self.columns[-1]))
        return sum(other.maximum for other in others) + least + edges <= options.max_width


def table(
    titles: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[int] = (), title: str = "",
    spare: Sequence[str] = (),
) -> FittedTable:
    """Return a table with the columns in ``right`` flush right; only the last column wraps while the table fits.

    ``spare`` names columns that a narrow terminal does without, the most important first.
    """
    built = FittedTable(
        box=box.SIMPLE_HEAD, title=title or None, title_justify="left", title_style="bold", pad_edge=False,
    )
    built.spare = spare
    for number, heading in enumerate(titles):
        built.add_column(heading, justify="right" if number in right else "left", no_wrap=number < len(titles) - 1)
    for row in rows:
        built.add_row(*row)
    return built


def print_table(
    titles: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[int] = (), spare: Sequence[str] = (),
) -> None:
    """Print a table; see ``table``."""
    console().print(table(titles, rows, right, spare=spare))


def judged(text: str, verdict: str | None = None) -> str | Text:
    """Return a text with the verdict that it is, or that it has, in its colour."""
    word = text if verdict is None else verdict
    if word not in _COLOURS:
        return text
    coloured = Text(text)
    coloured.highlight_words([word], _COLOURS[word])
    return coloured


def gib(size: int | Fraction) -> str:
    """Return bytes as GiB with two decimals; a little is not shown as nothing."""
    value = float(size / 2**30)
    return "<0.01" if 0 < value < 0.005 else f"{value:.2f}"


def chance(probability: float) -> str:
    """Write a probability in percent; a little is not shown as nothing, nor nearly all as all."""
    if probability < 0.001:
        return "<0.1%"
    return ">99.9%" if 0.999 < probability < 1 else f"{probability:.1%}"


def _folded(columns: Sequence[Column], width: int) -> list[Column] | None:
    """Get the columns with those flush right wrapped between words, and the last one; None where that is not enough."""
    wide = [max(map(len, _texts(column))) for column in columns]
    words = [_longest_word(column) for column in columns]
    narrow = [
        word if column.justify == "right" else natural
        for column, word, natural in zip(columns, words, wide, strict=True)
    ]
    narrow[-1] = max(words[-1], min(narrow[-1], _LEAST))
    left = width - sum(narrow) - len(columns) - 1
    if left < 0:
        return None
    sizes = list(narrow)
    for place in (-1, *range(len(columns) - 1)):
        sizes[place] = min(wide[place], narrow[place] + left)
        left -= sizes[place] - narrow[place]
    return [replace(column, no_wrap=False, width=size) for column, size in zip(columns, sizes, strict=True)]


def _texts(column: Column) -> list[str]:
    return [str(cell) for cell in (column.header, *column._cells)]


def _longest_word(column: Column) -> int:
    return max(len(word) for text in _texts(column) for word in text.split() or [""])


def _alone(column: Column) -> Table:
    """Return a table of one column."""
    built = Table(box=None, padding=0, show_header=True)
    built.columns = [replace(column, _index=0, no_wrap=True)]
    return built
