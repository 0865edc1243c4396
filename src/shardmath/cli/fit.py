"""The command ``shardmath fit``: a configuration asked backwards."""

from __future__ import annotations

import json as json_format
from typing import Any

import click

from shardmath.cli.options import configuration_options


@click.command(short_help="Solve a configuration for what still fits.")
@click.argument("model")
@configuration_options
@click.option("--solve", "solve", metavar="SYMBOL",
              help="What to solve for: micro_batch_size, seq_length, num_layers, hidden_size, num_gpus,"
                   " model_parallel, gpu_memory, or another size or degree  [default: all of these]")
@click.option("--share", metavar="SHARE", help="Part of the memory that a peak may take  [default: the 80 % rule]")
@click.option("--keep", default="head_dim", show_default=True,
              help="What stays while hidden_size grows: head_dim, heads, or all.")
@click.option("--latex", "form", flag_value="latex", help="Print the inverted formula as LaTeX.")
@click.option("--unicode", "form", flag_value="unicode", help="Print the inverted formula as Unicode text.")
@click.option("--json", is_flag=True, help="Print everything as JSON.")
def fit(
    model: str, solve: str | None, share: str | None, keep: str, form: str | None, json: bool, **options: Any,
) -> None:
    """Solve one layout of MODEL for the last value that fits, and print the formula for it.

    The largest micro-batch size, sequence length, number of layers or hidden size; the fewest GPUs; the smallest
    TP * PP; the memory that a GPU would need.
    """
    from shardmath.cli.runs import configuration_arguments
    from shardmath.inverse import fit as solved
    from shardmath.reports.fit import show

    chosen, gpu, arguments = configuration_arguments(model, options)
    found = solved(chosen, gpu, solve, share=share, keep=keep, formulas=form is not None or None, **arguments)
    if json:
        click.echo(json_format.dumps(found.to_dict(), indent=2, ensure_ascii=False))
    elif form is not None:
        for answer in found.answers:
            click.echo(answer.formula_as(form))
    else:
        show(found)
