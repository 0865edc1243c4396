"""Refusals of all but some options of some axes."""

from __future__ import annotations

from collections.abc import Mapping

from ...systems import SYSTEMS
from ...systems.system import Aspect


def only(
    words: str, chosen: bool, choices: Mapping[str, str], counted: Mapping[str, tuple[str, ...]],
    own: tuple[str, str] = ("", ""),
) -> tuple[tuple[str, bool], ...]:
    """Refuse all but some options of some axes, and systems that change more than links and machines.

    Not those that name ``own``, an axis and its option, among what they were counted with.
    """
    machines = {Aspect.LINKS, Aspect.MACHINES}
    others = {system.axis.name: (system.absent,) for system in SYSTEMS if not machines.issuperset(system.changes)
              and own[1] not in system.counted.get(own[0], ())}
    return among(words, chosen, choices, {**counted, **others})


def among(
    words: str, chosen: bool, choices: Mapping[str, str], counted: Mapping[str, tuple[str, ...]]
) -> tuple[tuple[str, bool], ...]:
    """Refuse all but some options of some axes."""
    return tuple((f"{words} with {axis} = {choices[axis]}: counted are {', '.join(options)}",
                  chosen and choices[axis] not in options) for axis, options in counted.items())
