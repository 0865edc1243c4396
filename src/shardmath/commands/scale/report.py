"""A model over many GPUs in the terminal: the best sizes first, then the best layout at each size and its rates."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from shardmath.account.time import EQUAL, as_fast
from shardmath.commands.scale import Point, Scaling
from shardmath.reports.sizes import in_words
from shardmath.reports.stopped import stopped
from shardmath.reports.tables import console, gib, table
from shardmath.reports.time import COST, cost, show_error, show_overlapped
from shardmath.reports.untried import show_untried


def show(scaling: Scaling) -> None:
    """Print the best numbers of GPUs, then one line for each."""
    out = console()
    gpu = scaling.cluster.gpu
    out.print(f"{scaling.model.name} on {gpu.name} ({gpu.memory_gib:g} GiB), {scaling.implementation}, sequences of"
              f" {scaling.seq_length} tokens", markup=False)
    if not scaling.complete:
        out.print(stopped({f"on {point.num_gpus:,} GPUs": point.gap for point in scaling.points
                           if not point.complete and point.layout is not None}), markup=False)
    fitting = [point for point in scaling.points if point.time is not None and point.layout is not None]
    _show_best(out, scaling, fitting)
    titles = ("GPUs", "batch", "seconds", *(title for title, _ in _rates(scaling, None)), "peak", "layout")
    rows = [_row(scaling, point, len(titles)) for point in scaling.points]
    right = range(len(titles) - 1)
    out.print(table(titles, rows, right=right, title="The fastest layout that fits, by number of GPUs",
                    spare=tuple(title for title, _ in _rates(scaling, None))[1:]))
    for point in scaling.points:
        if point.layout is None:
            gpus = "GPU" if point.num_gpus == 1 else "GPUs"
            out.print(f"On {point.num_gpus} {gpus} {point.missing}.", markup=False)
    show_overlapped(out, next((point.time.machine for point in fitting if point.time is not None), {}),
                    (point.data_parallel * int(point.layout["context_parallel"]) for point in fitting if point.layout))
    show_untried(out, scaling.untried)


def _show_best(out: Console, scaling: Scaling, fitting: Sequence[Point]) -> None:
    """Print the number of GPUs that trains fastest with its layout, where each trains most, and how far times err."""
    if not fitting:
        if scaling.complete:
            out.print("No layout fits on any of these numbers of GPUs.")
        return
    fastest = max(fitting, key=lambda point: point.num_gpus * point.tokens_per_second_per_gpu)
    thrifty = max(fitting, key=lambda point: point.tokens_per_second_per_gpu)
    assert fastest.time is not None
    assert fastest.layout is not None
    out.print(f"Fastest: {fastest.num_gpus:,} GPUs with {in_words(fastest.layout)}, DP {fastest.data_parallel}:"
              f" {fastest.time.tokens_per_second:,.0f} tokens/s, {fastest.time.seconds:.3f} s a step,"
              f" {gib(fastest.peak_bytes)} GiB at the peak", markup=False)
    alike = [point.num_gpus for point in fitting
             if as_fast(1 / point.tokens_per_second_per_gpu, 1 / thrifty.tokens_per_second_per_gpu)]
    others = f"; up to {max(alike):,} GPUs less than {EQUAL:.0%} fewer" if max(alike) > thrifty.num_gpus else ""
    out.print(f"Most for each GPU: {thrifty.num_gpus:,} GPUs, {thrifty.tokens_per_second_per_gpu:,.0f} tokens/s"
              f"{others}", markup=False)
    show_error(out, fastest.time.error, bool(scaling.model.num_experts), scaling.cluster)


def _row(scaling: Scaling, point: Point, width: int) -> list[str]:
    start = [f"{point.num_gpus:,}", f"{point.global_batch_size:,}"]
    if point.layout is None or point.time is None:
        return start + [""] * (width - len(start))
    return [*start, f"{point.time.seconds:.3f}", *(text for _, text in _rates(scaling, point)), gib(point.peak_bytes),
            f"{in_words(point.layout)}, DP {point.data_parallel}"]


def _rates(scaling: Scaling, point: Point | None) -> list[tuple[str, str]]:
    """Titles and, for a point, texts of its rates; those that need power or price only where these are known."""
    time = None if point is None else point.time
    shown = [
        ("tokens/s/GPU", "" if time is None else f"{time.tokens_per_second_per_gpu:,.0f}"),
        ("of first", "" if point is None else f"{point.relative:.1%}"),
        ("MFU", "" if time is None else f"{time.mfu:.1%}"),
        ("waiting", "" if point is None else f"{point.waiting:.1%}"),
    ]
    if scaling.cluster.gpu.power_watts:
        shown += [
            ("W/GPU", "" if point is None else f"{point.watts_per_gpu:.0f}"),
            ("tokens/J", "" if point is None else f"{point.tokens_per_joule:.2f}"),
        ]
    if any(item.time is not None and item.time.cost_per_token for item in scaling.points):
        shown.append((COST, "" if time is None else cost(time.cost_per_token)))
    return shown
