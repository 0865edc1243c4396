"""Help of a command: examples first, then its options under titles, each in a line; ``--help-all`` shows all whole."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from textwrap import shorten, wrap
from typing import Any

import click

from shardmath.errors import InputError
from shardmath.files.writing import standard_output_for_a_file
from shardmath.reports.waiting import hushed, waiting

__all__ = ["Exampled", "Titled", "under"]

_Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

#: Titles of option groups in the order of the help; options without a title stand last.
_TITLES = (
    "Job and layout", "Cluster", "Limits, prices and failures", "Training", "Model and kernels", "Rarely set",
    "Machine constants", "Options",
)


#: A space at which no line ends.
_KEPT = "\N{NO-BREAK SPACE}"


#: Switches that print an answer, by parameter.
_PRINTED = {"json": "--json", "as_json": "--json"}


class Exampled(click.Command):
    """A command whose help begins with examples."""

    def __init__(
        self, *arguments: Any, examples: Sequence[str] = (), either: Sequence[str] = (), **options: Any,
    ) -> None:
        """Keep ``examples``, the arguments of the command as a person types them, and those of which one is needed."""
        super().__init__(*arguments, **options)
        self.examples = tuple(examples)
        self.either = tuple(either)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; raise UsageError that names everything that must be given and is not."""
        words = list(args)
        try:
            return self._needing_either(ctx, super().parse_args(ctx, args))
        except click.MissingParameter:
            values, _, _ = self.make_parser(ctx).parse_args(words)
            raise click.UsageError(_missing(self.params, values, self.either), ctx) from None
        except click.NoSuchOption as error:
            for word in words:
                if word.startswith(error.option_name) and f"-{word}" in _options(self.params):
                    raise click.NoSuchOption(word, possibilities=[f"-{word}"], ctx=ctx) from None
            raise
        except click.UsageError as error:
            for word in words:
                name, sign, value = word.partition("=")
                if sign and type(error) is click.UsageError and f"--{name}" in _options(self.params):
                    raise click.UsageError(f"'{word}' is no argument. Give --{name} {value}.", ctx) from None
            raise

    def _needing_either(self, ctx: click.Context, rest: list[str]) -> list[str]:
        if self.either and not ctx.resilient_parsing and all(ctx.params[name] in (None, ()) for name in self.either):
            raise click.MissingParameter
        return rest

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a file on the standard output has it for itself. Raises InputError for two outputs there."""
        written = [item for item in self.params if isinstance(item, click.Option) and ctx.params.get(item.name) == "-"]
        others = [flag for name, flag in _PRINTED.items() if ctx.params.get(name)]
        if ctx.params.get("format") and not ctx.params.get("output"):
            others.append("--write")
        others += [item.opts[0] for item in written[1:]]
        if written and others:
            raise InputError(str(written[0].name), "-", f"must be a file: {others[0]} is on the standard output")
        with standard_output_for_a_file() if written else nullcontext():
            return super().invoke(ctx)

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the usage line, then the examples."""
        super().format_usage(ctx, formatter)
        if self.examples:
            formatter.write_paragraph()
            for example in self.examples:
                lines = [line.replace(_KEPT, " ") for line in wrap(
                    f"$ {ctx.command_path} {_held(example)}", formatter.width - 4, subsequent_indent="    ",
                    break_long_words=False, break_on_hyphens=False)]
                formatter.write("".join(f"  {line} \\\n" for line in lines[:-1]) + f"  {lines[-1]}\n")


def _options(parameters: Sequence[click.Parameter]) -> set[str]:
    return {name for item in parameters for name in item.opts}


def _held(example: str) -> str:
    """Hold an option and its value together, and what is quoted, so that no line ends between them."""
    quoted = re.sub('"[^"]*"', lambda quote: quote[0].replace(" ", _KEPT), example)
    return re.sub(r"(--\S+) (?=[^-\s])", rf"\1{_KEPT}", quoted)


class Titled(Exampled):
    """A command with examples, and with options under titles."""

    def __init__(self, *arguments: Any, work: str = "", **options: Any) -> None:
        """Keep ``work``, what may take long."""
        super().__init__(*arguments, **options)
        self.work = work

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a line says what it works on, unless it is to be quiet."""
        with hushed(ctx.meta.get(_HUSHED, False)), waiting(self.work) if self.work else nullcontext():
            return super().invoke(ctx)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters, with ``--help-all`` behind ``--help`` where something is left out there."""
        own = super().get_params(ctx)
        folded = any(_TITLE_OF.get(item) in _FOLDED for item in own)
        return [*own, _QUIET, _HELP_ALL] if folded else [*own, _QUIET]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one list of options per title: for ``--help`` in a line each, without those that are rarely set."""
        groups: dict[str, list[click.Option]] = {title: [] for title in _TITLES}
        for parameter in self.get_params(ctx):
            if isinstance(parameter, click.Option) and not parameter.hidden:
                groups[_TITLE_OF.get(parameter, _TITLES[-1])].append(parameter)
        if any(groups[title] for title in _FOLDED):
            groups[_TITLES[-1]].remove(_QUIET)
            groups[_FOLDED[0]].append(_QUIET)
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
        text = _shortened((item.help or "").partition("  [default")[0].rstrip("."), room)
        formatter.write(f"{'':{formatter.current_indent}}{name:{column - 2}}  {text}\n")


def _shortened(text: str, room: int) -> str:
    """Return as much of a sentence as there is room for: whole clauses, and of a list its first items."""
    clauses = re.split(r"(?=[,;.] (?![^(]*\))|: | \()", text)
    kept = ""
    while clauses and len(kept) + len(clauses[0]) <= room:
        kept += clauses.pop(0)
    if not clauses:
        return kept
    head, colon, _ = kept.rpartition(": ")
    if not colon:
        return kept or shorten(text, room, placeholder=" ...")
    if clauses[0].startswith(",") and len(kept) + len(_AND_SO_ON) > room:
        kept = kept.rpartition(", ")[0]
    return kept + _AND_SO_ON if colon in kept else head


def _names(option: click.Option, ctx: click.Context) -> str:
    """Return the names of an option with its placeholder; a switch that can be set off has ``[no-]``."""
    record = option.get_help_record(ctx)
    if option.secondary_opts:
        return ", ".join(f"--[no-]{name[2:]}" for name in option.opts)
    return record[0] if record is not None else ""


def _missing(parameters: Sequence[click.Parameter], values: Mapping[str, Any], either: Sequence[str]) -> str:
    """Return the sentence that names everything that must be given and is not, with its meaning."""
    needed = [_described(item) for item in parameters if item.required and _absent(item, values)]
    # A job on a cluster needs a GPU by its name or by its memory.
    machine = [item for item in parameters if item.name in ("gpu", "gpu_memory") and _TITLE_OF.get(item) == "Cluster"]
    if len(machine) == 2 and all(_absent(item, values) for item in machine):
        needed.append(_described(machine[0]))
    others = [item for item in parameters if item.name in either]
    if others and all(_absent(item, values) for item in others):
        needed.append(" or ".join(map(_described, others)))
    return f"missing: {', '.join(needed)}"


def _absent(item: click.Parameter, values: Mapping[str, Any]) -> bool:
    value = values.get(item.name or "")
    return value in (None, ()) or item.value_is_missing(value)


def _described(item: click.Parameter) -> str:
    if not isinstance(item, click.Option):
        return item.human_readable_name
    meaning = (item.help or "").partition("  [default")[0].rstrip(".").rpartition(": ")[2]
    return f"{item.opts[0]} ({meaning[:1].lower() if meaning[1:2].islower() else meaning[:1]}{meaning[1:]})"


def _hush(ctx: click.Context, parameter: click.Parameter, asked: bool) -> None:
    ctx.meta[_HUSHED] = asked


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
#: Stands for the rest of a list.
_AND_SO_ON = ", ..."
#: Name of the note that neither progress nor notes are wanted.
_HUSHED = "shardmath.hushed"
_QUIET = click.Option(["-q", "--quiet"], is_flag=True, expose_value=False, callback=_hush,
                      help="Print the answer alone: no progress, notes or warnings.")
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
