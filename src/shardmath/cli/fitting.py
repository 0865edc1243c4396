"""The exit code that says that nothing fits, for scripts and batch systems."""

from __future__ import annotations

import click

#: Exit code of a run that may not fit, and of a search in which nothing fits if that was asked for.
NOTHING_FITS = 3

failing_option = click.option("--fail-if-nothing-fits", is_flag=True, help="End with exit code 3 if no layout fits.")


def end_unless(fits: bool) -> None:
    """Leave the command with the exit code for what does not fit."""
    if not fits:
        click.get_current_context().exit(NOTHING_FITS)
