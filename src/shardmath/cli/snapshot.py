"""The command ``shardmath snapshot``: memory that PyTorch recorded on a GPU."""

from __future__ import annotations

import click

from shardmath.cli.titled import Titled
from shardmath.reports.answers import answer


@click.command(cls=Titled, short_help="Read a snapshot of PyTorch's memory.", examples=(
    "memory.pickle", "memory.pickle --device 1 --json",
), work="replaying the snapshot")
@click.argument("file")
@click.option("--device", type=click.IntRange(min=0), default=0, metavar="INDEX", show_default=True,
              help="Index of the GPU.")
@click.option("--json", is_flag=True, help="Print everything as JSON.")
def snapshot(file: str, device: int, json: bool) -> None:
    """Show what is reserved in FILE, a pickle of torch.cuda.memory._dump_snapshot, and who holds it at the peak.

    Nothing in the file is imported or called.
    """
    from shardmath.commands.snapshot.report import show
    from shardmath.commands.snapshot.run import snapshot as read

    taken = read(file, device)
    if json:
        return click.echo(answer("snapshot", taken.to_dict()))
    return show(taken)
