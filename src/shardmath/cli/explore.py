"""The command ``shardmath explore``: every configuration of a space that a file declares."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import replace
from typing import Any

import click

from shardmath.cli.names import kernel_names
from shardmath.cli.options import Count, dask_option, kernel_options, risk_option
from shardmath.cli.titled import Titled
from shardmath.reports.answers import answer


@click.command(cls=Titled, short_help="Answer questions about a declared space.", examples=(
    "docs/spaces/llama-70b.toml",
    "docs/spaces/shapes.yaml --rows rows.parquet --checkpoint state",
), work="reading the space")
@click.argument("space")
@click.option("--json", is_flag=True, help="Print counts and answers as JSON.")
@click.option("--rows", metavar="FILE", help="Write configurations as a table: .parquet or .csv.")
@click.option("--plot", metavar="FILE", help="Draw the fronts that the space asks for: .png, .svg or .html.")
@click.option("--among", default="fits", show_default=True, metavar="WHICH",
              help="Rows of those that fit (fits), or may fit too (uncertain), or are legal (legal).")
@click.option("--term", "terms", multiple=True, metavar="TERM",
              help="A term or a formula as a further column of the rows. May be repeated.")
@risk_option
@click.option("--checkpoint", metavar="FILE", help="Save the state every few seconds.")
@click.option("--resume", is_flag=True, help="Continue from the checkpoint, if it exists.")
@dask_option
@click.option("--device", default="cpu", show_default=True, metavar="DEVICE",
              help="Sweep on processors (cpu) or on a GPU (cuda).")
@click.option("--backend", default="auto", show_default=True, metavar="NAME",
              help="Compile the loops with llvm or numba, or run them on columns (numpy); auto is numpy or llvm, "
                   "whichever answers sooner.")
@click.option("--method", default="sweep", show_default=True, metavar="NAME",
              help="Look at every configuration (sweep), or find the best and fronts by branch and bound (bounds).")
@click.option("--certificate", metavar="FILE",
              help="Write a proof of the answers of method bounds, which shardmath check checks.")
@click.option("--kernel", "kernels", multiple=True, metavar="AXIS=OPTION,...", shell_complete=kernel_names,
              help="Options of one axis of kernels, all of which are searched. May be repeated.")
@click.option("--threads", type=Count(), help="Threads, or local processes  [default: one for each processor]")
def explore(
    space: str, json: bool, risk: str | None, resume: bool, checkpoint: str | None, plot: str | None,
    kernels: tuple[str, ...], **options: Any,
) -> int:
    """Evaluate every configuration of SPACE (a .toml or .yaml file) and answer its questions.

    Ctrl-C, SIGTERM and SIGHUP stop it with a valid partial answer.
    """
    from shardmath.cli.stopping import stopping
    from shardmath.commands.explore.bounded import is_provable
    from shardmath.commands.explore.plot import picture
    from shardmath.commands.explore.report import show
    from shardmath.commands.explore.run import explore as run
    from shardmath.plots import refuse_unplottable, write_picture
    from shardmath.reports.progress import progress
    from shardmath.search.spaces.files import read_space

    refuse_unplottable(plot)
    declared = read_space(space)
    if risk is not None:
        declared = replace(declared, risk=risk)
    declared = replace(declared, kernels={**declared.kernels, **kernel_options(kernels)})
    with stopping() as stopped, progress("configurations") as bar:
        writing = bar and (lambda done, total: bar(done, total, "rows"))
        explored = run(declared, checkpoint=checkpoint, resume=resume, progress=bar, writing=writing, stopped=stopped,
                    **options)
    if plot is not None:
        write_picture(picture(explored, os.path.basename(space)), plot)
    if json:
        click.echo(answer("explore", explored.to_dict()))
    else:
        show(explored)
    if explored.complete:
        return 0
    if explored.bounds:
        if options["certificate"] is not None and not is_provable(explored):
            click.echo("stopped before the first answers: no certificate was written", err=True)
        return stopped.exit_code
    share = explored.done / explored.size
    click.echo(f"stopped: {explored.done:,} of {explored.size:,} configurations are done ({share:.1%})"
               f"{'' if checkpoint is None else f'; go on with: {_again(resume)}'}", err=True)
    return stopped.exit_code


def _again(resume: bool) -> str:
    return shlex.join(["shardmath", *sys.argv[1:], *(() if resume else ("--resume",))])
