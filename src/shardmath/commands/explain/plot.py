"""Where the memory goes, as stacked bars: one for each pipeline rank, by role, beside the memory of the GPU."""

from __future__ import annotations

from collections.abc import Iterator

from shardmath.account.accounting import Explanation
from shardmath.commands.explain.report import heading, verdict_line
from shardmath.machines.gpu import GIB
from shardmath.plots.bars import GROUPS_HEIGHT, HEIGHT, Bar, accounts, draw, draw_groups
from shardmath.plots.picture import Panel, Picture
from shardmath.reports.tables import gib


def picture(explanation: Explanation) -> Picture:
    """Return bars by role of every pipeline rank at its peak, with lines at what fits and at all of the memory."""
    title, subtitle = heading(explanation).splitlines()
    peak = explanation.peak
    bars = [Bar(str(item.rank), item, explanation.memory_of(item)) for item in explanation.ranks]
    alt = (f"Stacked bars of memory by role for {len(bars)} pipeline ranks; the fullest is rank {peak.rank} with"
           f" {gib(peak.total)} GiB of {explanation.memory_of(peak) / GIB:g} GiB.")
    panel = Panel(lambda part: draw(part, bars, "pipeline rank", "GiB at the peak of a rank"), HEIGHT, alt)
    below = f"{subtitle}. {verdict_line(explanation)}"
    return Picture(title, below, (panel, *_stages(explanation), *_links(explanation)), (
        accounts("GiB of every pipeline rank at its peak", "rank", (
            (str(item.rank), item) for item in explanation.ranks)),))


def _stages(explanation: Explanation) -> Iterator[Panel]:
    """Yield seconds of a micro-batch on every stage, where stages have GPUs of their own."""
    stages = explanation.stages
    if not stages or explanation.time is None:
        return
    names = [f"{stage.gpu.partition('-')[0]}\n{stage.layers} layers" for stage in stages]
    times = [1000 * (stage.microbatch_seconds or 0.0) for stage in stages]
    said = ", ".join(f"{stage.microbatch_seconds:.3g} s on {stage.gpu} with {stage.layers} layers" for stage in stages)
    yield Panel(lambda part: draw_groups(part, names, {"ms": times}, "stage", "ms of a micro-batch"),
                GROUPS_HEIGHT, f"Bars of seconds of a micro-batch on each stage: {said}.")


def _links(explanation: Explanation) -> Iterator[Panel]:
    """Bandwidth of the slowest link of each group of ranks, placed and in the order of the file."""
    placed = explanation.placement
    if placed is None or not placed.links:
        return
    names = [link.group for link in placed.links]
    cases = {
        f"nodes placed, {placed.seconds:.3f} s a step": [link.bytes_per_s / 1e9 for link in placed.links],
        f"order of the file, {placed.file_order_seconds:.3f} s": [link.file_order / 1e9 for link in placed.links],
    }
    yield Panel(lambda part: draw_groups(part, names, cases, "ranks", "slowest link, GB/s of a GPU"), GROUPS_HEIGHT,
                f"Bars of the slowest link of {', '.join(names)}: {'; '.join(cases)}.")
