"""A progress bar for work that takes a while; silent in pipes and for short work."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Seconds after which work counts as long.
_PATIENCE = 0.7


@contextmanager
def progress(unit: str) -> Iterator[Callable[[int, int | None], None] | None]:
    """A function that takes done and all, None if unknown; the bar appears once the work has lasted a while.

    Yields None where nobody watches.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    started = time.monotonic()
    bar = Progress(
        TextColumn("{task.fields[done]} " + unit), BarColumn(),
        TextColumn("{task.fields[rate]}"), TimeRemainingColumn(), console=Console(stderr=True), transient=True,
    )
    task: TaskID | None = None

    def report(done: int, total: int | None) -> None:
        nonlocal task
        elapsed = time.monotonic() - started
        if task is None:
            if elapsed < _PATIENCE or done == total:
                return
            bar.start()
            task = bar.add_task(unit, total=total, rate="", done="")
        share = f"{done:,}" if total is None else f"{done:,} of {total:,}"
        bar.update(task, completed=done, done=share, rate=f"{done / elapsed / 1e6:.1f} million/s")

    try:
        yield report
    finally:
        bar.stop()
