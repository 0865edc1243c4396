"""The layouts worth trying as bars: memory of the fullest rank by role, and where the time of a step goes."""

from __future__ import annotations

from shardmath.commands.recommend.answer import Advice
from shardmath.errors import InputError
from shardmath.generated.definitions import SPENT
from shardmath.plots.bars import HEIGHT, Bar, accounts, draw, draw_stacked
from shardmath.plots.picture import Panel, Picture, Table
from shardmath.reports.sizes import batch_in_words, in_words
from shardmath.reports.tables import gib

#: Share of the longest step from which a part of a step is drawn.
_LEAST = 0.002


def picture(advice: Advice) -> Picture:
    """Return a bar for each choice, of its memory and of its step. Raises InputError where nothing fits."""
    choices = advice.choices
    if not choices:
        raise InputError("plot", advice.model.name, "must have something to show: nothing fits")
    names = [str(place) for place, _ in enumerate(choices, 1)]
    bars = [Bar(name, item.explanation.peak, item.explanation.gpu.memory_bytes)
            for name, item in zip(names, choices, strict=True)]
    sums = [item.time.seconds for item in choices]
    longest = max(sums)
    parts = {part: [item.time.spent.get(part, 0.0) for item in choices] for part in SPENT}
    drawn = {part: seconds for part, seconds in parts.items() if max(seconds) >= _LEAST * longest}
    memory = ", ".join(f"{name} {gib(item.peak_bytes)} GiB, {item.verdict}"
                       for name, item in zip(names, choices, strict=True))
    steps = ", ".join(f"{name} {item.time.seconds:.2f} s" for name, item in zip(names, choices, strict=True))
    rows = [[name, item.role, in_words(item.layout), f"{item.time.seconds:.2f}", f"{item.time.mfu:.1%}",
             gib(item.peak_bytes), item.verdict, item.rule_80] for name, item in zip(names, choices, strict=True)]
    gpus = " and ".join(f"{number} x {gpu.name}" for number, gpu in advice.cluster.machines(advice.num_gpus))
    return Picture(
        f"{advice.model.name} on {gpus}",
        f"{batch_in_words(advice.global_batch_size, advice.seq_length)}; 1: {in_words(choices[0].layout)}",
        (Panel(lambda part: draw(part, bars, "choice", "GiB at the peak of a rank"), HEIGHT,
               f"Stacked bars of memory by role: {memory}."),
         Panel(lambda part: draw_stacked(part, names, drawn, sums, "choice", "seconds of a step"), HEIGHT,
               f"Stacked bars of the parts of a step: {steps}.")),
        (Table("Worth trying", ("", "", "layout", "seconds", "MFU", "peak GiB", "verdict", "80 % rule"), rows),
         accounts("GiB on one GPU", "", zip(names, (item.explanation.peak for item in choices), strict=True)),
         Table("Seconds of a step", ("", *parts), [[name, *(f"{parts[part][place]:.3f}" for part in parts)]
                                                   for place, name in enumerate(names)])),
    )
