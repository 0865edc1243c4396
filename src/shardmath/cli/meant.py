"""Commands that people look for by other names, with those that answer."""

from __future__ import annotations

from shardmath.errors import nearest_names

#: Commands that people look for, with those that answer.
_COMMANDS = {
    "help": "--help", "version": "--version", "list": "models, gpus or networks", "run": "explain or sweep",
    **dict.fromkeys(("estimate", "estimate-memory", "memory", "predict", "analyze", "profile", "show"), "explain"),
    **dict.fromkeys(("search", "optimize", "tune", "autotune", "best", "suggest"), "recommend or sweep"),
    **dict.fromkeys(("cost", "price", "budget"), "plan"), "diff": "compare", "validate": "check or verify",
}


def with_hyphens(name: str) -> str:
    """Return the name of an option as it is here, where Python and other programs have underscores."""
    return name.replace("_", "-")


def meant_command(name: str, known: list[str]) -> str:
    """Return the commands that are closest to a name, or those that do what it promises."""
    return _COMMANDS.get(name.lower()) or nearest_names(name, known)
