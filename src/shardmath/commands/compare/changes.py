"""Differences of two configurations: sizes, kernels, the moment of the peak."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shardmath.account.accounting import Explanation, RankAccount
from shardmath.answers import Answer, Label
from shardmath.generated.definitions import PARAMETERS

#: Names of changes that are no parameter and no kernel.
MODEL, GPU, IMPLEMENTATION, MOMENT, RANK = "model", "gpu", "implementation", "moment", "pipeline_rank"


@dataclass(frozen=True)
class Changed(Answer):
    """One input that is not the same everywhere."""

    name: str
    """A parameter, or ``kernel`` and an axis, or another input."""
    letter: str
    """Its letter in formulas; empty where it has none."""
    values: tuple[Label, ...]
    """The value of every configuration."""

    def between(self, first: int, second: int) -> str:
        """Return the change from one configuration to another in a few words, such as ``t 4 -> 2``."""
        return f"{self.letter or self.name} {self.values[first]} -> {self.values[second]}"


def kernel(axis: str) -> str:
    """Return the name of the change of a kernel choice."""
    return f"kernel {axis}"


def changes(sides: Sequence[tuple[Explanation, RankAccount]]) -> tuple[Changed, ...]:
    """Return all differences between configurations on the compared ranks, the most important ones first."""
    return tuple(change for change in _compared(sides) if len(set(change.values)) > 1)


def _compared(sides: Sequence[tuple[Explanation, RankAccount]]) -> Iterator[Changed]:
    explanations = [explanation for explanation, _ in sides]
    yield Changed(MODEL, "", tuple(item.model.name for item in explanations))
    yield Changed(GPU, "", tuple(item.gpu.name for item in explanations))
    yield Changed(IMPLEMENTATION, "", tuple(item.framework for item in explanations))
    for name in PARAMETERS:
        if any(name in item.inputs for item in explanations):
            yield Changed(name, _letter(name), tuple(item.inputs.get(name, "") for item in explanations))
    for axis in explanations[0].choices:
        yield Changed(kernel(axis), "", tuple(item.choices[axis] for item in explanations))
    yield Changed(RANK, _letter(RANK), tuple(account.rank for _, account in sides))
    yield Changed(MOMENT, "", tuple(account.site for _, account in sides))


def _letter(name: str) -> str:
    """Return the letter of a parameter as formulas in a terminal have it."""
    from shardmath.symbolic.parameters import BY_NAME
    from shardmath.symbolic.printers.text import letter

    return letter(BY_NAME[name].symbol)
