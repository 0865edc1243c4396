"""The command ``shardmath``: its subcommands, and one line with exit code 2 for every bad input."""

from __future__ import annotations

import gc
import os
import sys
import warnings
from collections.abc import Sequence
from signal import SIGINT, Signals

import click
from click.shell_completion import add_completion_class

from shardmath import __version__
from shardmath.cli.appendix import appendix
from shardmath.cli.calibrate import calibrate
from shardmath.cli.catalogue import gpus, models, networks
from shardmath.cli.check import check
from shardmath.cli.compare import compare
from shardmath.cli.completion import SHELLS, completion
from shardmath.cli.encoding import spell_on
from shardmath.cli.evaluate import evaluate
from shardmath.cli.explain import explain
from shardmath.cli.explore import explore
from shardmath.cli.fit import fit
from shardmath.cli.formula import formula
from shardmath.cli.kernels import kernels
from shardmath.cli.mcp import mcp
from shardmath.cli.meant import commands_with, meant_command, meant_option, with_hyphens
from shardmath.cli.moves import moves
from shardmath.cli.page import page
from shardmath.cli.phases import phases
from shardmath.cli.plan import plan
from shardmath.cli.prove import prove
from shardmath.cli.recommend import recommend
from shardmath.cli.scale import scale
from shardmath.cli.schema import schema
from shardmath.cli.snapshot import snapshot
from shardmath.cli.stopping import exit_code as after_signal
from shardmath.cli.stopping import heed, number_of
from shardmath.cli.sweep import sweep
from shardmath.cli.verify import verify
from shardmath.errors import InputError, InputWarning
from shardmath.files.cached import watch
from shardmath.reports.waiting import making, quiet, silence

#: Exit code after the reader of our output has ended, as in click and rich.
_BROKEN_PIPE = 1


#: The help of the whole command; click keeps the lines of a paragraph that begins with a backspace.
_HELP = """Find the parallel layouts that fit a language model into GPU memory, and the formula behind every byte.

\b
$ shardmath recommend llama-3.1-70b --gpu h100-80gb --gpus 64 --gbs 512
$ shardmath explain llama-3.1-8b --gpu a100-40gb --gpus 16 --tp 4 --pp 2
"""
_CODES = """Exit codes: 0 answered; 1 the reader of the output ended early; 2 bad input, in one line; 3 nothing fits
(check, and --fail-if-nothing-fits); 128 + n ended by signal n."""


class _Commands(click.Group):
    """The commands by name; another name is refused with the nearest one, which click before 8.4 does not say."""

    def resolve_command(
        self, ctx: click.Context, args: list[str],
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if not ctx.resilient_parsing and not args[0].startswith("-") and args[0] not in self.commands:
            raise InputError("command", args[0], "must be a command", meant_command(args[0], list(self.commands)))
        return super().resolve_command(ctx, args)


@click.group(
    cls=_Commands, help=_HELP, epilog=_CODES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100,
                      "token_normalize_func": with_hyphens},
)
@click.version_option(__version__, prog_name="shardmath")
def cli() -> None:
    """Run ``shardmath``, which does nothing without a subcommand."""


_COMMANDS = (
    sweep, recommend, scale, plan, phases, explore, explain, moves, fit, compare, check, evaluate, calibrate, snapshot,
    verify, formula, prove, appendix, page, models, gpus, networks, kernels, schema, mcp, completion,
)
for _command in _COMMANDS:
    cli.add_command(_command)
for _name, _shell in SHELLS.items():
    add_completion_class(_shell, _name)


#: Containers that are made between two searches for circles: Python's 700 cost a derivation a tenth of its time.
_ALLOCATED = 50_000


def run(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave the process with its exit code."""
    heed()
    watch(making)
    gc.set_threshold(_ALLOCATED)
    # Pydantic would look through all installed packages for plugins of its own.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    for stream in (sys.stdout, sys.stderr):
        spell_on(stream)
    sys.exit(_ended(exit_code(arguments)))


def exit_code(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code, of which ``_CODES`` says the meanings."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default", InputWarning)
            warnings.showwarning = _warn  # type: ignore[assignment]
            code = cli.main(args=None if arguments is None else list(arguments), prog_name="shardmath",
                            standalone_mode=False, obj=exit_code)
        return code if isinstance(code, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except click.exceptions.NoSuchOption as error:
        if meant := meant_option(error.option_name, error.ctx):
            return _refuse(f"No such option '{error.option_name}'.{meant}")
        return _refuse(_unknown(error))
    except click.ClickException as error:
        return _refuse(error.format_message())
    except InputError as error:
        return _refuse(str(error))
    except (click.Abort, KeyboardInterrupt) as error:
        number = number_of(error)
        _say("interrupted" if number == SIGINT else f"ended by {Signals(number).name}")
        return after_signal(number)
    except BrokenPipeError:
        return _BROKEN_PIPE
    except OSError as error:  # a full disk, or no permission to read
        return _refuse(f"{error.filename or 'output'}: {error.strerror or error}")


def _unknown(error: click.exceptions.NoSuchOption) -> str:
    """Say which commands have an option, which ones are alike, or that a launch file may have it where it is read."""
    asked = error.option_name
    if elsewhere := commands_with(asked, error.ctx):
        return f"No such option '{asked}'.{elsewhere}"
    alike = [name for name in error.possibilities or () if name.lstrip("-")[0] == asked.lstrip("-")[:1]]
    message = click.exceptions.NoSuchOption(asked, possibilities=alike, ctx=error.ctx).format_message()
    reads = error.ctx is not None and any("--set" in item.opts for item in error.ctx.command.params)
    return f"{message} A launch script with it can be given as MODEL." if reads and not alike else message


def _ended(code: int) -> int:
    """Flush the output, and return the exit code; a reader that ended is no error."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except BrokenPipeError:
        code = _BROKEN_PIPE
    except OSError as error:
        code = _refuse(f"standard output: {error.strerror}")
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more at exit
    return code


def _warn(message: Warning | str, *_: object) -> None:
    if not quiet():
        silence()
        _say(f"warning: {message}")


def _refuse(line: str) -> int:
    _say(f"error: {line}")
    return 2


def _say(text: str) -> None:
    """Print one line to standard error, without control characters of names and arguments."""
    line = " ".join(text.split())
    click.echo("".join(character if character.isprintable() else "?" for character in line), err=True)


if __name__ == "__main__":
    run()
