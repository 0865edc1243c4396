"""Text files that somebody names: everything that a path can lead to instead is refused in one line."""

from __future__ import annotations

import os

from shardmath.errors import InputError


def read_text(field: str, path: str | os.PathLike[str], what: str, largest: int) -> str:
    """The text of the file at ``path``, of ``largest`` bytes at most.

    Raises InputError, which blames ``field`` and calls the file ``what`` (with an article), for a folder, a device, a
    file that is missing, unreadable, too large, empty or binary.
    """
    text = os.fspath(path)
    if os.path.isdir(text):
        raise InputError(field, text, f"must be the path of {what}, not of a folder")
    if not os.path.isfile(text):
        rule = "must be a regular file" if os.path.exists(text) else "must be the path of an existing file"
        raise InputError(field, text, rule)
    try:
        with open(text, "rb") as file:
            content = file.read(largest + 1)
    except OSError as error:
        raise InputError(field, text, f"must be readable: {error.strerror}") from None
    if len(content) > largest:
        raise InputError(field, text, f"must be {what} of at most {largest} bytes")
    if not content.strip():
        raise InputError(field, text, "must not be empty")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(field, text, "must be UTF-8 text, this is binary") from None
