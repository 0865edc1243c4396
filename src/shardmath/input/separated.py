"""Lists of conditions and settings as people type them: with commas between them."""

from __future__ import annotations

from collections.abc import Iterator

from shardmath.errors import InputError


def separated(field: str, text: str) -> Iterator[str]:
    """Yield the parts of a text between commas that stand in no brackets, without those that are empty.

    Raises InputError about ``field`` for a bracket that is not closed.
    """
    depth, clause = 0, ""
    for character in f"{text},":
        depth += (character in "([") - (character in ")]")
        if character == "," and depth <= 0:
            if clause.strip():
                yield clause.strip()
            clause = ""
        else:
            clause += character
    if clause.strip():
        raise InputError(field, text, "must close every bracket that it opens")
