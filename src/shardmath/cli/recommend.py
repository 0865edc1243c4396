"""The command ``shardmath recommend``: the few layouts worth trying, and why."""

from __future__ import annotations

import json as json_format
from typing import Any

import click

from shardmath.cli.options import (
    Count,
    axis_options,
    device,
    implementation_options,
    kernel_choices,
    machine_options,
    run_options,
    without_absent,
)


@click.command(short_help="Say which few layouts to try, and why.")
@click.argument("model")
@click.option("--num-gpus", type=Count(), required=True, help="GPUs of the job.")
@click.option("--global-batch-size", type=Count(), required=True, help="Sequences of one optimizer step.")
@run_options
@axis_options
@implementation_options
@machine_options
@click.option("--json", is_flag=True, help="Print everything as JSON.")
def recommend(
    model: str, gpu: str | None, gpu_memory: float | None, node_size: int | None, kernels: tuple[str, ...], json: bool,
    **options: Any,
) -> None:
    """Say which few layouts of MODEL (a name, or a path of a config.json) to try on a cluster, and why.

    Every legal layout is looked at, those with several chunks of layers on a pipeline rank too. What would change the
    answer is found by asking again.
    """
    from shardmath.advice import recommend as advise
    from shardmath.reports.recommend import show

    found = advise(model, device(gpu, gpu_memory, node_size), node_size=node_size, kernels=kernel_choices(kernels),
                   **without_absent(options))
    if json:
        click.echo(json_format.dumps(found.to_dict(), indent=2))
    else:
        show(found)
