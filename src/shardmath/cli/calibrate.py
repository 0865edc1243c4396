"""The command ``shardmath calibrate``: efficiencies of a cluster, fitted to runs on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from shardmath.cli.names import GPU, NETWORK
from shardmath.cli.options import implementation_options, kernel_choices
from shardmath.cli.titled import Titled
from shardmath.reports.answers import answer
from shardmath.reports.waiting import say

if TYPE_CHECKING:
    from shardmath.commands.calibrate import Calibration


@click.command(cls=Titled, short_help="Fit the efficiencies of a cluster to your own runs.", examples=(
    "runs.csv --gpu h100-80gb --network ndr-400 -o cluster.toml",
    "runs.csv --gpu h100-80gb --json",
), work="fitting")
@click.argument("runs")
@click.option("--gpu", type=GPU, required=True,
              help="GPU: a name of `shardmath gpus`, or a cluster file.")
@click.option("--network", type=NETWORK,
              help="Network: a name of `shardmath networks`  [default: the vendor's]")
@click.option("-o", "--output", metavar="FILE", help="Write the fitted constants as a cluster file.")
@click.option("--stage-stall", is_flag=True,
              help="Fit stage_stall_ns too: unexplained wait of TP ranks while stages cross nodes.")
@implementation_options
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def calibrate(
    runs: str, gpu: str, network: str | None, output: str | None, stage_stall: bool, implementation: str | None,
    kernels: tuple[str, ...], as_json: bool,
) -> None:
    """Fit a few efficiencies and latencies to measured steps, each within its physical range.

    RUNS is a CSV file with a row for each run: `model`, `step_seconds` or `tokens_per_second_per_gpu`, and parameters
    by name, such as `num_gpus`, `tensor_parallel`, `pipeline_parallel`, `micro_batch_size`, `global_batch_size`,
    `seq_length` and `recompute`. Errors are cross-validated: each `group` (a column, or else model, GPUs and sequence
    length) is predicted with constants fitted to all others.
    """
    from shardmath.account.time import as_cluster
    from shardmath.commands.calibrate import calibrate as fitted
    from shardmath.machines import write_cluster

    calibration = fitted(runs, as_cluster(gpu, network), implementation=implementation, kernels=kernel_choices(kernels),
                   stage_stall=stage_stall)
    if output is not None:
        write_cluster(calibration.cluster, output)
    if as_json:
        click.echo(answer("calibrate", calibration.to_dict()))
    else:
        _show(calibration)


def _show(calibration: Calibration) -> None:
    from shardmath.reports.tables import print_table

    print_table(("constant", "usual", "fitted"), [
        (name, f"{start:,}", f"{calibration.fitted[name]:,}") for name, start in calibration.usual.items()
    ], right=(1, 2))
    rows = [
        (item.group, str(item.runs), *(f"{share:.1%}" for share in (item.before, item.after)),
         *(f"{share:+.1%}" for share in (item.before_signed, item.after_signed)))
        for item in (*calibration.groups, calibration.all)
    ]
    print_table(("group", "runs", "error before", "after", "signed before", "after"), rows, right=range(1, 6))
    left = "Each run is predicted with constants fitted to all others." if calibration.one_by_one else (
        "Each group is predicted with constants fitted to all others."
    )
    say(f"Median errors of step time. {left}")
