"""The command ``shardmath completion``: what a shell reads to complete names and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from shardmath.cli.names import names_of
from shardmath.errors import InputError, nearest_names

_SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_SHARDMATH_COMPLETE"
#: Bash takes AXIS=OPTION for three words, of which it would replace the last one alone.
_ONE_WORD = {"bash": "\nCOMP_WORDBREAKS=${COMP_WORDBREAKS//=/}"}


@click.command(short_help="Print what completes names in a shell.")
@click.argument("shell", shell_complete=names_of(lambda: _SHELLS))
def completion(shell: str) -> None:
    r"""Print a script for SHELL (bash, zsh or fish) that completes commands, options and names.

    \b
    bash: put  eval "$(shardmath completion bash)"  into ~/.bashrc
    zsh:  put  eval "$(shardmath completion zsh)"  into ~/.zshrc
    fish: shardmath completion fish >~/.config/fish/completions/shardmath.fish
    """
    if shell not in _SHELLS:
        raise InputError("shell", shell, f"must be one of {', '.join(_SHELLS)}", nearest_names(shell, _SHELLS))
    root = click.get_current_context().find_root().command
    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(root, {}, "shardmath", _VARIABLE).source().strip() + _ONE_WORD.get(shell, ""))
