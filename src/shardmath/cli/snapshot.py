"""The command ``shardmath snapshot``: memory that PyTorch recorded on a GPU, beside the ledger's."""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource

from shardmath.cli.names import MODEL
from shardmath.cli.options import configuration_options
from shardmath.cli.titled import Titled
from shardmath.errors import ABSENT, InputError
from shardmath.reports.answers import answer


@click.command(cls=Titled, short_help="Read a snapshot of PyTorch's memory.", examples=(
    "memory.pickle --run llama3_8b.toml --gpu h100-80gb",
    "before.pickle after.pickle --json",
), work="replaying the snapshot")
@click.argument("file")
@click.argument("second", required=False)
@click.option("--device", type=click.IntRange(min=0), default=0, metavar="INDEX", show_default=True,
              help="Index of the GPU in the file.")
@click.option("--run", "model", metavar="MODEL", type=MODEL,
              help="Compare with this run: a launch file, or a model with the options of its layout.")
@click.option("--rank", type=click.IntRange(min=0), metavar="INDEX",
              help="Pipeline rank of the snapshot  [default: the fullest one]")
@configuration_options
@click.option("--write-anchor", "output", metavar="FILE", help="Write the run and its measured peak for --anchor.")
@click.option("--plot", "--html", "plot", metavar="FILE",
              help="Draw memory over the steps, measured and predicted: .html, .svg or .png.")
@click.option("--json", is_flag=True, help="Print everything as JSON.")
def snapshot(
    file: str, second: str | None, device: int, model: str | None, rank: int | None, output: str | None,
    plot: str | None, json: bool, **options: Any,
) -> None:
    """Show what is reserved in FILE, a pickle of torch.cuda.memory._dump_snapshot, and who holds it at the peak.

    With --run, tensors at the peak are attributed to rows of the ledger; with a SECOND file, stacks and rows that grew
    are listed. Nothing in a file is imported or called.
    """
    from shardmath.account.anchor import write_anchor
    from shardmath.account.configured import configured
    from shardmath.cli.runs import configuration_arguments
    from shardmath.commands.snapshot.plot import picture
    from shardmath.commands.snapshot.report import show
    from shardmath.commands.snapshot.run import snapshot as read
    from shardmath.plots import refuse_unplottable, write_picture

    refuse_unplottable(plot)
    if model is None:
        _refuse_without_run({**options, "rank": rank, "output": output})
        taken = read(file, device, second=second)
    else:
        chosen, gpu, arguments = configuration_arguments(model, options)
        taken = read(file, device, second=second, configuration=configured(chosen, gpu, **arguments), rank=rank)
        if output is not None:
            write_anchor(output, chosen, gpu, arguments, {
                "allocated_bytes": taken.peak_block_bytes, "reserved_bytes": taken.peak_reserved_bytes,
            })
    if plot is not None:
        write_picture(picture(taken), plot)
    if json:
        return click.echo(answer("snapshot", taken.to_dict()))
    return show(taken)


def _refuse_without_run(options: dict[str, Any]) -> None:
    """Raise InputError for an option on the command line that only a run can have."""
    for name, value in options.items():
        if click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE:
            rule = f"must be given: {name} = {value} is about a run"
            raise InputError("run", ABSENT, rule, "--run MODEL")
