"""Report of the layouts that a search did not try."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console

from shardmath.search.untried import Untried


def show_untried(out: Console, left_out: Iterable[Untried]) -> None:
    """Print what was not tried, with the options that try it."""
    texts = [f"{item.what} ({item.option})" for item in left_out]
    if texts:
        out.print(f"Not tried: {'; '.join(texts)}.", markup=False)
