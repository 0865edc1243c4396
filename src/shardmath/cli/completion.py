"""The command ``shardmath completion``: what a shell reads to complete names and options."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ShellComplete, ZshComplete

from shardmath.cli.names import names_of
from shardmath.cli.titled import Exampled
from shardmath.errors import InputError, nearest_names

_VARIABLE = "_SHARDMATH_COMPLETE"


class _WholeWords(ShellComplete):
    """Proposes whole words: click leaves out what stands before the value in ``--gpu=h200``, and shells replace it."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        """Return the completions of the last word."""
        completions = super().get_completions(args, incomplete)
        option, equals, _ = incomplete.partition("=")
        if not (equals and option.startswith("--")):
            return completions
        return [CompletionItem(f"{option}={item.value}", item.type, item.help) for item in completions]


class _Bash(_WholeWords, BashComplete):
    def source(self) -> str:
        """Bash takes AXIS=OPTION for three words, of which it would replace the last one alone."""
        return f"{super().source().strip()}\nCOMP_WORDBREAKS=${{COMP_WORDBREAKS//=/}}"


class _Zsh(_WholeWords, ZshComplete):
    # Paths begin after the option.
    source_template = ZshComplete.source_template.replace("_path_files", "compset -P '--*='; _path_files")


class _Fish(_WholeWords, FishComplete):
    # Names and what is said of them have commas of their own.
    source_template = FishComplete.source_template.replace('string split ","', 'string split --max 1 ","')


#: Click's completion class of each shell.
SHELLS: dict[str, type[ShellComplete]] = {"bash": _Bash, "zsh": _Zsh, "fish": _Fish}


#: The help of the command; click keeps the lines of a paragraph that begins with a backspace.
_HELP = """Print a script for SHELL (bash, zsh or fish) that completes commands, options and names.

\b
bash: put  eval "$(shardmath completion bash)"  into ~/.bashrc
zsh:  put  eval "$(shardmath completion zsh)"  into ~/.zshrc
"""


@click.command(cls=Exampled, help=_HELP, short_help="Print the shell-completion script.", examples=(
    "bash", "fish >~/.config/fish/completions/shardmath.fish"))
@click.argument("shell", shell_complete=names_of(lambda: SHELLS))
def completion(shell: str) -> None:
    """Print the script of a shell."""
    if shell not in SHELLS:
        raise InputError("shell", shell, f"must be one of {', '.join(SHELLS)}", nearest_names(shell, SHELLS))
    root = click.get_current_context().find_root().command
    click.echo(SHELLS[shell](root, {}, "shardmath", _VARIABLE).source().strip())
