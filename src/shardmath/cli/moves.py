"""The command ``shardmath moves``: what moves the peak of one layout, and what makes it fit."""

from __future__ import annotations

from typing import Any

import click

from shardmath.cli.names import model_names
from shardmath.cli.options import configuration_options
from shardmath.reports.answers import answer


@click.command(short_help="Say what moves the peak, and the smallest changes that make it fit.")
@click.argument("model", shell_complete=model_names)
@configuration_options
@click.option("--share", default="0.8", show_default=True,
              help="Share of the memory that an estimate may take to fit; 1 is all of it.")
@click.option("--vary", multiple=True, metavar="AXIS",
              help="A kernel axis whose other options are tried too, each some seconds at first use. May be repeated.")
@click.option("--formula", metavar="SYMBOL", help="Print the formulas behind the sensitivity to one symbol.")
@click.option("--all", "everything", is_flag=True, help="Show all symbols and all sets of changes.")
@click.option("--json", is_flag=True, help="Print everything as JSON.")
def moves(
    model: str, share: str, vary: tuple[str, ...], formula: str | None, everything: bool, json: bool, **options: Any,
) -> None:
    """Say what moves the peak of MODEL in one layout, and the smallest changes that make it fit.

    MODEL is a name, the path of a config.json, or of a launch script or configuration, whose settings are the defaults
    of all options. The GPUs and the batch stay what they are: data parallelism follows the other sizes. Each change
    comes with what it costs in time.
    """
    from shardmath.cli.runs import configuration_arguments
    from shardmath.commands.moves import moves as found_moves
    from shardmath.commands.moves.report import show, show_formulas

    chosen, gpu, arguments = configuration_arguments(model, options)
    found = found_moves(chosen, gpu, share=share, vary=vary, **arguments)
    behind = None if formula is None else found.formulas(formula)
    if json:
        click.echo(answer("moves", found.to_dict() | {"formulas": None if behind is None else behind.to_dict()}))
    elif behind is not None:
        show_formulas(behind)
    else:
        show(found, everything)
