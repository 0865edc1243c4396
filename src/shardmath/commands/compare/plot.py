"""Configurations side by side as stacked bars by role: each on the pipeline rank that is compared."""

from __future__ import annotations

from shardmath.commands.compare import Comparison
from shardmath.commands.explain.report import heading
from shardmath.plots.bars import HEIGHT, Bar, accounts, draw
from shardmath.plots.picture import Panel, Picture, Table
from shardmath.reports.tables import gib


def picture(comparison: Comparison) -> Picture:
    """Return one bar for each configuration, and what they have different as a table."""
    bars = [Bar(side.name, side.account, side.explanation.gpu.memory_bytes) for side in comparison.sides]
    alt = "Stacked bars of memory by role: " + ", ".join(
        f"{side.name} {gib(side.account.total)} GiB, {side.account.verdict}" for side in comparison.sides) + "."
    names = [side.name for side in comparison.sides]
    tables = [accounts("GiB on one GPU", "", ((side.name, side.account) for side in comparison.sides))]
    if comparison.changes:
        rows = [[item.name, *map(str, item.values)] for item in comparison.changes]
        tables.append(Table("What differs", ("", *names), rows))
    first = comparison.sides[0]
    title, subtitle = heading(first.explanation).splitlines()
    others = "; ".join(f"{side.name}: {side.asked}" for side in comparison.sides[1:])
    return Picture(
        title, f"A: {subtitle}; {others}" if others else subtitle,
        (Panel(lambda part: draw(part, bars, "", "GiB at the peak of a rank"), HEIGHT, alt),), tuple(tables),
    )
