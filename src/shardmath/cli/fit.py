"""The command ``shardmath fit``: a configuration asked backwards."""

from __future__ import annotations

import sys
from typing import Any

import click
from click.core import ParameterSource

from shardmath.cli.encoding import shows
from shardmath.cli.names import MODEL
from shardmath.cli.options import configuration_options, device, kernel_choices
from shardmath.cli.titled import Titled
from shardmath.errors import ABSENT, InputError
from shardmath.generated.definitions import PARAMETERS
from shardmath.reports.answers import answer
from shardmath.reports.waiting import say


@click.command(cls=Titled, short_help="Solve for the largest or smallest value that fits.", examples=(
    "llama-3.1-8b --gpu h100-80gb --tp 4 --pp 4 --num-gpus 64",
    "llama-3.1-8b --gpu h100-80gb --tp 4 --solve micro_batch_size",
), work="solving")
@click.argument("model", type=MODEL)
@configuration_options
@click.option("--solve", "solve", metavar="SYMBOL",
              help="Symbol to solve for: micro_batch_size, seq_length, num_layers, hidden_size, num_gpus,"
                   " model_parallel, gpu_memory, or another size or degree  [default: all of these]")
@click.option("--share", metavar="SHARE", help="Part of the memory that a peak may take, as 0.8 by the 80 % rule"
                                                      "  [default: what the verdict says]")
@click.option("--keep", default="head_dim", show_default=True,
              help="Fixed while hidden_size grows: head_dim, heads, or all.")
@click.option("--latex", "form", flag_value="latex", help="Print the inverted formula as LaTeX.")
@click.option("--unicode", "form", flag_value="unicode", help="Print the inverted formula as Unicode text.")
@click.option("--plot", metavar="FILE", help="Draw how far each symbol can go: .png, .svg or .html.")
@click.option("--json", is_flag=True, help="Print everything as JSON.")
@click.option("--table", metavar="FILE",
              help="Solve every row of this table (Parquet, CSV or Arrow) with --solve; columns are parameters.")
@click.option("-o", "--output", metavar="FILE", help="Parquet file to write for --table.")
def fit(
    model: str, solve: str | None, share: str | None, keep: str, form: str | None, plot: str | None, json: bool,
    table: str | None, output: str | None, **options: Any,
) -> None:
    """Solve one layout of MODEL for the last value that fits, and print the formula for it.

    The largest micro-batch, sequence, number of layers or hidden size; the fewest GPUs; the least TP * PP and memory.
    """
    from shardmath.plots import refuse_unplottable, write_picture

    refuse_unplottable(plot)
    if table is not None:
        if plot is not None:
            raise InputError("plot", plot, "must not be given with --table")
        say(_rows(table, output, solve, model, share, options))
        return
    if output is not None:
        raise InputError("output", output, "must not be given without --table")
    from shardmath.cli.runs import configuration_arguments
    from shardmath.commands.fit import fit as solved
    from shardmath.commands.fit.plot import picture
    from shardmath.commands.fit.report import show

    chosen, gpu, arguments = configuration_arguments(model, options)
    fits = solved(chosen, gpu, solve, share=share, keep=keep, formulas=form is not None or None, **arguments)
    if plot is not None:
        write_picture(picture(fits), plot)
    if json:
        click.echo(answer("fit", fits.to_dict()))
    elif form is not None:
        for item in fits.answers:
            text = item.formula_as(form)
            say(text if shows(sys.stdout, text) else item.formula_as("text"))
    else:
        show(fits)


def _rows(
    table: str, output: str | None, solve: str | None, model: str, share: str | None, options: dict[str, Any],
) -> str:
    """Write the answers of a table; return the summary line."""
    if output is None:
        raise InputError("output", ABSENT, "must be given with --table", "-o answers.parquet")
    if solve is None:
        raise InputError("solve", ABSENT, "must be given with --table")
    from shardmath.commands.fit.rows import fit_rows, write_answers
    from shardmath.reports.progress import progress

    gpu, gpu_memory, node_size, kernels, implementation, risk = (
        options.pop(name) for name in ("gpu", "gpu_memory", "node_size", "kernels", "implementation", "risk"))
    with progress("rows") as report:
        reader = fit_rows(table, solve, model, device(gpu, gpu_memory, node_size), share=share, progress=report,
                          implementation=implementation, kernels=kernel_choices(kernels), risk=risk, **_values(options))
        rows, solved = write_answers(reader, output)
    return f"{output}: {rows:,} rows, {solved:,} with an answer for {solve}"


def _values(options: dict[str, Any]) -> dict[str, int | str]:
    """Return the parameters on the command line. Raises InputError for options that rows cannot have."""
    context, values = click.get_current_context(), dict[str, int | str]()
    for name, value in options.items():
        if context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        if name not in PARAMETERS and name != "recompute":
            raise InputError(name, value, "must not be given with --table: only parameters are")
        values[name] = value if name == "recompute" else int(value)
    return values
