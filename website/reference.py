"""The reference of the Python API as a page, from signatures and docstrings."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields, is_dataclass
from textwrap import dedent
from typing import Any

import shardmath
from shardmath.answers import Answer, schema_of

#: An example of a docstring: indented lines under its title.
_EXAMPLE = re.compile(r"Example:\n((?:    .*\n?)+)")


def reference() -> str:
    """Return the page: every public name with its signature and documentation."""
    lines = ["# Python API", "", "Public names of the package `shardmath`, from their docstrings.", ""]
    public = {name: getattr(shardmath, name) for name in shardmath.__all__ if not name.startswith("_")}
    shown: dict[int, str] = {}
    for name, thing in sorted(public.items(), key=lambda item: (inspect.isclass(item[1]), item[0])):
        lines += [f"## {name}", "", *_entry(name, thing, shown), ""]
    return "\n".join(lines)


def _entry(name: str, thing: Any, shown: dict[int, str]) -> list[str]:
    """Return the entry of one name: documentation, signature or fields, and methods that are not ``shown`` before."""
    made = [*_signature(name, thing), *_documented(thing)]
    if not inspect.isclass(thing) or issubclass(thing, Exception | Warning):
        return made
    made = [*_documented(thing), "", *_signature(name, thing)]
    methods = [(method, getattr(function, "__func__", function))
               for method, function in inspect.getmembers(thing, _is_shown)
               if not method.startswith("_") and (getattr(function, "__module__", None) or "").startswith("shardmath")]
    if inherited := [shown[id(function)] for _, function in methods if id(function) in shown]:
        made += ["", "Methods as above: " + ", ".join(f"`{place}`" for place in inherited) + "."]
    for method, function in methods:
        if id(function) not in shown:
            made += ["", f"### {name}.{method}", "", *_signature(method, function), *_documented(function)]
            shown[id(function)] = f"{name}.{method}"
    return made


def _is_shown(thing: Any) -> bool:
    return inspect.isfunction(thing) or inspect.ismethod(thing)


def _signature(name: str, thing: Any) -> list[str]:
    """Return the call of a function as code, and the fields of a class, those of answers with their meaning."""
    if isinstance(thing, type) and issubclass(thing, Answer):
        listed = schema_of(thing)["properties"].items()
        return ["Fields:", "", *(f"* `{item}`: {entry.get('description', '')}" for item, entry in listed), ""]
    names = [item.name for item in fields(thing)] if is_dataclass(thing) else list(getattr(thing, "model_fields", ()))
    if names:
        return ["Fields: " + ", ".join(f"`{item.rstrip('_')}`" for item in names) + ".", ""]
    if isinstance(thing, type) and issubclass(thing, Exception | Warning):
        return []
    shown = [re.sub(r"\s*=\s*None$", " = None", str(item)) for item in inspect.signature(thing).parameters.values()]
    parts = [re.sub(r"<function .*>$", "...", part) for part in shown]
    call = f"{name}(\n    " + ",\n    ".join(parts) + ",\n)" if len(parts) > 2 else f"{name}({', '.join(parts)})"
    return ["```python", call, "```", ""]


def _documented(thing: Any) -> list[str]:
    """Return the docstring; indented lists of arguments become lists, examples become code."""
    text = (inspect.getdoc(thing) or "").replace("Arguments:\n", "Arguments:\n\n").replace("``", "`")
    text = re.sub(r"^    (\w+)( \([^)]*\))?: ", r"* `\1`\2: ", text, flags=re.MULTILINE)
    return _EXAMPLE.sub(lambda shown: f"```pycon\n{dedent(shown[1]).rstrip()}\n```\n", text).splitlines()
