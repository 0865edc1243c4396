"""Nested plain data as settings by dotted keys, each with its values as words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

#: Keys of one file: far more than any configuration has.
_MOST = 10_000

#: Keys of an object that a file builds from nothing but a function, a class or a member of an enumeration.
_OF_OBJECT = {"_target_", "_args_", "_call_", "_partial_"}


def flattened(data: Mapping[Any, object], prefix: str = "") -> dict[str, tuple[str, ...]]:
    """Return words by key, ``a.b`` for a table in a table, without null; an object that a file builds is its name."""
    return dict(pair for _, pair in zip(range(_MOST), _pairs(data, prefix), strict=False))


def _pairs(data: Mapping[object, object], prefix: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    for key, value in data.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and "_target_" in value and not value.keys() - _OF_OBJECT:
            yield name, (_built(value),)
        elif isinstance(value, Mapping):
            yield from _pairs(value, f"{name}.")
        elif value is not None:
            yield name, tuple(map(_word, value)) if isinstance(value, list) else (_word(value),)


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    try:
        return str(value)
    except ValueError:  # an integer of more than 4300 digits
        return "a number too long to show"


def _built(value: Mapping[object, object]) -> str:
    """Return the last name of the class or function, or the member of an enumeration, that a file asks for."""
    arguments = value.get("_args_")
    if isinstance(arguments, list) and len(arguments) == 1:
        return _word(arguments[0])
    return _word(value["_target_"]).rpartition(".")[2]
