"""The command ``shardmath recommend``: the few layouts worth trying, and why."""

from __future__ import annotations

from typing import Any

import click

from shardmath.cli.fitting import end_unless, failing_option
from shardmath.cli.names import MODEL
from shardmath.cli.options import Count, job_options, rare_dask_option, search_options, writing_options
from shardmath.cli.titled import Titled
from shardmath.errors import InputError
from shardmath.reports.answers import answer


@click.command(cls=Titled, short_help="Show the few layouts worth trying, with reasons.", examples=(
    "llama-3.1-70b --gpu h100-80gb --gpus 64 --gbs 512",
    "llama-3.1-8b --gpu h100-80gb --gpus 16 --gbs 128 --write megatron",
), work="searching layouts")
@click.argument("model", type=MODEL)
@job_options
@search_options
@click.option("--choice", type=Count(), default=1, show_default=True, help="Choice that --write prints.")
@writing_options
@rare_dask_option
@failing_option
@click.option("--json", is_flag=True, help="Print everything as JSON.")
@click.option("--plot", metavar="FILE", help="Draw memory and step time of the choices: .png, .svg or .html.")
def recommend(
    model: str, choice: int, format: str | None, output: str | None, dask: str | None,
    fail_if_nothing_fits: bool, json: bool, plot: str | None, **options: Any,
) -> int:
    """Show the few layouts of MODEL worth trying on a cluster, with reasons.

    MODEL is a name, the path of a config.json, or of a launch script or configuration, whose layout is ignored.
    Every legal layout is evaluated, again with changed inputs to show which matter. A search of every switch ends on
    Ctrl-C with the best so far.
    """
    from shardmath.cli.runs import deliver, refuse_unwritten, search_arguments
    from shardmath.cli.searching import searching
    from shardmath.commands.recommend import recommend as advise
    from shardmath.commands.recommend.plot import picture
    from shardmath.commands.recommend.report import show
    from shardmath.plots import refuse_unplottable, write_picture

    refuse_unwritten(format, output=output, choice=choice)
    refuse_unplottable(plot)
    chosen, gpu, arguments = search_arguments(model, options)
    with searching(options["every_switch"] or dask is not None) as (stop, bar):
        advice = advise(chosen, gpu, progress=bar, stopped=stop, dask=dask, **arguments)
    if plot is not None:
        write_picture(picture(advice), plot)

    def report() -> None:
        if json:
            click.echo(answer("recommend", advice.to_dict()))
        else:
            show(advice, launched=format is None)

    if format is None:
        report()
        if not advice.complete:
            return stop.exit_code
        end_unless(bool(advice.choices) or not fail_if_nothing_fits)
        return 0
    if not 1 <= choice <= len(advice.choices):
        raise InputError("choice", choice, f"must be one of the {len(advice.choices)} choices")
    deliver(advice.choices[choice - 1].script(format), output, report)
    return 0 if advice.complete else stop.exit_code
