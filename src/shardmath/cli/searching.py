"""Progress of a long search, and the signals that end it with the best so far."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from shardmath.cli.stopping import Stop, stopping
from shardmath.reports.progress import Bar, progress


@contextmanager
def searching(is_long: bool) -> Iterator[tuple[Stop, Bar | None]]:
    """Yield the signal that asks a search to end, and its bar; both do nothing unless the search is long.

    Other searches take seconds: a signal ends them at once.
    """
    if not is_long:
        yield Stop(), None
        return
    with stopping() as stop, progress("layouts") as bar:
        yield stop, bar
