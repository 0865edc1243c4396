"""Help of a command: examples first, then its options under titles, each in a line; ``--help-all`` shows all whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from textwrap import shorten, wrap
from typing import Any

import click

__all__ = ["Titled", "under"]

_Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

#: Titles of option groups in the order of the help; options without a title stand last.
_TITLES = (
    "Job and layout", "Cluster", "Limits, prices and failures", "Training", "Model and kernels", "Rarely set",
    "Machine constants", "Options",
)


class Titled(click.Command):
    """A command with examples, and with options under titles."""

    def __init__(self, *arguments: Any, examples: Sequence[str] = (), **options: Any) -> None:
        """Keep ``examples``, the arguments of the command as a person types them."""
        super().__init__(*arguments, **options)
        self.examples = tuple(examples)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the usage line, then the examples."""
        super().format_usage(ctx, formatter)
        if self.examples:
            formatter.write_paragraph()
            for example in self.examples:
                lines = wrap(f"$ {ctx.command_path} {example}", formatter.width - 4, subsequent_indent="    ",
                             break_long_words=False, break_on_hyphens=False)
                formatter.write("".join(f"  {line} \\\n" for line in lines[:-1]) + f"  {lines[-1]}\n")

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters, with ``--help-all`` behind ``--help`` where something is left out there."""
        own = super().get_params(ctx)
        return [*own, _HELP_ALL] if any(_TITLE_OF.get(item) in _FOLDED for item in own) else own

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one list of options per title: for ``--help`` in a line each, without those that are rarely set."""
        groups: dict[str, list[click.Option]] = {title: [] for title in _TITLES}
        for parameter in self.get_params(ctx):
            if isinstance(parameter, click.Option) and not parameter.hidden:
                groups[_TITLE_OF.get(parameter, _TITLES[-1])].append(parameter)
        whole = ctx.meta.get(_WHOLE, False) or not any(groups[title] for title in _FOLDED)
        for title, options in groups.items():
            if options and (whole or title not in _FOLDED):
                with formatter.section(title):
                    if whole:
                        formatter.write_dl([item.get_help_record(ctx) or ("", "") for item in options])
                    else:
                        _write_lines(formatter, ctx, options)
        if not whole:
            left = " and ".join(f"{len(groups[title])} {title.lower()}" for title in _FOLDED if groups[title])
            formatter.write(f"\nNot shown: {left}; see --help-all.\n")


def _write_lines(formatter: click.HelpFormatter, ctx: click.Context, options: Sequence[click.Option]) -> None:
    """Write every option in one line: its names, and as much of its help as there is room for."""
    names = [_names(item, ctx) for item in options]
    column = min(max(map(len, names)), _COLUMN) + 2
    for name, item in zip(names, options, strict=True):
        room = formatter.width - formatter.current_indent - max(column, len(name) + 2)
        text = shorten((item.help or "").partition("  [default")[0].rstrip("."), room, placeholder=" ...")
        formatter.write(f"{'':{formatter.current_indent}}{name:{column - 2}}  {text}\n")


def _names(option: click.Option, ctx: click.Context) -> str:
    """Return the names of an option with its placeholder; a switch that can be set off has ``[no-]``."""
    record = option.get_help_record(ctx)
    if option.secondary_opts:
        return ", ".join(f"--[no-]{name[2:]}" for name in option.opts)
    return record[0] if record is not None else ""


def _show_all(ctx: click.Context, parameter: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        ctx.meta[_WHOLE] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


#: Titles whose options only `--help-all` shows.
_FOLDED = ("Rarely set", "Machine constants")
#: Name of the note that all is to be shown.
_WHOLE = "shardmath.help_all"
#: Columns that the names of options take, unless they are longer.
_COLUMN = 38
_HELP_ALL = click.Option(["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=_show_all,
                         help="Show every option, with defaults, and exit.")
#: Title of every option that has one.
_TITLE_OF: dict[click.Parameter, str] = {}


def under(title: str, *options: _Decorator) -> _Decorator:
    """Return one decorator for ``options``, listed under ``title``. Raises ValueError for an unknown title."""
    if title not in _TITLES:
        raise ValueError(f"{title}: no title of {_TITLES}")

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        before = len(getattr(command, "__click_params__", ()))
        for option in reversed(options):
            command = option(command)
        for parameter in getattr(command, "__click_params__", ())[before:]:
            _TITLE_OF.setdefault(parameter, title)
        return command

    return decorate
