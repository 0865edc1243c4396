"""A training in phases as bars: hours of every phase, with its own layout and with that of another phase in all."""

from __future__ import annotations

from shardmath.commands.phases.answers import Phases
from shardmath.commands.phases.report import layout_in_words
from shardmath.plots.bars import GROUPS_HEIGHT, draw_groups
from shardmath.plots.picture import Panel, Picture, Table


def picture(answer: Phases) -> Picture:
    """Draw the hours of a training with changing layouts, or one in all phases; a gap where it cannot serve them."""
    gpu = answer.cluster.gpu
    known = {"layouts change": answer.seconds / 3600,
             **{f"{kept.of} in all": None if kept.seconds is None else kept.seconds / 3600 for kept in answer.kept}}
    said = ", ".join(f"{name} " + ("is not possible" if value is None else f"{value:,.4g} hours")
                     for name, value in known.items())
    names = [name if value is not None else f"{name}:\nnot possible" for name, value in known.items()]
    panel = Panel(lambda part: draw_groups(part, names, {"hours": list(known.values())}, "", "hours in all"),
                  GROUPS_HEIGHT, f"Bars of hours of a training: {said}.")
    rows = [[phase.name, layout_in_words(phase), f"{phase.seconds / 3600:,.2f}", f"{phase.mfu:.1%}", phase.verdict,
             phase.rule_80]
            for phase in answer.phases]
    kept = [[item.of, "" if item.seconds is None else f"{item.seconds / 3600:,.2f}", item.verdict or item.reason]
            for item in answer.kept]
    return Picture(
        f"{answer.model.name} on {answer.num_gpus} x {gpu.name} ({gpu.memory_gib:g} GiB)",
        " and ".join(f"{phase.tokens:.3g} tokens in sequences of {phase.seq_length:,}" for phase in answer.phases),
        (panel,),
        (Table("Phases", ("phase", "layout", "hours", "MFU", "verdict", "80 % rule"), rows),
         Table("One layout in all phases", ("layout of", "hours", ""), kept)),
    )
