"""The legend of a formula: its letters, and the publication that has it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from shardmath.answers import Answer
from shardmath.generated.definitions import PARAMETERS, QUANTITIES


@dataclass(frozen=True)
class Letter(Answer):
    """A letter of a formula that stands for a parameter, or for an input that only published formulas have."""

    letter: str
    """Letter, as the forms print it."""
    name: str
    """Name, which the Python interface takes too; --assume takes those of parameters."""
    unit: str
    """Unit of its values."""
    meaning: str
    """Meaning of the parameter."""


@dataclass(frozen=True)
class Publication(Answer):
    """A paper, document or program that has a formula."""

    key: str
    """Key of the source, as --bibtex has it."""
    authors: str
    """Authors."""
    title: str
    """Title."""
    year: int
    """Year."""
    where: str
    """Number of the preprint, conference or kind of document."""
    url: str
    """Address."""


def letters_of(forms: Iterable[str]) -> tuple[Letter, ...]:
    """Return the parameters in formulas of one line, in the order of all parameters."""
    letters = _letters()
    used = {letter for form in forms for letter in _pattern().findall(form)}
    return tuple(item for letter, item in letters.items() if letter in used)


def publication_of(key: str) -> Publication | None:
    """Return the source with this key; None for no key."""
    from shardmath.symbolic.sources import BY_KEY

    return Publication(**vars(BY_KEY[key])) if key else None


@cache
def _letters() -> dict[str, Letter]:
    from shardmath.symbolic.printers.letters import PRINTED

    own = {name: (letter, unit, meaning) for name, (letter, unit, *_, meaning) in PARAMETERS.items()}
    return {printed: Letter(printed, name, unit, meaning)
            for name, (letter, unit, meaning) in {**own, **QUANTITIES}.items()
            for printed in (PRINTED.get(letter, letter),)}


@cache
def _pattern() -> re.Pattern[str]:
    """Match whole letters, longer ones first; names of terms have dots."""
    names = "|".join(map(re.escape, sorted(_letters(), key=len, reverse=True)))
    return re.compile(rf"(?<![\w.])(?:{names})(?![\w.₋])")
