"""Systems beside the parallel dimensions, one file each. A new file with ``SYSTEM`` is a new system."""

from __future__ import annotations

from importlib import import_module
from itertools import permutations
from pkgutil import iter_modules

from .system import Choices, Refusal, System

#: Modules here that are no systems.
_SHARED = ("system", "interleaving")

#: Every system, by file name.
SYSTEMS: tuple[System, ...] = tuple(
    import_module(f"{__name__}.{info.name}").SYSTEM for info in iter_modules(__path__) if info.name not in _SHARED
)


def refusals(choices: Choices) -> tuple[Refusal, ...]:
    """Return combinations that have not been counted: of two systems, then of each with options of other axes."""
    pairs = permutations((system for system in SYSTEMS if system.chosen(choices)), 2)
    return (
        *(Refusal(f"{system.words} with {other.axis.name} = {choices[other.axis.name]}: choose {other.axis.name} ="
                  f" {other.absent}", system.excludes(other)) for system, other in pairs),
        *(refusal for system in SYSTEMS for refusal in system.refusals(choices)),
    )
