"""Text files that somebody names: everything that a path can lead to instead is refused in one line."""

from __future__ import annotations

import json
import os
from typing import Any

from shardmath.errors import InputError

#: Dots in a line of TOML: far more than any table needs. Reading takes time that grows with their square.
DOTS = 100


def read_text(field: str, path: str | os.PathLike[str], noun: str, largest: int) -> str:
    """Return the text of the file at ``path``, of ``largest`` bytes at most.

    Raises InputError, which blames ``field`` and calls the file ``what`` (with an article), for a folder, a device, a
    file that is missing, unreadable, too large, empty or binary.
    """
    text = os.fspath(path)
    if os.path.isdir(text):
        raise InputError(field, text, f"must be the path of {noun}, not of a folder")
    if not os.path.isfile(text):
        rule = "must be a regular file" if os.path.exists(text) else "must be the path of an existing file"
        raise InputError(field, text, rule)
    try:
        with open(text, "rb") as file:
            content = file.read(largest + 1)
    except OSError as error:
        raise InputError(field, text, f"must be readable: {error.strerror}") from None
    if len(content) > largest:
        raise InputError(field, text, f"must be {noun} of at most {largest} bytes")
    if not content.strip():
        raise InputError(field, text, "must not be empty")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(field, text, "must be UTF-8 text, this is binary") from None


def json_object(field: str, path: str, content: str, noun: str) -> dict[str, Any]:
    """Get the object of a JSON text that stands in the file at ``path``; the text must hold ``what`` (with an article).

    Raises InputError, which blames ``field``, for a text that is no JSON object, and for a key that an object in it has
    twice: the last one would win in silence.
    """
    try:
        value = json.loads(content, object_pairs_hook=_once_each)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise InputError(field, path, f"must be complete JSON: {error.msg} at {place}") from None
    except RecursionError:
        raise InputError(field, path, "must be JSON with numbers and nesting of sane length") from None
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        # An integer of more than 4300 digits.
        raise InputError(field, path, "must be JSON with numbers and nesting of sane length") from None
    if not isinstance(value, dict):
        raise InputError(field, path, f"must hold {noun}, this is a {type(value).__name__}")
    return value


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        seen: set[str] = set()
        for key, value in pairs:
            if key in seen:
                raise InputError(key, value, "must not be there twice")
            seen.add(key)
    return table


def toml_table(field: str, path: str, content: str) -> dict[str, Any]:
    """Return the tables of a TOML text that stands in the file at ``path``.

    Raises InputError, which blames ``field``, for a text that is not TOML, and RecursionError for one that is too deep.
    """
    import tomllib

    if any(line.count(".") > DOTS for line in content.split("\n")):
        raise InputError(field, path, f"must not have more than {DOTS} dots in a line")
    try:
        return tomllib.loads(content)
    except ValueError as error:
        raise InputError(field, path, f"must be complete TOML: {' '.join(str(error).split())[:200]}") from None
