"""The command ``shardmath page``: one HTML file with formulas, numbers and legal layouts."""

from __future__ import annotations

import click

from shardmath.cli.names import model_names
from shardmath.cli.titled import Titled


@click.command(cls=Titled, short_help="Write one HTML page: formulas, sliders, legal layouts.", examples=(
    "-o page.html",
    "mixtral-8x7b ./config.json -o page.html",
))
@click.argument("models", nargs=-1, metavar="[MODEL]...", shell_complete=model_names)
@click.option("-o", "--output", metavar="FILE", required=True, help="File to write; - is standard output.")
def page(models: tuple[str, ...], output: str) -> None:
    """Write an offline HTML page: sliders for model and layout, memory of every stage, layouts that fit.

    The page has the dense models of `shardmath models`, and every MODEL of the command line: a name, or the path of a
    config.json. Missing evaluators are derived.
    """
    from shardmath.commands.page import page as written
    from shardmath.files.writing import whole_file

    with whole_file("output", output, "wb") as file:  # the page says that it is UTF-8, on any terminal
        file.write(written(models).encode())  # type: ignore[arg-type]
