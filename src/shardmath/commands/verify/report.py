"""A measured run in the terminal, beside its prediction."""

from __future__ import annotations

from shardmath.commands.verify.answers import Verified
from shardmath.reports.sizes import batch_in_words
from shardmath.reports.tables import console, table


def show(answer: Verified) -> None:
    """Print what was predicted and measured."""
    out = console()
    out.print(f"{answer.model} on {answer.num_gpus} x {answer.gpu}, {answer.implementation}, {answer.layout}, "
              f"{batch_in_words(answer.global_batch_size, answer.seq_length)}")
    rows = [_line("allocated", answer.predicted_allocated_bytes, answer.measured_allocated_bytes)]
    if answer.measured_reserved_bytes is not None:
        rows.append(_line("reserved", answer.predicted_reserved_bytes, answer.measured_reserved_bytes))
    out.print(table(("bytes", "predicted", "measured", "predicted minus measured", "error"), rows, right=range(1, 5)))
    if answer.is_in_range is not None:
        out.print(f"What was reserved lies {'inside' if answer.is_in_range else 'outside'} of the predicted range.")
    by = " with ".join(filter(None, (answer.by, answer.versions)))
    if by:
        out.print(f"Measured by {by}.")


def _line(name: str, predicted: int, measured: int) -> tuple[str, ...]:
    return name, f"{predicted:,}", f"{measured:,}", f"{predicted - measured:+,}", f"{predicted / measured - 1:+.2%}"
