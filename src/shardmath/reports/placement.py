"""The order of nodes with measured links in the terminal: which node has which ranks, and the links that decide."""

from __future__ import annotations

from rich.console import Console

from shardmath.account.placement import Placement
from shardmath.reports.tables import table

#: Nodes that are shown at each end of a long list.
_ENDS = 8


def show_placement(out: Console, placement: Placement) -> None:
    """Print the node of each block of ranks, the slowest link of each group, and the gain over the file's order."""
    rows = [
        (node, f"{first} to {last}", _range(stages))
        for node, (first, last), stages in zip(placement.nodes, placement.ranks, placement.stages, strict=True)
    ]
    if len(rows) > 2 * _ENDS:
        rows = [*rows[:_ENDS], ("...", "", ""), *rows[-_ENDS:]]
    out.print(table(("node", "ranks", "stages"), rows, right=(), title="Nodes, placed by links"))
    if placement.links:
        links = [
            (link.group, f"{link.sender} to {link.receiver}" if link.sender else "mean of a pipeline",
             f"{link.bytes_per_s / 1e9:.2f}", f"{link.file_order / 1e9:.2f}")
            for link in placement.links
        ]
        out.print(table(("group", "slowest link", "GB/s", "file order"), links, right=(2, 3),
                        title="Slowest links, 10^9 bytes/s of one GPU"))
    out.print(f"{line(placement)}.", markup=False)


def line(placement: Placement) -> str:
    """Return a line with the time of the step in this order and in the file's, and a bound on faster orders."""
    own, usual = placement.seconds, placement.file_order_seconds
    known = (f"no order of the nodes is faster ({placement.tried:,} tried)" if placement.is_exact else
             f"the fastest of {placement.tried:,} orders; none takes less than {placement.least_seconds:.3f} s")
    return f"Nodes placed: {own:.3f} s instead of {usual:.3f} s in the order of the file ({usual / own:.3f}x); {known}"


def _range(stages: tuple[int, ...]) -> str:
    return str(stages[0]) if len(stages) == 1 else f"{stages[0]} to {stages[-1]}"
