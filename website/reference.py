"""The reference of the Python API as a page, from signatures and docstrings."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields, is_dataclass
from typing import Any

import shardmath


def reference() -> str:
    """Return the page: every public name with its signature and documentation."""
    lines = ["# Python API", "", "Public names of the package `shardmath`, from their docstrings.", ""]
    public = {name: getattr(shardmath, name) for name in shardmath.__all__ if not name.startswith("_")}
    for name, thing in sorted(public.items(), key=lambda item: (inspect.isclass(item[1]), item[0])):
        lines += [f"## {name}", "", *_entry(name, thing), ""]
    return "\n".join(lines)


def _entry(name: str, thing: Any) -> list[str]:
    """Return the entry of one name: signature, documentation and methods."""
    made = [*_signature(name, thing), *_documented(thing)]
    if inspect.isclass(thing) and not issubclass(thing, Exception | Warning):
        for method, function in inspect.getmembers(thing, _is_shown):
            if not method.startswith("_") and (getattr(function, "__module__", None) or "").startswith("shardmath"):
                made += ["", f"### {name}.{method}", "", *_signature(method, function), *_documented(function)]
    return made


def _is_shown(thing: Any) -> bool:
    return inspect.isfunction(thing) or inspect.ismethod(thing)


def _signature(name: str, thing: Any) -> list[str]:
    """Return the call of a function as code, and the fields of a class."""
    names = [item.name for item in fields(thing)] if is_dataclass(thing) else list(getattr(thing, "model_fields", ()))
    if names:
        return ["Fields: " + ", ".join(f"`{item.rstrip('_')}`" for item in names) + ".", ""]
    if isinstance(thing, type) and issubclass(thing, Exception | Warning):
        return []
    parts = [re.sub(r"\s*=\s*None$", " = None", str(item)) for item in inspect.signature(thing).parameters.values()]
    call = f"{name}(\n    " + ",\n    ".join(parts) + ",\n)" if len(parts) > 2 else f"{name}({', '.join(parts)})"
    return ["```python", call, "```", ""]


def _documented(thing: Any) -> list[str]:
    """Return the docstring; indented lists of arguments become lists."""
    text = inspect.getdoc(thing) or ""
    return [re.sub(r"^    (\w+)( \([^)]*\))?: ", r"* `\1`\2: ", line) for line in
            text.replace("Arguments:\n", "Arguments:\n\n").replace("``", "`").splitlines()]
