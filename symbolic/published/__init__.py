"""Published formulas, one file for each source. A new file with ``SETS`` is a new source.

They are reproduced as printed and never mixed with the counted ledger; each names its counterparts there, and the
numbers that the source itself gives.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from .sets import Counterpart, Figure, PublishedSet

__all__ = ["Counterpart", "Figure", "PublishedSet", "all_published", "memory_estimates",
           "published_set"]

#: Modules here that are no sources.
_SHARED = ("beside", "sets")


@cache
def all_published() -> tuple[PublishedSet, ...]:
    """Return every set of published formulas, by file name.

    Raises ValueError if two sets share a name.
    """
    sets = [item for module in _modules() for item in _sets(module)]
    names = [item.name for item in sets]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"published set defined twice: {', '.join(repeated)}")
    return tuple(sets)


def published_set(name: str) -> PublishedSet | None:
    """Return the set called ``name``, whose file its name begins with; the files of others are not read."""
    sets = (item for module in _modules() if name.startswith(module) for item in _sets(module))
    return next((item for item in sets if item.name == name), None)


def _modules() -> list[str]:
    return sorted(info.name for info in iter_modules(__path__) if info.name not in _SHARED)


def _sets(module: str) -> tuple[PublishedSet, ...]:
    """Return the sets of one file. Raises ValueError for one whose name does not begin with the file's."""
    sets: tuple[PublishedSet, ...] = import_module(f"{__name__}.{module}").SETS
    for item in sets:
        if not item.name.startswith(module):
            raise ValueError(f"published set {item.name} stands in a file of another name: {module}")
    return sets


def memory_estimates() -> tuple[PublishedSet, ...]:
    """Return the sets that estimate the memory of one GPU."""
    return tuple(item for item in all_published() if item.estimates_memory)
