"""The command ``shardmath page``: one HTML file with formulas, numbers and the best layouts."""

from __future__ import annotations

import click

from shardmath.cli.names import MODEL, kernel_names
from shardmath.cli.options import kernel_options
from shardmath.cli.titled import Titled
from shardmath.reports.waiting import say


@click.command(cls=Titled, short_help="Write one HTML page: memory, time, best layouts, formulas.", examples=(
    "-o page.html",
    "llama-3.1-8b --only --kernel loss=te_fused --kernel fp8=delayed,current -o page.html",
), work="writing the page")
@click.argument("models", nargs=-1, metavar="[MODEL]...", type=MODEL)
@click.option("-o", "--output", metavar="FILE", required=True, help="File to write; - is standard output.")
@click.option("--kernel", "kernels", multiple=True, metavar="AXIS=OPTION", shell_complete=kernel_names,
              help="Add kernels of the first model, in all combinations; several as A,B. May be repeated.")
@click.option("--only", is_flag=True, help="Leave out all models but those named.")
def page(models: tuple[str, ...], output: str, only: bool, kernels: tuple[str, ...]) -> None:
    """Write an offline HTML page: memory, step time and the best layouts of any job, with the formula of each number.

    The page has all models of `shardmath models`, and every MODEL of the command line: a name, or the path of a
    config.json. The first page takes minutes: its formulas are derived and kept for the next one.
    """
    from shardmath.commands.page import page as written
    from shardmath.errors import InputError
    from shardmath.files.writing import whole_file
    from shardmath.reports.progress import progress

    if output != "-" and not output.lower().endswith((".html", ".htm")):
        raise InputError("output", output, "must end with .html", f"{output.rpartition('.')[0] or output}.html")
    with whole_file("output", output, "wb") as file, progress("sets of formulas") as bar:
        text = written(models, only, bar, kernel_options(kernels)).encode()  # UTF-8, on any terminal
        file.write(text)  # type: ignore[arg-type]
    if output != "-":
        say(f"{output}: {len(text) / 1e6:.2f} MB; open it in a browser")
