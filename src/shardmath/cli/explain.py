"""The command ``shardmath explain``: the account of one configuration."""

from __future__ import annotations

from typing import Any

import click

from shardmath.cli.names import MODEL
from shardmath.cli.options import configuration_options, writing_options
from shardmath.cli.titled import Titled
from shardmath.reports.answers import answer


@click.command(cls=Titled, short_help="Account for every byte of one layout.", examples=(
    "llama-3.1-8b --gpu a100-40gb --tp 4 --pp 2 --num-gpus 16",
    "mixtral-8x7b --gpu h100-80gb --num-gpus 64 --ep 8 --pp 2",
), work="accounting")
@click.argument("model", type=MODEL)
@configuration_options
@writing_options
@click.option("--alloc-conf", metavar="OPTION:VALUE,...",
              help="PYTORCH_CUDA_ALLOC_CONF of the replay, such as expandable_segments:True.")
@click.option("--all-ranks", is_flag=True, help="Add a line for every pipeline rank.")
@click.option("--full", is_flag=True, help="Show the smallest tensors too, in lines of their own.")
@click.option("--json", is_flag=True, help="Print everything as JSON.")
@click.option("--csv", metavar="FILE", help="Write one row per rank and term; - is standard output.")
@click.option("--plot", metavar="FILE", help="Draw the memory of every rank by role: .png, .svg or .html.")
def explain(
    model: str, format: str | None, output: str | None, alloc_conf: str | None, all_ranks: bool, full: bool,
    json: bool, csv: str | None, plot: str | None, **options: Any,
) -> None:
    """Account for every byte of MODEL in one layout, and for its step time.

    MODEL is a name, the path of a config.json, or of a launch script or configuration of Megatron-LM, torchtitan or
    NeMo, whose settings are the defaults of all options.
    """
    from shardmath.account.configured import configured_on_any
    from shardmath.account.replaying import replayed
    from shardmath.allocator.settings import Settings
    from shardmath.cli.runs import as_file, configuration_arguments, deliver, refuse_unwritten
    from shardmath.commands.explain.plot import picture
    from shardmath.commands.explain.report import show, write_csv
    from shardmath.plots import refuse_unplottable, write_picture

    refuse_unplottable(plot)
    refuse_unwritten(format, output=output)
    chosen, gpu, arguments = configuration_arguments(model, options)
    settings = None if alloc_conf is None else Settings.parsed(alloc_conf)
    explanation = replayed(configured_on_any(chosen, gpu, **arguments), settings)

    def report() -> None:
        if csv is not None:
            write_csv(explanation, csv)
        if plot is not None:
            write_picture(picture(explanation), plot)
        if json:
            click.echo(answer("explain", explanation.to_dict()))
        elif csv != "-":
            show(explanation, all_ranks, full)

    if format is None:
        report()
    else:
        deliver(as_file(format, explanation, arguments.get("pipeline_layout") or explanation.layers), output, report)
