"""The command ``shardmath appendix``: formulas of one implementation as LaTeX, with the numbers of a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from shardmath.cli.names import MODEL
from shardmath.cli.options import configuration_options, kernel_choices
from shardmath.cli.titled import Titled
from shardmath.configuration.defaults import default_implementation
from shardmath.errors import ABSENT, InputError
from shardmath.reports.waiting import say


@click.command(cls=Titled, short_help="Write formulas and sources as LaTeX and BibTeX.", examples=(
    "--implementation megatron -o appendix.tex",
    "--model llama-3.1-8b --gpu a100-40gb --tp 4 -o appendix.tex",
), work="typesetting formulas")
@click.option("--model", metavar="MODEL", type=MODEL,
              help="Cover one configuration of this model instead.")
@click.option("-o", "--output", metavar="FILE.tex", required=True, help="File to write; the .bib stands beside it.")
@click.option("--input", "body", is_flag=True, help=r"Write a part for \input, without a preamble.")
@configuration_options
def appendix(model: str | None, output: str, body: bool, **options: Any) -> None:
    """Write the tensors, formulas and sources of one implementation as a LaTeX appendix, ready for a paper.

    With --model and the options of `shardmath explain`, the appendix covers one configuration on at most six pages: its
    kernels and values, the terms of the rank that keeps most in letters and numbers, all ranks, and the step time.
    """
    from shardmath.account.configured import configured_on_any
    from shardmath.cli.runs import configuration_arguments
    from shardmath.commands.appendix.run import appendix as made
    from shardmath.files.writing import whole_file

    path = Path(output)
    if path.suffix != ".tex":
        raise InputError("output", output, "must end with .tex: a file .bib is written beside it", f"{path.stem}.tex")
    if model is None:
        _refuse_values(click.get_current_context())
        document = made(options["implementation"] or default_implementation(None), stem=path.stem, standalone=not body,
                     kernels=kernel_choices(options["kernels"]))
    else:
        chosen, gpu, arguments = configuration_arguments(model, options)
        document = made(configuration=configured_on_any(chosen, gpu, **arguments), stem=path.stem, standalone=not body)
    sources = str(path.with_suffix(".bib"))
    with whole_file("output", output) as tex, whole_file("output", sources) as bib:
        tex.write(document.tex)  # type: ignore[call-overload]
        bib.write(document.bib)  # type: ignore[call-overload]
    say(f"{output}, {sources}: {document.cited} sources")


def _refuse_values(context: click.Context) -> None:
    """Refuse options of a configuration where none is asked for."""
    known = {"implementation", "kernels", "output", "body", "model"}
    named = [name for name in context.params if name not in known
             and context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if named:
        raise InputError("model", ABSENT, f"must be given with {named[0]}: it is a value of a configuration")
