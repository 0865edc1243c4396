"""A report as text or as HTML, instead of on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from io import StringIO
from typing import Any

from rich.console import Console
from rich.terminal_theme import TerminalTheme

from shardmath.reports.folding import Terminal

#: Columns of text where there is no terminal to ask.
WIDTH = 130
#: The console that takes the place of the terminal while a report is captured.
_CONSOLE: ContextVar[Console | None] = ContextVar("_CONSOLE", default=None)
#: Black, red, green, yellow, blue, magenta, cyan and white that can be read on white and on black: a notebook may be
#: light or dark.
_COLOURS = TerminalTheme((255, 255, 255), (0, 0, 0), [
    (0, 0, 0), (215, 58, 73), (26, 138, 69), (160, 112, 0),
    (60, 120, 216), (176, 82, 192), (20, 132, 150), (120, 120, 120)])
#: A report in a page: letters of one width, in the colours of the page.
_PAGE = '<pre style="line-height:1.2;overflow-x:auto;font-family:Menlo,Consolas,monospace">{code}</pre>'


def capturing() -> Console | None:
    """Return the console of the report that is being captured; None outside of one."""
    return _CONSOLE.get()


def text(show: Callable[[Any], None], answer: Any) -> str:
    """Return the report of an answer as plain text."""
    with _captured() as console:
        show(answer)
    return console.export_text(clear=False)


def html(show: Callable[[Any], None], answer: Any) -> str:
    """Return the report of an answer as HTML that needs no style sheet."""
    with _captured() as console:
        show(answer)
    return console.export_html(theme=_COLOURS, inline_styles=True, code_format=_PAGE)


@contextmanager
def _captured() -> Iterator[Console]:
    console = Terminal(file=StringIO(), record=True, width=WIDTH, highlight=False, markup=False, force_jupyter=False,
                       color_system="standard", force_terminal=True, legacy_windows=False)
    token = _CONSOLE.set(console)
    try:
        yield console
    finally:
        _CONSOLE.reset(token)
