"""The command ``shardmath scale``: one model over many GPUs."""

from __future__ import annotations

from typing import Any

import click

from shardmath.cli.names import model_names
from shardmath.cli.options import (
    Count,
    Counts,
    axis_options,
    device,
    implementation_options,
    kernel_choices,
    machine_options,
    pairs,
    run_options,
    without_absent,
)
from shardmath.reports.answers import answer


@click.command(short_help="Show one model over many numbers of GPUs.")
@click.argument("model", shell_complete=model_names)
@click.option("--num-gpus", type=Counts(), required=True, metavar="N,N,...", help="Numbers of GPUs.")
@click.option("--global-batch-size", type=Count(), help="Sequences of one step, the same everywhere.")
@click.option("--tokens-per-gpu", type=Count(), help="Tokens of one step on each GPU: the batch grows with them.")
@run_options
@axis_options
@implementation_options
@machine_options
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE",
              help="A flag, key or variable of the file that MODEL is, instead of its own. May be repeated.")
@click.option("--plot", metavar="FILE", help="Draw throughput, MFU and energy: .png, .svg or .html.")
@click.option("--json", is_flag=True, help="Print everything as JSON.")
def scale(
    model: str, gpu: str | None, gpu_memory: float | None, node_size: int | None, kernels: tuple[str, ...],
    settings: tuple[str, ...], plot: str | None, json: bool, **options: Any,
) -> None:
    """Show MODEL over numbers of GPUs, each with its fastest layout that fits.

    MODEL is a name, the path of a config.json, or of a launch script or configuration, whose layout is left out.
    What is lost as GPUs are added is waiting for each other: throughput for each GPU falls while each draws nearly the
    same power.
    """
    from shardmath.cli.runs import swept
    from shardmath.commands.scale import scale as run
    from shardmath.commands.scale.plot import picture
    from shardmath.commands.scale.report import show
    from shardmath.plots import refuse_unplottable, write_picture

    refuse_unplottable(plot)
    options = {**without_absent(options), "kernels": kernel_choices(kernels)}
    chosen, options = swept(model, pairs("set", settings, "key=value"), options)
    found = run(chosen, device(gpu, gpu_memory, node_size), node_size=node_size, **options)
    if json:
        click.echo(answer("scale", found.to_dict()))
    else:
        show(found)
    if plot is not None:
        write_picture(picture(found), plot)
