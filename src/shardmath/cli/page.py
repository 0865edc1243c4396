"""The command ``shardmath page``: one HTML file with formulas, numbers and what fits."""

from __future__ import annotations

import click

from shardmath.cli.names import model_names


@click.command(short_help="Write one HTML page: formulas, sliders, what fits.")
@click.argument("models", nargs=-1, metavar="[MODEL]...", shell_complete=model_names)
@click.option("-o", "--output", metavar="FILE", required=True, help="Where to write the page; - is the terminal.")
def page(models: tuple[str, ...], output: str) -> None:
    """Write a page that needs no network and no server: sliders for model and layout, memory of every stage, what fits.

    It knows the dense models of `shardmath models`, and every MODEL that is named (a name, or a path of a config.json),
    whose evaluators are derived where the package has none.
    """
    from shardmath.commands.page import page as written
    from shardmath.files.writing import whole_file

    with whole_file("output", output, "wb") as file:  # the page says that it is UTF-8, on any terminal
        file.write(written(models).encode())  # type: ignore[arg-type]
