"""Where the memory goes, as stacked bars: one for each pipeline rank, by role, beside the memory of the GPU."""

from __future__ import annotations

from collections.abc import Iterable

from shardmath.account.accounting import Explanation, RankAccount
from shardmath.commands.explain.report import heading
from shardmath.generated.definitions import ROLES
from shardmath.plots.bars import HEIGHT, Bar, draw
from shardmath.plots.picture import Panel, Picture, Table
from shardmath.reports.tables import gib


def picture(explanation: Explanation) -> Picture:
    """Bars by role of every pipeline rank at its peak, with lines at 80 % and at all of the memory of a GPU."""
    title, subtitle = heading(explanation).splitlines()
    peak, memory = explanation.peak, explanation.gpu.memory_bytes
    bars = [Bar(str(item.rank), item, memory) for item in explanation.ranks]
    alt = (f"Stacked bars of memory by role for {len(bars)} pipeline ranks; the highest is rank {peak.rank} with"
           f" {gib(peak.total)} GiB of {explanation.gpu.memory_gib:g} GiB.")
    panel = Panel(lambda part: draw(part, bars, "pipeline rank", "GiB at the peak of a rank"), HEIGHT, alt)
    return Picture(title, subtitle, (panel,), (accounts("GiB of every pipeline rank at its peak", "rank", (
        (str(item.rank), item) for item in explanation.ranks)),))


def accounts(caption: str, title: str, named: Iterable[tuple[str, RankAccount]]) -> Table:
    """Accounts as a table, one row for each with its name in the column ``title``."""
    rows = [
        [name, *(gib(item.by_role[role]) for role in ROLES), gib(item.total), f"{item.share:.1%}", item.verdict,
         item.site]
        for name, item in named
    ]
    return Table(caption, (title, *ROLES, "total", "share", "verdict", "peaks"), rows)
