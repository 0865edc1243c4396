"""Layers of each pipeline stage with which a step is shortest, where stages differ in speed and memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Stages:
    """Each stage with each number of layers: row r, column n - 1 is stage r with n layers.

    ``seconds`` of a micro-batch, ``once`` of a step (data-parallel ranks, the optimizer: each kind waits for its
    slowest stage), and whether the stage ``fits``. A step has ``microbatches``. All grow with n, or stay.
    """

    seconds: NDArray[np.float64]
    once: tuple[NDArray[np.float64], ...]
    fits: NDArray[np.bool_]
    microbatches: int

    def step(self, layers: tuple[int, ...]) -> float:
        """Seconds of a step, without what is sent: what ``shared_out`` makes least."""
        places = [(rank, count - 1) for rank, count in enumerate(layers)]
        own = [float(self.seconds[place]) for place in places]
        once = sum(max(float(kind[place]) for place in places) for kind in self.once)
        return (self.microbatches - 1) * max(own) + sum(own) + once


class _Label(NamedTuple):
    """Some first stages: their slowest one, the sum of all, the longest of each wait, and their layers."""

    slowest: float
    sum: float
    once: tuple[float, ...]
    layers: tuple[int, ...]

    def beats(self, other: _Label) -> bool:
        """Tell whether no continuation of the other can be faster than the same one of this."""
        return (self.slowest <= other.slowest and self.sum <= other.sum
                and all(own <= its for own, its in zip(self.once, other.once, strict=True)))


def shared_out(stages: Stages, layers: int) -> tuple[int, ...] | None:
    """The layers of each stage, one or more, with which all fit and a step is shortest; None where none fit.

    First stages are extended one by one; of those with equally many layers, one that is behind another in all that
    counts is dropped, and so is one that cannot end before a split that is already known.
    """
    import numpy as np

    ranks, columns = stages.seconds.shape
    most = [int(row.nonzero()[0].max(initial=-1)) + 1 for row in stages.fits]
    best = _balanced(stages, layers, most)
    if best is None:
        return None
    bound = stages.step(best)
    # Least sums of the stages from each rank on, with so many layers in all.
    rest = np.full((ranks + 1, layers + 1), np.inf)
    rest[ranks, 0] = 0.0
    for rank in reversed(range(ranks)):
        for count in range(1, min(most[rank], columns, layers) + 1):
            own = stages.seconds[rank, count - 1] + rest[rank + 1, : layers + 1 - count]
            rest[rank, count:] = np.minimum(rest[rank, count:], own)
    front: dict[int, list[_Label]] = {0: [_Label(0.0, 0.0, (0.0,) * len(stages.once), ())]}
    for rank in range(ranks):
        following: dict[int, list[_Label]] = {}
        for used, labels in front.items():
            for label in labels:
                for count in range(1, min(most[rank], layers - used) + 1):
                    longer = _extended(stages, label, rank, count)
                    left = rest[rank + 1, layers - used - count]
                    least = (stages.microbatches - 1) * longer.slowest + longer.sum + left + sum(longer.once)
                    if least < bound:
                        following.setdefault(used + count, []).append(longer)
        front = {used: _kept(labels) for used, labels in following.items()}
    done = [label.layers for label in front.get(layers, ())]
    return min([best, *done], key=lambda split: (stages.step(split), split))


def _extended(stages: Stages, label: _Label, rank: int, count: int) -> _Label:
    place = rank, count - 1
    seconds = float(stages.seconds[place])
    once = tuple(max(own, float(kind[place])) for own, kind in zip(label.once, stages.once, strict=True))
    return _Label(max(label.slowest, seconds), label.sum + seconds, once, (*label.layers, count))


def _kept(labels: list[_Label]) -> list[_Label]:
    """Those that no other beats; of equal ones the first."""
    kept: list[_Label] = []
    for label in sorted(labels):
        if not any(other.beats(label) for other in kept):
            kept.append(label)
    return kept


def _balanced(stages: Stages, layers: int, most: list[int]) -> tuple[int, ...] | None:
    """A split with the least time of its slowest stage: layers go one by one to the stage that they make least slow."""
    ranks = len(most)
    if sum(most) < layers or min(most) < 1 or layers < ranks:
        return None
    split = [1] * ranks
    for _ in range(layers - ranks):
        free = [rank for rank in range(ranks) if split[rank] < most[rank]]
        split[min(free, key=lambda rank: (stages.seconds[rank, split[rank]], rank))] += 1
    return tuple(split)
