"""Combinations of options that choose formulas: those that can be, and those that are left out with a reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeVar

from shardmath.errors import InputError

Made = TypeVar("Made")


@dataclass(frozen=True)
class LeftOut:
    """A combination of options by axis that cannot be, and the reason."""

    options: Mapping[str, str]
    reason: str


def combined(
    axes: Mapping[str, Sequence[str]], make: Callable[[dict[str, str]], Iterable[Made]],
) -> tuple[list[Made], tuple[LeftOut, ...]]:
    """Return what is made of every combination of options, and the combinations of which nothing can be made.

    Raises InputError for an option that no combination can have.
    """
    done, possible, refused, errors = list[Made](), list[dict[str, str]](), list[LeftOut](), list[InputError]()
    for options in product(*axes.values()):
        labels = dict(zip(axes, options, strict=True))
        try:
            done += make(labels)
        except InputError as error:
            refused.append(LeftOut(labels, str(error)))
            errors.append(error)
        else:
            possible.append(labels)
    for name, names in axes.items():
        for option in names:
            if not any(labels[name] == option for labels in possible):
                raise next(error for item, error in zip(refused, errors, strict=True) if item.options[name] == option)
    if not possible:
        raise errors[0]
    return done, tuple(refused)
