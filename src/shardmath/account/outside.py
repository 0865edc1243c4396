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
    joined: int
    """Bytes of them that Megatron-Core joins on the host where they do not fit."""
    verdict: str
    """fits, uncertain or out of memory, for these bytes or for a step, where the joined ones can lie on the host."""
    host: int
    """Bytes of whole weights on the host; for the first rank alone where ranks have shards."""
    shards: int
    """Bytes on the host of what the rank itself writes into a sharded checkpoint, copied before it is written."""


def outside_of_a_step(numbers: Mapping[str, int | Fraction], step: str) -> tuple[Outside, ...]:
    """Read the peaks outside of a step from the terms of a rank; none where they are not counted.

    ``step`` is the verdict on its steps. It is that on loading too where the rest can lie on the host: a step needs as
    much.
    """
    sizes = {moment: int(numbers[f"stage.{moment}"]) for moment in (*_WHOLE, "evaluating")
             if f"stage.{moment}" in numbers}
    joined = {"loading": int(numbers.get("stage.joined", 0))}
    host = int(numbers.get("stage.whole_on_host", 0))
    shards = {"saving": int(numbers.get("stage.saved_on_host", 0))}
    return tuple(
        Outside(moment, size, joined.get(moment, 0),
                step if joined.get(moment) else verdict_of(size, numbers, RANK_LIMITS),
                host if moment in _WHOLE else 0, shards.get(moment, 0))
        for moment, size in sizes.items()
    )
