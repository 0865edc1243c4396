"""The command ``shardmath``: its subcommands, and one line with exit code 2 for every bad input."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from shardmath import __version__
from shardmath.cli.calibrate import calibrate
from shardmath.cli.catalogue import gpus, models, networks
from shardmath.cli.compare import compare
from shardmath.cli.evaluate import evaluate
from shardmath.cli.explain import explain
from shardmath.cli.explore import explore
from shardmath.cli.formula import formula
from shardmath.cli.page import page
from shardmath.cli.recommend import recommend
from shardmath.cli.scale import scale
from shardmath.cli.sweep import sweep
from shardmath.errors import InputError

_EPILOG = "Start with: shardmath sweep llama-3.1-70b --gpu h100-80gb --num-gpus 512 --global-batch-size 1024"


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}, epilog=_EPILOG)
@click.version_option(__version__, prog_name="shardmath")
def cli() -> None:
    """What fits into GPU memory when a Llama model is trained in parallel, and the formula behind every byte."""


_COMMANDS = (
    sweep, recommend, scale, explore, explain, compare, evaluate, calibrate, formula, page, models, gpus, networks,
)
for _command in _COMMANDS:
    cli.add_command(_command)


def run(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave the process with its exit code."""
    # Pydantic would look through all installed packages for plugins of its own.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    sys.exit(exit_code(arguments))


def exit_code(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 0 if all went well, 2 for bad input, 130 after Ctrl-C."""
    try:
        code = cli.main(args=None if arguments is None else list(arguments), prog_name="shardmath",
                        standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except click.ClickException as error:
        return _refuse(" ".join(error.format_message().split()))
    except InputError as error:
        return _refuse(str(error))
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return 130


def _refuse(line: str) -> int:
    click.echo(f"error: {line}", err=True)
    return 2


if __name__ == "__main__":
    run()
