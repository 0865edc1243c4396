"""Memory over the entries of a trace, measured and beside it predicted."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from shardmath.commands.snapshot.answers import Snapshot
from shardmath.commands.snapshot.report import ROW_TITLES, STACKS, gib, row_line, short
from shardmath.errors import ABSENT, InputError
from shardmath.plots.picture import Panel, Picture, Table

#: Inches of a panel, and points of a line: of more entries each point is the largest of several.
_HEIGHT, _POINTS = 2.0, 600
_GIB = 2**30


def picture(answer: Snapshot) -> Picture:
    """Draw what is asked for and reserved after every entry, and below it the same of the replayed run.

    Raises InputError for a snapshot without a trace.
    """
    if not answer.timeline:
        rule = "needs a snapshot with a trace: call torch.cuda.memory._record_memory_history()"
        raise InputError("plot", ABSENT, rule)
    kinds = [("measured", answer.timeline, answer.peak_allocated_bytes, answer.peak_reserved_bytes)]
    if answer.predicted is not None:
        kinds.append(("predicted", answer.predicted_timeline, answer.predicted.allocated_bytes,
                      max(reserved for _, reserved in answer.predicted_timeline)))
    top = 1.08 * max(reserved for *_, reserved in kinds) / _GIB
    panels = tuple(
        Panel(partial(_draw, timeline=timeline, name=name, top=top), _HEIGHT,
              f"Memory {name} over {len(timeline):,} allocations and frees: at most {gib(peak)} GiB asked for,"
              f" {gib(reserved)} GiB reserved.")
        for name, timeline, peak, reserved in kinds
    )
    return Picture("Memory over the steps", "; ".join(
        f"{name}: {gib(peak)} GiB asked for, {gib(reserved)} GiB reserved" for name, _, peak, reserved in kinds
    ), panels, tuple(_tables(answer)))


def _draw(part: Any, timeline: Sequence[tuple[int, int]], name: str, top: float) -> None:
    from matplotlib.ticker import MaxNLocator

    axes = part.add_subplot()
    size = -(-len(timeline) // _POINTS)
    buckets = [timeline[start: start + size] for start in range(0, len(timeline), size)]
    places = [place * size for place in range(len(buckets))]
    asked, reserved = ([max(moment[kind] for moment in bucket) / _GIB for bucket in buckets] for kind in (0, 1))
    axes.fill_between(places, asked, step="post", alpha=0.35, linewidth=0, label="asked for")
    axes.plot(places, reserved, drawstyle="steps-post", label="reserved")
    axes.set(xlabel=f"allocations and frees, {name}", ylabel="GiB", ylim=(0, top), xlim=(0, max(1, places[-1])))
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.spines[["top", "right"]].set_visible(False)
    part.legend(loc="outside lower center", ncols=2, columnspacing=1, handlelength=1)


def _tables(answer: Snapshot) -> list[Table]:
    if answer.predicted is None:
        return [Table("At the peak", ("stack", "GiB", "tensors"), _stacks(answer.holders))]
    rows = [row_line(item.row, item.role, item.predicted_bytes, item.measured_bytes, item.predicted_tensors,
                     item.measured_tensors, ", ".join(item.ways)) for item in answer.rows]
    return [Table("Rows of the ledger", ROW_TITLES, rows),
            Table("Unexplained", ("stack", "GiB", "tensors"), _stacks(answer.unexplained))]


def _stacks(holders: Sequence[Any]) -> list[tuple[str, ...]]:
    return [(short(item.stack), gib(item.bytes), f"{item.tensors:,}") for item in holders[:2 * STACKS]]
