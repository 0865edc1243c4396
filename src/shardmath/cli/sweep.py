"""The command ``shardmath sweep``: every layout of a model on a cluster."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import click

from shardmath.cli.fitting import end_unless, failing_option
from shardmath.cli.names import MODEL
from shardmath.cli.options import Count, job_options, rare_dask_option, search_options
from shardmath.cli.titled import Titled
from shardmath.reports.answers import answer


@click.command(cls=Titled, short_help="Try every layout and show the best that fit.", examples=(
    "llama-3.1-70b --gpu h100-80gb --num-gpus 512 --global-batch-size 1024",
    "mixtral-8x7b --gpu h100-80gb --num-gpus 64 --global-batch-size 256 --seq-length 4096",
), work="searching layouts")
@click.argument("model", type=MODEL)
@job_options
@search_options
@click.option("--rank-by", metavar="KEY", help="time or memory  [default: time if all speeds are known]")
@click.option("--top", type=Count(), default=10, show_default=True, help="Layouts to show.")
@rare_dask_option
@failing_option
@click.option("--json", is_flag=True, help="Print counts and best layouts as JSON.")
@click.option("--csv", metavar="FILE", help="Write every legal layout as CSV; - is standard output.")
@click.option("--parquet", metavar="FILE", help="Write every legal layout as Parquet; - is standard output.")
@click.option("--plot", metavar="FILE",
              help="Draw the best layout per TP and PP, and step time against memory: .png, .svg or .html.")
def sweep(
    model: str, json: bool, csv: str | None, parquet: str | None, plot: str | None, dask: str | None,
    fail_if_nothing_fits: bool, **options: Any,
) -> int:
    """Try every layout of MODEL on a cluster and show the best that fit.

    MODEL is a name, the path of a config.json, or of a launch script or configuration, whose layout is ignored.
    """
    from shardmath.cli.runs import search_arguments
    from shardmath.cli.searching import searching
    from shardmath.commands.sweep.files import writers
    from shardmath.commands.sweep.gathered import Gathered
    from shardmath.commands.sweep.plot import picture
    from shardmath.commands.sweep.report import show
    from shardmath.commands.sweep.run import sweep as run
    from shardmath.plots import refuse_unplottable, write_picture
    from shardmath.reports.progress import progress

    refuse_unplottable(plot)
    gathered = Gathered()
    chosen, gpu, arguments = search_arguments(model, options)
    with ExitStack() as stack:
        on_layouts = stack.enter_context(writers(csv, parquet, *([] if plot is None else [gathered])))
        stop, bar = stack.enter_context(searching((options["every_switch"] or dask is not None) and on_layouts is None))
        bar = bar or stack.enter_context(progress("layouts"))
        result = run(chosen, gpu, progress=bar, stopped=stop, dask=dask, on_layouts=on_layouts, **arguments)
    if plot is not None:
        write_picture(picture(result, gathered), plot)
    if json:
        click.echo(answer("sweep", result.to_dict()))
    elif "-" not in (csv, parquet):
        show(result)
    if not result.complete:
        return stop.exit_code
    end_unless(bool(result.best) or not fail_if_nothing_fits)
    return 0
