"""The command ``shardmath kernels``: axes of kernels with their options, and who has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from shardmath.cli.titled import Exampled
from shardmath.errors import InputError, nearest_listed
from shardmath.reports.answers import answer

if TYPE_CHECKING:
    from shardmath.configuration.kernel_axes import KernelAxis, KernelOption


@click.command(cls=Exampled, short_help="List axes of kernels and their options.", examples=(
    "attention", "liger --json"))
@click.argument("words", nargs=-1, metavar="[WORD]...")
@click.option("--json", is_flag=True, help="Print JSON, with the implementations that have each option.")
def kernels(words: tuple[str, ...], json: bool) -> None:
    """List the axes of --kernel AXIS=OPTION and their options; filter by words.

    Behind an option stand the implementations that choose it. A word may be anywhere in the text of an axis; the
    name of an axis is that axis alone.
    """
    from shardmath.configuration.kernel_axes import kernel_axes

    known = kernel_axes()
    matching = [axis for axis in known if words == (axis.name,)] or [
        axis for axis in known if all(word.lower() in _text(axis) for word in words)]
    if not matching:
        raise InputError("word", " ".join(words), "must be in the texts of an axis of kernels",
                         nearest_listed(words[0], [axis.name for axis in known], "shardmath kernels"))
    click.echo(answer("kernels", {"kernels": [axis.to_dict() for axis in matching]}) if json else _listed(matching))


def _text(axis: KernelAxis) -> str:
    own = (axis.name, axis.meaning, *(f"{option.name}\n{option.meaning}" for option in axis.options))
    return "\n".join(own).lower()


def _listed(axes: list[KernelAxis]) -> str:
    """Return a paragraph for each axis: its name with its meaning, then a line for each option."""
    from shardmath.reports.tables import console

    formatter = click.HelpFormatter(width=min(console().width, 100))
    for axis in axes:
        formatter.write_text(f"{axis.name}: {axis.meaning}")
        with formatter.indentation():
            formatter.write_dl([(option.name, _described(option)) for option in axis.options])
        formatter.write_paragraph()
    return formatter.getvalue().strip("\n")


def _described(option: KernelOption) -> str:
    """Return the meaning of an option, and who chooses it."""
    from shardmath.generated.definitions import IMPLEMENTATIONS

    by = "all" if len(option.chosen_by) == len(IMPLEMENTATIONS) else ", ".join(option.chosen_by)
    return f"{option.meaning} [{by}]" if by else option.meaning
