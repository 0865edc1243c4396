"""Tables in the terminal, made by rich; plain enough to be pasted into a report."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from fractions import Fraction

from rich import box
from rich.console import Console
from rich.table import Table

#: Columns of text that the widest table needs.
_WIDTH = 130


def console() -> Console:
    """The terminal, or plain text where the output goes to a file or a pipe; never too narrow for our tables.

    A terminal wraps what is wider than itself, which loses nothing; a cropped number would be lost. Brackets are text:
    a formula has them.
    """
    terminal = Console(highlight=False)
    if terminal.is_terminal:
        return Console(highlight=False, markup=False, width=max(terminal.width, _WIDTH))
    return Console(highlight=False, markup=False, width=_WIDTH, color_system=None)


def table(titles: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[int] = (), title: str = "") -> Table:
    """A table with the columns numbered in ``right`` flush right; only the last column may wrap."""
    built = Table(box=box.SIMPLE_HEAD, title=title or None, title_justify="left", title_style="bold", pad_edge=False)
    for number, heading in enumerate(titles):
        built.add_column(heading, justify="right" if number in right else "left", no_wrap=number < len(titles) - 1)
    for row in rows:
        built.add_row(*row)
    return built


def print_table(titles: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[int] = ()) -> None:
    """Print a table."""
    console().print(table(titles, rows, right))


def gib(size: int | Fraction) -> str:
    """Bytes as GiB with two decimals; a little is not shown as nothing."""
    value = float(size / 2**30)
    return "<0.01" if 0 < value < 0.005 else f"{value:.2f}"
