"""Peaks outside of a step: on the GPU and the host while weights are loaded, saved, or a model is evaluated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from shardmath.account.judged import verdict_of
from shardmath.answers import Answer
from shardmath.generated.definitions import RANK_LIMITS

#: Moments that a host holds whole weights at.
_WHOLE = ("loading", "saving")


@dataclass(frozen=True)
class Outside(Answer):
    """Memory of one GPU and of its server's host at a moment outside of a step."""

    moment: str
    """loading, saving or evaluating."""
    bytes: int
    """Bytes on the GPU."""
    verdict: str
    """fits, uncertain or out of memory, for these bytes."""
    host: int
    """Bytes of whole weights on the host; for the first rank alone where ranks have shards."""


def outside_of_a_step(numbers: Mapping[str, int | Fraction]) -> tuple[Outside, ...]:
    """Read the peaks outside of a step from the terms of a rank; none where they are not counted."""
    if "stage.host_whole" not in numbers:
        return ()
    sizes = {moment: int(numbers[f"stage.{moment}"]) for moment in (*_WHOLE, "evaluating")
             if f"stage.{moment}" in numbers}
    return tuple(
        Outside(moment, size, verdict_of(size, numbers, RANK_LIMITS),
                int(numbers["stage.host_whole"]) if moment in _WHOLE else 0)
        for moment, size in sizes.items()
    )
