"""Tables in the terminal, made by rich; plain enough to be pasted into a report, and as narrow as the terminal is."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from fractions import Fraction

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from shardmath.generated.definitions import VERDICTS
from shardmath.reports.captured import WIDTH, capturing
from shardmath.reports.columns import Cell, Column, fitted
from shardmath.reports.folding import Sentence, Terminal
from shardmath.reports.waiting import silence

#: Column of the probability that the process on the fullest rank runs out of memory.
RUNS_OUT = "runs out"
#: Column of the published rule's verdict.
RULE = "80 % rule"
#: Colours of the verdicts, which are always written out too.
_COLOURS = dict(zip((name for name, _ in VERDICTS), ("green", "yellow", "red"), strict=True))


def console() -> Console:
    """Return the terminal at its width, or plain text for a file, a pipe or an answer's text.

    Brackets are text: a formula has them. ``COLUMNS`` says how wide plain text may be.
    """
    if (own := capturing()) is not None:
        return own
    silence()
    terminal = Terminal(highlight=False, markup=False)
    if terminal.is_terminal:
        return terminal
    width = None if os.environ.get("COLUMNS", "").isdecimal() else WIDTH
    return Terminal(highlight=False, markup=False, width=width, color_system=None)


class FittedTable:
    """A table that comes to fit the terminal; see ``columns.fitted``. A cell that is a verdict has its colour."""

    def __init__(self, titles: Sequence[str], right: Collection[int], title: str, spare: Sequence[str]) -> None:
        """Begin a table without rows; see ``table``."""
        self.columns = [Column(text, number in right) for number, text in enumerate(titles)]
        self.title, self._spare = title, tuple(spare)
        self._sections = set[int]()

    def add_row(self, *cells: Cell) -> None:
        """Add a row with a cell for every column."""
        for column, cell in zip(self.columns, cells, strict=True):
            column.cells.append(judged(cell) if isinstance(cell, str) else cell)

    def add_section(self) -> None:
        """Draw a line below the rows so far."""
        self._sections.add(len(self.columns[0].cells) - 1)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render what fits, without blanks at the ends of lines, under a title that is as wide as the terminal."""
        if self.title:
            yield Sentence(Text(self.title, style="bold"))
        columns, padding, gone = fitted(self.columns, self._spare, options.max_width)
        built = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, padding))
        for column in columns:
            built.add_column(column.title, justify="right" if column.right else "left", width=column.width,
                             no_wrap=not column.wraps, overflow="fold" if column.folds else "ellipsis")
        for number, cells in enumerate(zip(*(column.cells for column in columns), strict=True)):
            built.add_row(*cells, end_section=number in self._sections)
        for line in console.render_lines(built, options, pad=False):
            yield from _stripped(line)
            yield Segment.line()
        if gone:
            yield Sentence(Text(f"Left out at this width: {', '.join(gone)}."))


def _stripped(line: Sequence[Segment]) -> list[Segment]:
    """Return a line without the blanks at its end."""
    kept = list(line)
    while kept and not kept[-1].text.strip():
        kept.pop()
    return [*kept[:-1], Segment(kept[-1].text.rstrip(), kept[-1].style)] if kept else []


def table(
    titles: Sequence[str], rows: Iterable[Sequence[Cell]], right: Collection[int] = (), title: str = "",
    spare: Sequence[str] = (),
) -> FittedTable:
    """Return a table with the columns in ``right`` flush right; only the last column wraps while the table fits.

    ``spare`` names columns that a narrow terminal does without, the most important first.
    """
    built = FittedTable(titles, right, title, spare)
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
