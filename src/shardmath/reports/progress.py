"""A progress bar for work that takes a while; silent in pipes and for short work."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

#: Seconds after which work counts as long.
_PATIENCE = 0.7


class Bar:
    """One line with what is done, the rate and the remaining time; it appears once the work has lasted a while.

    Called with done and all, and with the unit where it is another one than before: the line then begins anew. The
    rate is of what was done since the first call.
    """

    def __init__(self, shown: Progress, unit: str) -> None:
        self._shown, self._unit = shown, unit
        self._started = time.monotonic()
        self._first: tuple[int, float] | None = None
        self._task: TaskID | None = None

    def __call__(self, done: int, total: int | None, unit: str | None = None) -> None:
        """Show how far the work is; ``total`` is None where nobody knows."""
        now = time.monotonic()
        if unit is not None and unit != self._unit:
            self._unit, self._first = unit, None
            if self._task is not None:
                self._shown.remove_task(self._task)
                self._task = None
        if self._first is None:
            self._first = (done, now)
            return
        if self._task is None:
            if now - self._started < _PATIENCE or done == total:
                return
            self._shown.start()
            self._task = self._shown.add_task(self._unit, total=total, completed=self._first[0], rate="", done="")
        rate = (done - self._first[0]) / (now - self._first[1])
        shown = f"{rate / 1e9:.2f} billion/s" if rate >= 1e9 else f"{rate / 1e6:.1f} million/s"
        share = f"{done:,}" if total is None else f"{done:,} of {total:,}"
        self._shown.update(self._task, completed=done, done=share, rate=shown)


@contextmanager
def progress(unit: str) -> Iterator[Bar | None]:
    """A bar for this block. Yields None where nobody watches."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    shown = Progress(
        TextColumn("{task.fields[done]} {task.description}"), BarColumn(),
        TextColumn("{task.fields[rate]}"), TimeRemainingColumn(), console=Console(stderr=True), transient=True,
    )
    try:
        yield Bar(shown, unit)
    finally:
        shown.stop()
