"""The command ``shardmath plan``: a training on several kinds and numbers of GPUs."""

from __future__ import annotations

from typing import Any

import click

from shardmath.cli.fitting import end_unless, failing_option
from shardmath.cli.names import MODEL, NETWORK
from shardmath.cli.options import (
    Counts,
    Names,
    Tokens,
    axis_options,
    implementation_options,
    kernel_choices,
    machine_options,
    price_option,
    rare_dask_option,
    risk_option,
    without_absent,
)
from shardmath.cli.titled import Titled, under
from shardmath.reports.answers import answer


@click.command(cls=Titled, short_help="Plan days, money and energy of a training.", examples=(
    "llama-3.1-8b --tokens 15T --gpu h100-80gb,h200-141gb --deadline 90d --price h100-80gb=2.1",
    "llama-3.1-8b --tokens 1T --gpu h100-80gb --gpus 512,1024 --pause 10s --restart 5m",
), either=("num_gpus", "deadline"), work="searching layouts for each kind and number of GPUs")
@click.argument("model", type=MODEL)
@under(
    "Training",
    click.option("--tokens", required=True, metavar="NUMBER", help="Tokens of the whole training, such as 15T."),
    click.option("--seq", "--seq-length", "seq_length", type=Tokens(), help="Tokens per sequence."),
    click.option("--batch-tokens", metavar="NUMBER",
                 help="Tokens per step  [default: as many whole sequences as 16777216 hold]"),
    click.option("--phase", "phases", multiple=True, metavar="TOKENS@LENGTH",
                 help="A later phase with other sequences, out of --tokens, such as 800B@128k. May be repeated."),
)
@under(
    "Cluster",
    click.option("--gpu", "gpus", type=Names(), required=True, metavar="GPU,GPU,...",
                 help="Kinds of GPUs: names of `shardmath gpus`, or cluster files."),
    click.option("--gpus", "--num-gpus", "num_gpus", type=Counts(), default=(), metavar="N,N,...",
                 help="Numbers of GPUs  [default: four doublings from the least that could meet the deadline]"),
    click.option("--network", type=NETWORK, help="Network: a name of `shardmath networks`."),
)
@risk_option
@under(
    "Limits, prices and failures",
    click.option("--deadline", metavar="DURATION", help="Time until the training must end, such as 90d."),
    click.option("--budget", metavar="NUMBER", help="Most that the training may cost, such as 20M."),
    price_option,
    click.option("--carbon", metavar="GRID", help="CO2 of electricity: us, world-2023, or grams per kWh."),
    click.option("--pause", metavar="DURATION", help="Time that training waits for each checkpoint, such as 10s."),
    click.option("--restart", metavar="DURATION", help="Time from a failure until training goes on, such as 5m."),
    click.option("--failures", metavar="NAME",
                 help="Failure rates: llama-3, rsc-1, rsc-2, or a number per 1000 GPU-days  [default: llama-3]"),
)
@axis_options
@implementation_options
@machine_options
@click.option("--plot", metavar="FILE", help="Draw days, money, energy and gains: .png, .svg or .html.")
@rare_dask_option
@failing_option
@click.option("--json", is_flag=True, help="Print everything as JSON.")
def plan(
    model: str, gpus: tuple[str, ...], kernels: tuple[str, ...], plot: str | None,
    dask: str | None, fail_if_nothing_fits: bool, json: bool, **options: Any,
) -> int:
    """Plan the training of MODEL: what it takes on kinds and numbers of GPUs, each with its fastest layout that fits.

    MODEL is a name or the path of a config.json. Amounts have bands: of the error of step times, and of failures.
    """
    from shardmath.cli.searching import searching
    from shardmath.commands.plan import plan as run
    from shardmath.commands.plan.plot import picture
    from shardmath.commands.plan.report import show
    from shardmath.plots import refuse_unplottable, write_picture

    refuse_unplottable(plot)
    with searching(options["every_switch"] or dask is not None) as (stop, bar):
        planned = run(model, gpus=gpus, kernels=kernel_choices(kernels), progress=bar, stopped=stop, dask=dask,
                      **without_absent(options))
    if json:
        click.echo(answer("plan", planned.to_dict()))
    else:
        show(planned)
    if plot is not None:
        write_picture(picture(planned), plot)
    if not planned.complete:
        return stop.exit_code
    end_unless(any(offer.phases for offer in planned.offers) or not fail_if_nothing_fits)
    return 0
