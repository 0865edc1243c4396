"""Systems beside the parallel dimensions, one file each. A new file with ``SYSTEM`` is a new system."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from .system import System

#: Modules here that are no systems.
_SHARED = ("system", "interleaving")

#: Every system, by file name.
SYSTEMS: tuple[System, ...] = tuple(
    import_module(f"{__name__}.{info.name}").SYSTEM for info in iter_modules(__path__) if info.name not in _SHARED
)
