"""A progress bar for work that takes a while; silent in pipes and for short work."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from shardmath.reports.waiting import PATIENCE, is_watched, silence

if TYPE_CHECKING:
    from rich.progress import Progress, Task, TaskID
    from rich.text import Text

#: From so many things on, the line has a share of them, and no rate: bounds close many at once.
_MANY = 10**12


class Bar:
    """One line with what is done, the rate of late and the remaining time; it appears once the work has lasted a while.

    Called with done and all, and with the unit where it is another one than before: the line then begins anew. The
    first call's count was done before.
    """

    def __init__(self, shown: Progress, unit: str) -> None:
        self._shown, self._unit = shown, unit
        self._started = time.monotonic()
        self._before: int | None = None
        self._task: TaskID | None = None

    def __call__(self, done: int, total: int | None, unit: str | None = None) -> None:
        """Show how far the work is; ``total`` is None where nobody knows."""
        if unit is not None and unit != self._unit:
            self._unit, self._before = unit, None
            if self._task is not None:
                self._shown.remove_task(self._task)
                self._task = None
        if self._before is None:
            self._before = done
        elif self._task is None:
            if time.monotonic() - self._started < PATIENCE or done == total:
                return
            silence()
            self._shown.start()
            self._task = self._shown.add_task(self._unit, total=total, completed=self._before, done="")
        if self._task is not None:
            share = f"{done:,}" if total is None else f"{done:,} of {total:,}"
            if total is not None and total >= _MANY:
                share = f"{done / total:.1%} of {total:.2g}".replace("e+", " x 10^")
            self._shown.update(self._task, completed=done, total=total, done=share)


@contextmanager
def progress(unit: str) -> Iterator[Bar | None]:
    """Yield a bar for this block; None where nobody watches."""
    if not is_watched():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return _rate(task.speed or 0.0)

    shown = Progress(
        TextColumn("{task.fields[done]} {task.description}"), BarColumn(), Rate(),
        TimeRemainingColumn(), console=Console(stderr=True), transient=True,
    )
    try:
        yield Bar(shown, unit)
    finally:
        shown.stop()


def _rate(each_second: float) -> Text:
    from rich.text import Text

    if each_second >= _MANY:
        return Text("")
    if each_second < 1e5:  # a few things that each take long
        return Text(f"{each_second:,.0f}/s" if each_second >= 10 else f"{each_second:.1f}/s")
    return Text(f"{each_second / 1e9:.2f} billion/s" if each_second >= 1e9 else f"{each_second / 1e6:.1f} million/s")
