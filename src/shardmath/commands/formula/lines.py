"""The lines of a framework that make the rows of a formula."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shardmath.answers import Answer
from shardmath.catalogue.code import code_of
from shardmath.compiler.evaluators import changed_choices
from shardmath.generated.definitions import IMPLEMENTATIONS


@dataclass(frozen=True)
class CodeLine(Answer):
    """The line of a framework's source that makes a tensor."""

    package: str
    """Key of the package."""
    release: str
    """Release or commit that was read."""
    file: str
    """File in the package's repository."""
    name: str
    """Class or function."""
    line: int
    """Line of the file."""
    url: str
    """Address of the line at that commit."""


def lines_of(owner: str, kernels: Mapping[str, str], rows: Sequence[str]) -> list[CodeLine | None]:
    """Return the line for each row of an implementation with these kernels; None for rows without one.

    Raises InputError for an unknown axis or option.
    """
    if owner not in IMPLEMENTATIONS:
        return [None] * len(rows)
    choices = {**IMPLEMENTATIONS[owner]["choices"], **changed_choices(owner, kernels)}
    known = [code_of(owner, choices, row) for row in rows]
    return [None if code is None else CodeLine(**vars(code)) for code in known]
