"""The command ``shardmath phases``: one training with several layouts."""

from __future__ import annotations

import click

from shardmath.cli.options import risk_option
from shardmath.cli.titled import Titled
from shardmath.reports.answers import answer


@click.command(cls=Titled, short_help="Plan a training with several layouts.", examples=(
    "plan.toml", "plan.toml --json",
), work="searching layouts for each phase")
@click.argument("file")
@risk_option
@click.option("--json", is_flag=True, help="Print everything as JSON.")
@click.option("--plot", metavar="FILE", help="Draw hours with one layout and with several: .png, .svg or .html.")
def phases(file: str, risk: str | None, json: bool, plot: str | None) -> None:
    """Show memory and time of every phase in FILE, and the cost of changing layouts between them.

    FILE is TOML: model, gpu, num_gpus, and a table [[phases]] with tokens, seq_length, global_batch_size and layout.
    The file may have risk, network, implementation and [storage] too. A risk given here replaces the file's.
    """
    from shardmath.commands.phases import phases as run
    from shardmath.commands.phases.plot import picture
    from shardmath.commands.phases.report import show
    from shardmath.plots import refuse_unplottable, write_picture

    refuse_unplottable(plot)
    planned = run(file, risk)
    if plot is not None:
        write_picture(picture(planned), plot)
    if json:
        return click.echo(answer("phases", planned.to_dict()))
    return show(planned)
