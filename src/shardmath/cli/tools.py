"""Tools for programs: every document that a command prints, the command's options as JSON Schema, and a call of it."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any

import click

from shardmath.cli.options import Count, Counts, Names
from shardmath.errors import InputError
from shardmath.generated.definitions import PARAMETERS
from shardmath.input.parameters import limits, nearest_parameter

#: Documents that a command prints with ``--list``, by name.
LISTS: Mapping[str, str] = {"claims": "prove", "formulas": "formula"}
#: Options that write a file, print something else than the document, or outlive a call.
_LEFT_OUT = frozenset({
    "as_json", "checkpoint", "csv", "dask", "fail_if_nothing_fits", "form", "format", "further", "json", "listing",
    "output", "parquet", "plot", "resume", "rows", "table",
})
#: JSON types of single values.
_SIMPLE: Mapping[str, str] = {"boolean": "boolean", "float": "number", "integer range": "integer"}
#: Runs a command line and returns its exit code.
Runner = Callable[[Sequence[str]], int]


@dataclass(frozen=True)
class Tool:
    """One document, with the command that prints it."""

    name: str
    """Name of the document, as ``shardmath schema`` lists it."""
    command: click.Command
    """Command that prints it."""
    fixed: tuple[str, ...] = ()
    """Words behind the command that every call has."""

    @property
    def parameters(self) -> tuple[click.Parameter, ...]:
        """Arguments and options that a call may have; none where the document lists everything."""
        if self.fixed:
            return ()
        return tuple(item for item in self.command.params if item.name not in _LEFT_OUT)

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the arguments of a call."""
        return {
            "type": "object",
            "properties": {_name(item): _described(item) for item in self.parameters},
            "required": [_name(item) for item in self.parameters if item.required],
            "additionalProperties": False,
        }

    def words(self, arguments: Mapping[str, Any]) -> list[str]:
        """Return the command line of a call. Raises InputError for an argument that the tool does not have."""
        known = {_name(item): item for item in self.parameters}
        for name, value in arguments.items():
            if name not in known:
                raise InputError(name, value, f"must be an argument of {self.name}", nearest_parameter(name, known))
        asked = [(item, arguments[name]) for name, item in known.items() if arguments.get(name) is not None]
        options = [word for item, value in asked if isinstance(item, click.Option) for word in _option(item, value)]
        places = [word for item, value in asked if not isinstance(item, click.Option) for word in _each(value)]
        return [self.command.name or "", *self.fixed, "--json", *options, "--", *places]


@dataclass(frozen=True)
class Called:
    """Exit code and output of a call."""

    code: int
    """0 or 3 where the document was printed, 2 for bad input."""
    document: str
    """The document, empty for bad input."""
    notes: str
    """Errors, warnings and notes."""


def tools(commands: Mapping[str, click.Command], documents: Iterable[str]) -> tuple[Tool, ...]:
    """Return a tool for every document whose command needs no file to write to."""
    own = {name: commands[LISTS.get(name, name)] for name in documents}
    return tuple(
        Tool(name, command, ("--list",) if name in LISTS else ())
        for name, command in own.items()
        if not any(item.required and item.name in _LEFT_OUT for item in command.params)
    )


def called(tool: Tool, arguments: Mapping[str, Any], run: Runner) -> Called:
    """Run the command of a tool in this process and catch what it prints."""
    try:
        words = tool.words(arguments)
    except InputError as error:
        return Called(2, "", f"error: {error}")
    document, notes = io.StringIO(), io.StringIO()
    with redirect_stdout(document), redirect_stderr(notes):
        code = run(words)
    return Called(code, document.getvalue(), notes.getvalue().strip())


def _name(item: click.Parameter) -> str:
    return item.name or ""


def _option(item: click.Option, value: Any) -> list[str]:
    """Return the words of an option; a switch that is false needs one only where it can be set off."""
    flag = item.opts[-1]
    if item.is_flag or item.secondary_opts:
        return [flag] if value else item.secondary_opts[:1]
    if item.multiple:
        return [f"{flag}={part}" for part in _each(value)]
    return [f"{flag}={','.join(_each(value))}"]


def _each(value: Any) -> list[str]:
    return [str(part) for part in value] if isinstance(value, list | tuple) else [str(value)]


def _described(item: click.Parameter) -> dict[str, Any]:
    """Return the JSON Schema of one argument."""
    kind, name = item.type, _name(item)
    if isinstance(kind, Counts):
        made = {"type": "array", "items": _whole(name)}
    elif isinstance(kind, Names) or getattr(item, "multiple", False) or item.nargs == -1:
        made = {"type": "array", "items": {"type": "string"}}
    elif isinstance(kind, Count):
        made = _whole(name)
    else:
        made = {"type": _SIMPLE.get(kind.name, "string")}
    text = item.help if isinstance(item, click.Option) else item.human_readable_name
    return {**made, "description": text or name}


def _whole(name: str) -> dict[str, Any]:
    """Return the schema of an integer, with the limits of a parameter."""
    if name not in PARAMETERS:
        return {"type": "integer"}
    least, most = limits(name)
    return {"type": "integer", "minimum": least, "maximum": most}
