"""A training in phases in the terminal: phases, changes, and whether one layout would be better."""

from __future__ import annotations

from shardmath.commands.phases.answers import Phase, Phases
from shardmath.reports.sizes import in_words
from shardmath.reports.tables import RULE, console, gib, judged, table
from shardmath.reports.time import show_error


def show(answer: Phases) -> None:
    """Print a training in phases."""
    out = console()
    gpu = answer.cluster.gpu
    out.print(f"{answer.model.name} on {answer.num_gpus} x {gpu.name} ({gpu.memory_gib:g} GiB)")
    out.print(table(
        ("phase", "tokens", "sequence", "batch", "tokens/s", "MFU", "hours", "GPU-hours", "peak", "share", "verdict",
         RULE),
        [[phase.name, f"{phase.tokens:.3g}", f"{phase.seq_length:,}", f"{phase.global_batch_size:,}",
          f"{phase.tokens_per_second:,.0f}", f"{phase.mfu:.1%}", _hours(phase.seconds),
          f"{phase.gpu_hours:,.0f}", gib(phase.peak_bytes),
          f"{phase.share:.1%}", judged(phase.verdict),
          phase.rule_80] for phase in answer.phases],
        right=range(1, 10), title="Phases, peaks in GiB", spare=("GPU-hours", RULE, "batch", "share"),
    ))
    for phase in answer.phases:
        out.print(f"{phase.name}: {layout_in_words(phase)}")
    if answer.changes:
        out.print(table(
            ("change before", "weights", "states", "most", "network", "written", "read", "checkpoint"),
            [[item.before, gib(item.weight_bytes), gib(item.state_bytes), gib(item.most_bytes),
              f"{item.network_seconds:.3g} s", gib(item.written_bytes), gib(item.read_bytes),
              "" if item.checkpoint_seconds is None else f"{item.checkpoint_seconds:.3g} s"]
             for item in answer.changes],
            right=range(1, 8), title="Changes: GiB that all ranks and the one of most receive, GiB of a checkpoint",
        ))
    changing = sum(item.seconds for item in answer.changes)
    out.print(f"In all {_hours(answer.seconds)} hours, {answer.gpu_hours:,.0f} GPU-hours; "
              f"changes take {changing:.3g} s.")
    show_error(out, answer.phases[0].error, bool(answer.model.num_experts), answer.cluster)
    for kept in answer.kept:
        took = f"{_hours(kept.seconds)} hours, {kept.verdict}" if kept.seconds is not None else f"no ({kept.reason})"
        out.print(f"Layout of {kept.of} in all phases: {took}.")
    if answer.faster is not None:
        out.print(f"Keeping the layout of {answer.faster.of} is faster than changing.")
    elif answer.changes:
        out.print("No layout of a phase that fits all of them is faster than changing.")


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:,.2f}"


def layout_in_words(phase: Phase) -> str:
    """Return the layout of a phase in one line."""
    whose = "best, " if phase.is_best else ""
    try:
        words = in_words(phase.layout)
    except KeyError:  # options as they were given
        words = ", ".join(f"{name} {value}" for name, value in phase.layout.items())
    return f"{whose}{words}, DP {phase.data_parallel}"
