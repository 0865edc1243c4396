"""The command ``shardmath moves``: sensitivities of the peak of one layout, and the smallest fixes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from shardmath.cli.names import MODEL
from shardmath.cli.options import configuration_options
from shardmath.cli.titled import Titled
from shardmath.reports.answers import answer


@click.command(cls=Titled, short_help="Show sensitivities of the peak, and the smallest fixes.", examples=(
    "llama-3.1-70b --gpu h100-80gb --tp 4 --pp 4 --num-gpus 64 --global-batch-size 512",
    "llama-3.1-8b --gpu a100-40gb --tp 4 --formula seq_length",
), work="trying changes")
@click.argument("model", type=MODEL)
@configuration_options
@click.option("--share", metavar="SHARE", help="Share of the memory that fits, as 0.8 by the 80 % rule"
                                               "  [default: what the verdict says]")
@click.option("--vary", multiple=True, metavar="AXIS",
              help="Kernel axis to vary too; some seconds per option on first use. May be repeated.")
@click.option("--formula", metavar="SYMBOL", help="Print the formulas behind the sensitivity to one symbol.")
@click.option("--all", "everything", is_flag=True, help="Show all symbols and all sets of changes.")
@click.option("--plot", metavar="FILE", help="Draw sensitivities and changes: .png, .svg or .html.")
@click.option("--json", is_flag=True, help="Print everything as JSON.")
def moves(
    model: str, share: str | None, vary: tuple[str, ...], formula: str | None, everything: bool, plot: str | None,
    json: bool, **options: Any,
) -> None:
    """Show the sensitivities of the peak of MODEL in one layout, and the smallest changes that make it fit.

    MODEL is a name, the path of a config.json, or of a launch script or configuration, whose settings are the defaults
    of all options. The GPUs and the batch stay: data parallelism follows the other sizes. Each change shows its cost in
    time.
    """
    from shardmath.cli.runs import configuration_arguments
    from shardmath.commands.moves import moves as found_moves
    from shardmath.commands.moves.plot import picture
    from shardmath.commands.moves.report import show, show_formulas
    from shardmath.plots import refuse_unplottable, write_picture

    refuse_unplottable(plot)
    chosen, gpu, arguments = configuration_arguments(model, options)
    result = found_moves(chosen, gpu, share=share, vary=vary, **arguments)
    behind = None if formula is None else result.formulas(formula)
    if plot is not None:
        write_picture(picture(result), plot)
    if json:
        click.echo(answer("moves", replace(result, formulas_=behind).to_dict()))
    elif behind is not None:
        show_formulas(behind)
    else:
        show(result, everything)
