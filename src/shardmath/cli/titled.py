"""Help of a command: examples first, then its options under titles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

__all__ = ["Titled", "under"]

_Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

#: Titles of option groups in the order of the help; options without a title stand last.
_TITLES = ("Job and layout", "Cluster", "Training", "Model and kernels", "Rarely set", "Machine constants", "Options")


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
                formatter.write(f"  $ {ctx.command_path} {example}\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one list of options per title."""
        groups: dict[str, list[tuple[str, str]]] = {title: [] for title in _TITLES}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                groups[_TITLE_OF.get(parameter, _TITLES[-1])].append(record)
        for title, records in groups.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


#: Title of every option that has one.
_TITLE_OF: dict[click.Parameter, str] = {}


def under(title: str, *options: _Decorator) -> _Decorator:
    """Return one decorator for ``options``, whose help stands under ``title``."""
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
