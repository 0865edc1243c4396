"""Report of the changes that make something fit."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console

from shardmath.reports.sizes import in_words
from shardmath.reports.tables import gib, table
from shardmath.search.switches import Switch


def show_switches(out: Console, switches: Iterable[Switch] | None) -> None:
    """Print the changes with the options that make them; nothing where none was tried."""
    if switches is None:
        return
    rows = [(item.options, item.what, gib(item.peak_bytes), item.verdict, in_words(item.layout)) for item in switches]
    if rows:
        out.print(table(("with", "", "peak", "", "layout of least memory then"), rows, right=(2,),
                        title="Changes that make something fit, the smallest first, and GiB"))
    else:
        out.print("No change that is tried makes anything fit.")
