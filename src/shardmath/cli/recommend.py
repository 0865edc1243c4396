"""The command ``shardmath recommend``: the few layouts worth trying, and why."""

from __future__ import annotations

from typing import Any

import click

from shardmath.cli.names import model_names
from shardmath.cli.options import (
    Count,
    axis_options,
    device,
    implementation_options,
    kernel_choices,
    machine_options,
    pairs,
    run_options,
    without_absent,
    writing_options,
)
from shardmath.errors import InputError
from shardmath.reports.answers import answer


@click.command(short_help="Say which few layouts to try, and why.")
@click.argument("model", shell_complete=model_names)
@click.option("--num-gpus", type=Count(), required=True, help="GPUs of the job.")
@click.option("--global-batch-size", type=Count(), required=True, help="Sequences of one optimizer step.")
@run_options
@axis_options
@implementation_options
@machine_options
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE",
              help="A flag, key or variable of the file that MODEL is, instead of its own. May be repeated.")
@click.option("--choice", type=Count(), default=1, show_default=True, help="Number of the choice that --write writes.")
@writing_options
@click.option("--json", is_flag=True, help="Print everything as JSON.")
def recommend(
    model: str, gpu: str | None, gpu_memory: float | None, node_size: int | None, kernels: tuple[str, ...],
    settings: tuple[str, ...], choice: int, format: str | None, output: str | None, json: bool, **options: Any,
) -> None:
    """Say which few layouts of MODEL to try on a cluster, and why.

    MODEL is a name, the path of a config.json, or of a launch script or configuration, whose layout is left out.
    Every legal layout is looked at, those with several chunks of layers on a pipeline rank too. What would change the
    answer is found by asking again.
    """
    from shardmath.cli.runs import deliver, refuse_output_alone, swept
    from shardmath.commands.recommend import recommend as advise
    from shardmath.commands.recommend.report import show

    refuse_output_alone(format, output)
    options = {**without_absent(options), "kernels": kernel_choices(kernels)}
    chosen, options = swept(model, pairs("set", settings, "key=value"), options)
    found = advise(chosen, device(gpu, gpu_memory, node_size), node_size=node_size, **options)

    def report() -> None:
        if json:
            click.echo(answer("recommend", found.to_dict()))
        else:
            show(found, launched=format is None)

    if format is None:
        report()
        return
    if not 1 <= choice <= len(found.choices):
        raise InputError("choice", choice, f"must be one of the {len(found.choices)} choices")
    deliver(found.choices[choice - 1].script(format), output, report)
