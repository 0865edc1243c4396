"""Options without rows: an implementation that chooses one would lose bytes in silence, so it is refused."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from ..choices import BY_NAME
from ..components import all_components
from .aggregates import AGGREGATES


@cache
def named_options() -> frozenset[tuple[str, str]]:
    """Return every axis and option that a component, a row, work or an aggregate names."""
    restricted = [
        options for component in all_components()
        for options in (component.options, *(part.options for part in (*component.tensors, *component.work)))
    ]
    restricted += [aggregate.options for aggregate in AGGREGATES]
    return frozenset((axis, option) for options in restricted for axis, names in options.items() for option in names)


def refuse_without_rows(choices: Mapping[str, str]) -> None:
    """Raise ValueError for an option that no row names, unless its axis says that it needs none."""
    for axis, option in choices.items():
        if (axis, option) not in named_options() and option not in BY_NAME[axis].rowless:
            raise ValueError(f"{axis} = {option} has no rows: add rows or a component that name it in"
                             " symbolic/components/, or list it in rowless of its axis in symbolic/choices.py")
