"""A line that says what takes its time, with a spinner; silent in pipes, for short work, and where nobody wants it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

#: Seconds after which work counts as long.
PATIENCE = 0.7
#: Things made at first use, by the folder of the cache that keeps it.
_MADE = {
    "evaluators": "deriving formulas for these choices", "kernels": "deriving formulas for these choices",
    "scripts": "typesetting formulas", "problems": "ordering loops", "nests": "writing loops",
    "nests_cuda": "writing loops", "objects": "compiling loops", "bounds": "writing bounds",
}
#: The spinner of the command that runs, if it has one.
_running: list[Line] = []
_quiet: list[bool] = [False]


class Line:
    """A line on the standard error that appears after ``PATIENCE``, until the work ends or something is printed."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._shown: Live | None = None
        self._timer = Timer(PATIENCE, self._show)
        self._timer.daemon = True
        self._timer.start()

    def say(self, text: str) -> None:
        """Put another text into the line."""
        self.text = text
        if self._shown is not None:
            self._shown.update(_spinning(text))

    def stop(self) -> None:
        """Remove the line; it does not come back."""
        self._timer.cancel()
        self._timer.join()
        if self._shown is not None:
            self._shown.stop()

    def _show(self) -> None:
        from rich.console import Console
        from rich.live import Live

        # The answer is printed past this line, not through it.
        self._shown = Live(_spinning(self.text), console=Console(stderr=True), transient=True, refresh_per_second=12,
                           redirect_stdout=False, redirect_stderr=False)
        self._shown.start()


def _spinning(text: str) -> RenderableType:
    from rich.spinner import Spinner
    from rich.text import Text

    return Spinner("dots", Text(text))


@contextmanager
def waiting(work: str) -> Iterator[None]:
    """Show a line for this block, once it has lasted a while."""
    if not is_watched():
        yield
        return
    _running.append(Line(work))
    try:
        yield
    finally:
        silence()


@contextmanager
def making(kind: str) -> Iterator[None]:
    """Say in the line of the command that something is made at first use."""
    running, reason = _running[-1:], _MADE.get(kind.partition("/")[0])
    if not running or reason is None:
        yield
        return
    before = running[0].text
    running[0].say(f"first use: {reason}, kept for the next time")
    try:
        yield
    finally:
        running[0].say(before)


def working(text: str) -> None:
    """Say in the line of the command what it works on now."""
    if _running:
        _running[-1].say(text)


def silence() -> None:
    """Remove the line of the command: something is printed now."""
    while _running:
        _running.pop().stop()


def mute() -> None:
    """Show nothing from now on, in a copy of a process that has lines of its own."""
    _running.clear()
    _quiet[0] = True


def say(text: str) -> None:
    """Print a line of the answer on the standard output, in the place of the line of the command."""
    silence()
    print(text, flush=True)


def quiet() -> bool:
    """Tell whether neither progress nor notes are wanted."""
    return _quiet[0]


def is_watched() -> bool:
    """Tell whether somebody looks at the standard error, and wants to see progress there."""
    return not quiet() and sys.stderr.isatty()


@contextmanager
def hushed(wanted: bool) -> Iterator[None]:
    """Show neither progress nor notes in this block, if that is wanted."""
    before, _quiet[0] = _quiet[0], wanted
    try:
        yield
    finally:
        _quiet[0] = before
