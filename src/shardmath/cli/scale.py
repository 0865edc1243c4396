"""The command ``shardmath scale``: one model over many GPUs."""

from __future__ import annotations

from typing import Any

import click

from shardmath.cli.fitting import end_unless, failing_option
from shardmath.cli.names import MODEL
from shardmath.cli.options import Count, Counts, rare_dask_option, search_options
from shardmath.cli.titled import Titled, under
from shardmath.reports.answers import answer


@click.command(cls=Titled, short_help="Show the best layout for each number of GPUs.", examples=(
    "llama-3.1-8b --gpu h100-80gb --num-gpus 8,64,512 --global-batch-size 1024",
    "llama-2-7b --gpu h100-80gb --num-gpus 8,32,128 --tokens-per-gpu 8192",
), either=("global_batch_size", "tokens_per_gpu"), work="searching layouts for each number of GPUs")
@click.argument("model", type=MODEL)
@under(
    "Job and layout",
    click.option("--gpus", "--num-gpus", "num_gpus", type=Counts(), required=True, metavar="N,N,...",
                 help="Numbers of GPUs."),
    click.option("--gbs", "--global-batch-size", "global_batch_size", type=Count(),
                 help="Sequences per step, for every number of GPUs."),
    click.option("--tokens-per-gpu", type=Count(), help="Tokens per step and GPU: the batch grows with the GPUs."),
)
@search_options
@click.option("--plot", metavar="FILE", help="Draw throughput, MFU and energy: .png, .svg or .html.")
@rare_dask_option
@failing_option
@click.option("--json", is_flag=True, help="Print everything as JSON.")
def scale(
    model: str, plot: str | None, dask: str | None, fail_if_nothing_fits: bool, json: bool, **options: Any,
) -> int:
    """Show MODEL over numbers of GPUs, each with its fastest layout that fits.

    MODEL is a name, the path of a config.json, or of a launch script or configuration, whose layout is ignored.
    More GPUs wait more for each other: throughput per GPU falls, while power per GPU hardly does.
    A search of every switch ends on Ctrl-C with the best so far.
    """
    from shardmath.cli.runs import search_arguments
    from shardmath.cli.searching import searching
    from shardmath.commands.scale import scale as run
    from shardmath.commands.scale.plot import picture
    from shardmath.commands.scale.report import show
    from shardmath.plots import refuse_unplottable, write_picture

    refuse_unplottable(plot)
    chosen, gpu, arguments = search_arguments(model, options)
    with searching(options["every_switch"] or dask is not None) as (stop, bar):
        scaling = run(chosen, gpu, progress=bar, stopped=stop, dask=dask, **arguments)
    if json:
        click.echo(answer("scale", scaling.to_dict()))
    else:
        show(scaling)
    if plot is not None:
        write_picture(picture(scaling), plot)
    if not scaling.complete:
        return stop.exit_code
    fitting = any(point.layout is not None for point in scaling.points)
    end_unless(fitting or not fail_if_nothing_fits)
    return 0
