"""Tables in the terminal, made by rich; plain enough to be pasted into a report, and as narrow as the terminal is."""

from __future__ import annotations

import os
import re
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
#: Where a name may be cut: behind a sign, before a letter. Numbers stay whole.
_CUT = re.compile(r"(?<=[_/.+-])(?=[^\W\d])")
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

    The last of these goes first. Then names are cut at their signs, and what still does not fit is folded, never
    cropped. A cell that is a verdict has its colour.
    """

    spare: Sequence[str] = ()

    def add_row(self, *cells: RenderableType | None, **options: object) -> None:
        """Add a row; see rich."""
        coloured = (judged(cell) if isinstance(cell, str) else cell for cell in cells)
        super().add_row(*coloured, **options)  # type: ignore[arg-type]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render what fits, under a title that is as wide as the terminal."""
        shown = self._fitted(console, options)
        if self.title:
            yield Text(str(self.title), style=self.title_style or "")
            shown.title = None
        yield from Table.__rich_console__(shown, console, options)
        kept = {str(column.header).replace("\n", "") for column in shown.columns}
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
            elif (cut := _cut(shown.columns, options.max_width)) is not None:
                shown.columns = cut
                break
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
    """Get the columns with those flush right wrapped between words, and the last one; None where that is not enough.

    Titles are cut at their signs too.
    """
    wide = [_longest_text(column) for column in columns]
    narrow = [
        _longest_word(column) if column.justify == "right" else natural
        for column, natural in zip(columns, wide, strict=True)
    ]
    narrow[-1] = max(_longest_word(columns[-1]), min(wide[-1], _LEAST))
    return _sized(columns, width, narrow, (wide,))


def _cut(columns: Sequence[Column], width: int) -> list[Column] | None:
    """Get the columns with names cut at their signs; None where that is not enough."""
    words, texts = ([measure(column) for column in columns] for measure in (_longest_word, _longest_text))
    return _sized(columns, width, [_longest_part(column) for column in columns], (words, texts))


def _sized(
    columns: Sequence[Column], width: int, narrow: Sequence[int], wider: Iterable[Sequence[int]],
) -> list[Column] | None:
    """Get the columns as wide as ``narrow``, and as each of ``wider`` while there is room; None where that is too wide.

    A column flush right becomes as wide as that, or stays as it is.
    """
    left = width - sum(narrow) - len(columns) - 1
    if left < 0:
        return None
    sizes = list(narrow)
    for wide in wider:
        for place in (-1, *range(len(columns) - 1)):
            more = max(0, wide[place] - sizes[place])
            if columns[place].justify == "right" and more > left:
                continue
            more = min(more, left)
            sizes[place] += more
            left -= more
    return [_within(column, size) for column, size in zip(columns, sizes, strict=True)]


def _within(column: Column, size: int) -> Column:
    """Return a column of a width, with the names cut that are wider."""
    cells = [_lines(cell, size) for cell in column._cells]
    return replace(column, no_wrap=False, width=size, overflow="fold", header=_lines(column.header, size), _cells=cells)


def _lines(cell: RenderableType, size: int) -> RenderableType:
    """Return a text with line breaks at signs in words that are wider than ``size``."""
    if not isinstance(cell, str):
        return cell
    indent = cell[:len(cell) - len(cell.lstrip())]
    room = size - len(indent)
    if max(map(len, cell.split()), default=0) <= room:
        return cell
    return re.sub(r"\S+", lambda word: f"\n{indent}".join(_packed(_CUT.split(word[0]), room)), cell)


def _packed(parts: Sequence[str], size: int) -> list[str]:
    """Return as few lines as have the parts, each as long as it may be."""
    lines = [""]
    for part in parts:
        if lines[-1] and len(lines[-1]) + len(part) > size:
            lines.append("")
        lines[-1] += part
    return lines


def _texts(column: Column) -> list[str]:
    return [str(cell) for cell in (column.header, *column._cells)]


def _longest_text(column: Column) -> int:
    return max(map(len, _texts(column)))


def _longest_word(column: Column) -> int:
    """Return the width of the longest word, with the title cut at its signs."""
    title, *cells = _texts(column)
    return max(map(len, [*_CUT.sub(" ", title).split(), *" ".join(cells).split()]), default=0)


def _longest_part(column: Column) -> int:
    return max(map(len, _CUT.sub(" ", " ".join(_texts(column))).split()), default=0)


def _alone(column: Column) -> Table:
    """Return a table of one column."""
    built = Table(box=None, padding=0, show_header=True)
    built.columns = [replace(column, _index=0, no_wrap=True)]
    return built
