"""A snapshot in the terminal: memory by cause, rows of the ledger beside it, and stacks that nothing explains."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shardmath.commands.snapshot.answers import Holder, Second, Snapshot
from shardmath.reports.tables import console, table

#: Stacks and frames of each that are shown, and rows.
STACKS, FRAMES, ROWS = 10, 3, 25
UNKNOWN = "made before the trace, or no frames recorded"


def show(answer: Snapshot) -> None:
    """Print a snapshot."""
    out = console()
    out.print(f"{gib(answer.reserved_bytes)} GiB reserved when the snapshot was taken, "
              f"{gib(answer.allocated_bytes)} GiB of it allocated")
    _causes(answer, out.print)
    largest = ", ".join(gib(size) for size in answer.largest_segments)
    out.print(f"{answer.segments:,} segments; the largest, GiB: {largest}")
    if not answer.events:
        out.print("The snapshot has no trace: torch.cuda.memory._record_memory_history() was not called.")
    else:
        history = "the whole history" if answer.is_whole else "a part of the history"
        out.print(f"{answer.events:,} entries of the trace, {history}; peak of what was asked for: "
                  f"{gib(answer.peak_allocated_bytes)} GiB, of what was reserved: "
                  f"{gib(answer.peak_reserved_bytes)} GiB")
    if answer.predicted is None:
        out.print(stack_table("GiB at the peak", answer.holders))
    else:
        _rows(answer, out.print)
    if answer.second is not None:
        _second(answer, answer.second, out.print)


def _causes(answer: Snapshot, say: Callable[..., None]) -> None:
    replayed = answer.replayed
    predicted = None if answer.predicted is None else answer.predicted.fullest
    further = {"trace replayed": replayed, "predicted": predicted}
    titles = ["memory", "bytes", "GiB", *(title for title, column in further.items() if column)]
    names = ("reserved_bytes", "allocated_bytes", "rounding_bytes", "awaiting_bytes", "split_bytes", "cached_bytes")
    words = ("reserved", "  allocated", "    of it rounding", "  waits for another stream",
             "  free in segments in use", "  free in whole segments")
    rows = [(word, f"{getattr(answer, name):,}", gib(getattr(answer, name)),
             *(gib(getattr(other, name)) for other in further.values() if other is not None))
            for word, name in zip(words, names, strict=True)]
    blanks = ("",) * (len(titles) - 3)
    rows += [(word, f"{size:,}", gib(size), *blanks) for word, size in (
        ("  free in the small pool, counted above", answer.small_pool_bytes),
        ("  free in pools of other streams, counted above", answer.other_streams_bytes))]
    say(table(titles, rows, right=range(1, len(titles))))
    if replayed or predicted:
        say("trace replayed: the model of the allocator when it reserves most, GiB; the columns before it: when the "
            "snapshot was taken.")
    if answer.replay_unknown:
        say(f"Not replayed: {answer.replay_unknown}")


def _rows(answer: Snapshot, say: Callable[..., None]) -> None:
    assert answer.predicted is not None
    predicted, measured = answer.predicted.allocated_bytes, answer.peak_allocated_bytes
    left = sum(holder.bytes for holder in answer.unexplained)
    say(f"Peak of pipeline rank {answer.predicted.rank}: predicted {gib(predicted)} GiB, measured {gib(measured)} GiB, "
        f"predicted minus measured {signed(predicted - measured)} GiB ({predicted / max(1, measured) - 1:+.1%}); "
        f"{1 - left / max(1, measured):.1%} of what was measured belongs to a row")
    shown, others = answer.rows[:ROWS], answer.rows[ROWS:]
    lines = [row_line(item.row, item.role, item.predicted_bytes, item.measured_bytes, item.predicted_tensors,
                      item.measured_tensors, ", ".join(item.ways)) for item in shown]
    if others:
        lines.append(row_line(f"{len(others)} smaller rows", "", sum(item.predicted_bytes for item in others),
                              sum(item.measured_bytes for item in others),
                              sum(item.predicted_tensors for item in others),
                              sum(item.measured_tensors for item in others), ""))
    lines.append(row_line("unexplained", "", 0, left, 0, sum(holder.tensors for holder in answer.unexplained), ""))
    say(table(ROW_TITLES, lines, right=(2, 3, 4, 5)))
    if answer.unexplained:
        say(stack_table("GiB unexplained", answer.unexplained))


#: Columns of rows beside what was measured.
ROW_TITLES = ("row", "role", "predicted GiB", "measured", "difference", "tensors", "by")


def row_line(
    row: str, role: str, predicted: int, measured: int, expected: int, tensors: int, ways: str,
) -> tuple[str, ...]:
    """Return one line of the table of rows."""
    return (row, role, gib(predicted), gib(measured), signed(predicted - measured), f"{expected:,} / {tensors:,}", ways)


def _second(first: Snapshot, second: Second, say: Callable[..., None]) -> None:
    pairs = (("reserved", first.reserved_bytes, second.reserved_bytes),
             ("peak of what was asked for", first.peak_allocated_bytes, second.peak_allocated_bytes),
             ("peak of what was reserved", first.peak_reserved_bytes, second.peak_reserved_bytes))
    rows = [(name, gib(before), gib(after), signed(after - before)) for name, before, after in pairs]
    for title, listed in (("row", second.rows), ("stack", second.stacks)):
        rows += [(f"{title} {short(item.name.split(' < ')) if item.name else UNKNOWN}", gib(item.before_bytes),
                  gib(item.after_bytes), signed(item.grown_bytes)) for item in listed[:STACKS]]
    say(table(("two snapshots, GiB", "first", "second", "grown"), rows, right=(1, 2, 3)))


def stack_table(title: str, listed: Sequence[Holder]) -> object:
    """Return a table of stacks with their bytes."""
    return table((title, "tensors", "stack"), [
        (gib(holder.bytes), f"{holder.tensors:,}", short(holder.stack)) for holder in listed[:STACKS]
    ], right=(0, 1))


def short(stack: Sequence[str]) -> str:
    """Return the innermost frames of a stack in a line."""
    return " < ".join(stack[:FRAMES]) or UNKNOWN


def gib(size: int) -> str:
    """Return bytes as GiB with three decimals."""
    return f"{size / 2**30:.3f}"


def signed(size: int) -> str:
    """Return a difference of bytes as GiB with its sign."""
    return f"{size / 2**30:+.3f}"
