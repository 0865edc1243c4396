"""Differences of two configurations: sizes, kernels, the moment of the peak."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shardmath.account.accounting import Explanation, RankAccount
from shardmath.generated.definitions import PARAMETERS

#: Names of changes that are no parameter and no kernel.
MODEL, GPU, IMPLEMENTATION, MOMENT, RANK = "model", "gpu", "implementation", "moment", "pipeline_rank"


@dataclass(frozen=True)
class Change:
    """One input that is not the same everywhere: ``values`` has that of every configuration.

    ``name`` is a parameter, ``kernel`` and an axis, or one of the names above; ``letter`` stands for it in formulas.
    """

    name: str
    letter: str
    values: tuple[str | int, ...]

    def between(self, first: int, second: int) -> str:
        """The change from one configuration to another in a few words, such as ``t 4 -> 2``."""
        return f"{self.letter or self.name} {self.values[first]} -> {self.values[second]}"


def kernel(axis: str) -> str:
    """The name of the change of a kernel choice."""
    return f"kernel {axis}"


def changes(sides: Sequence[tuple[Explanation, RankAccount]]) -> tuple[Change, ...]:
    """All that differs between configurations on the ranks that are compared, in the order of their importance."""
    return tuple(found for found in _compared(sides) if len(set(found.values)) > 1)


def _compared(sides: Sequence[tuple[Explanation, RankAccount]]) -> Iterator[Change]:
    found = [explanation for explanation, _ in sides]
    yield Change(MODEL, "", tuple(item.model.name for item in found))
    yield Change(GPU, "", tuple(item.gpu.name for item in found))
    yield Change(IMPLEMENTATION, "", tuple(item.implementation.partition("_")[0] for item in found))
    for name in PARAMETERS:
        if any(name in item.inputs for item in found):
            yield Change(name, _letter(name), tuple(item.inputs.get(name, "") for item in found))
    for axis in found[0].choices:
        yield Change(kernel(axis), "", tuple(item.choices[axis] for item in found))
    yield Change(RANK, _letter(RANK), tuple(account.rank for _, account in sides))
    yield Change(MOMENT, "", tuple(account.site for _, account in sides))


def _letter(name: str) -> str:
    """The letter of a parameter as formulas in a terminal have it."""
    from shardmath.symbolic.parameters import BY_NAME
    from shardmath.symbolic.printers.text import letter

    return letter(BY_NAME[name].symbol)
