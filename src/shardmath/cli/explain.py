"""The command ``shardmath explain``: the account of one configuration."""

from __future__ import annotations

import json as json_format
from typing import Any

import click

from shardmath.cli.options import (
    Count,
    device,
    implementation_options,
    kernel_choices,
    machine_options,
    pairs,
    parameter_options,
    run_options,
)
from shardmath.generated.definitions import RECOMPUTE_MODES
from shardmath.parameters import MACHINE, OTHERS


@click.command(short_help="Account for every byte of one layout.")
@click.argument("model")
@run_options
@click.option("--tp", "--tensor-parallel", "tensor_parallel", type=Count(), default=1, show_default=True,
              help="Tensor-parallel size.")
@click.option("--cp", "--context-parallel", "context_parallel", type=Count(), default=1, show_default=True,
              help="Context-parallel size.")
@click.option("--pp", "--pipeline-parallel", "pipeline_parallel", type=Count(), default=1, show_default=True,
              help="Pipeline-parallel size.")
@click.option("--dp", "--data-parallel", "data_parallel", type=Count(),
              help="Data-parallel size  [default: what --num-gpus leaves, or 1]")
@click.option("--num-gpus", type=Count(), help="GPUs of the job.")
@click.option("--micro-batch-size", type=Count(), default=1, show_default=True, help="Sequences of a micro-batch.")
@click.option("--global-batch-size", type=Count(),
              help="Sequences of a step  [default: enough to fill the pipeline]")
@click.option("--sequence-parallel/--no-sequence-parallel", default=None,
              help="Shard norms and residuals over TP  [default: the implementation's]")
@click.option("--recompute", default="none", show_default=True,
              help=f"One of {', '.join(RECOMPUTE_MODES)}, or regions with + between them.")
@click.option("--pipeline-layout", metavar="N,N,...",
              help="Layers of every pipeline stage in the order of the model  [default: even]")
@click.option("--anchor", metavar="FILE",
              help="A measured run (JSON) that fixes the constants that no formula knows.")
@parameter_options
@machine_options
@implementation_options
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE",
              help="A flag, key or variable of the file that MODEL is, instead of its own. May be repeated.")
@click.option("--write", "format", metavar="FORMAT",
              help="Print the run as a file of megatron, nemo or torchtitan instead of its account.")
@click.option("--all-ranks", is_flag=True, help="Add a line for every pipeline rank.")
@click.option("--json", is_flag=True, help="Print everything as JSON.")
@click.option("--csv", metavar="FILE", help="Write one row per rank and term; - is the terminal.")
def explain(
    model: str, gpu: str | None, gpu_memory: float | None, node_size: int | None, kernels: tuple[str, ...],
    settings: tuple[str, ...], format: str | None, all_ranks: bool, json: bool, csv: str | None, **options: Any,
) -> None:
    """Account for every byte of MODEL in one layout, and for its step time.

    MODEL is a name, the path of a config.json, or of a launch script or configuration of Megatron-LM, torchtitan or
    NeMo, whose settings are the defaults of all options.
    """
    from shardmath.accounting import explain as account
    from shardmath.cli.runs import as_file, described
    from shardmath.reports.explanation import show, write_csv

    others = {name: options.pop(name) for name in (*OTHERS, *MACHINE)}
    asked: dict[str, Any] = {name: int(value) for name, value in others.items() if value is not None}
    options |= {**asked, "kernels": kernel_choices(kernels)}
    chosen, arguments = described(model, pairs("set", settings, "key=value"), options)
    found = account(chosen, device(gpu, gpu_memory, node_size), node_size=node_size, **arguments)
    if format is not None:
        click.echo(as_file(format, found, arguments.get("pipeline_layout")), nl=False)
        return
    if csv is not None:
        write_csv(found, csv)
    if json:
        click.echo(json_format.dumps(found.to_dict(), indent=2))
    elif csv != "-":
        show(found, all_ranks)
