"""Layers of each pipeline stage with which a step is shortest, where stages differ in speed and memory."""

from __future__ import annotations

from dataclasses import dataclass
from operator import le, mul
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Stages:
    """Each stage with each number of layers, from each layer of the model on: row r is stage r.

    ``places`` has the column of a stage that begins behind so many layers (row) and has n of them (column n - 1):
    layers of one kind have the same columns everywhere. ``seconds`` of a micro-batch, of all layers or of each chunk of
    them: a step takes as often as its ``turns`` say those of the slowest stage, and once the first of each stage.
    ``once`` of a step (data-parallel ranks, the optimizer: each kind waits for its slowest stage), and whether the
    stage ``fits``. With more layers behind the same ones all grow, or stay.
    """

    places: NDArray[np.int64]
    seconds: tuple[NDArray[np.float64], ...]
    once: tuple[NDArray[np.float64], ...]
    fits: NDArray[np.bool_]
    turns: tuple[int, ...]

    def step(self, layers: tuple[int, ...]) -> float:
        """Return seconds of a step, without what is sent: what ``shared_out`` makes least."""
        starts = [sum(layers[:rank]) for rank in range(len(layers))]
        places = [(rank, int(self.places[starts[rank], count - 1])) for rank, count in enumerate(layers)]
        slowest = tuple(max(float(chunk[place]) for place in places) for chunk in self.seconds)
        once = tuple(max(float(kind[place]) for place in places) for kind in self.once)
        return self.seconds_of(slowest, sum(float(self.seconds[0][place]) for place in places), once)

    def seconds_of(self, slowest: tuple[float, ...], first: float, once: tuple[float, ...]) -> float:
        """Return seconds of a step from those of the slowest stages, and of the first chunks of all stages."""
        return float(sum(map(mul, self.turns, slowest), first + sum(once)))

    def lengths(self, rank: int, start: int, layers: int) -> range:
        """Return numbers of layers that a stage fits with behind ``start`` layers, of ``layers`` in all."""
        fits = self.fits[rank, self.places[start, : layers - start]]
        return range(1, (len(fits) if fits.all() else int(fits.argmin())) + 1)


class _Label(NamedTuple):
    """Some first stages: their slowest ones, the sum of all, the longest of each wait, and their layers."""

    slowest: tuple[float, ...]
    sum: float
    once: tuple[float, ...]
    layers: tuple[int, ...]

    def beats(self, other: _Label) -> bool:
        """Tell whether no continuation of the other can be faster than the same one of this."""
        return self.sum <= other.sum and all(map(le, (*self.slowest, *self.once), (*other.slowest, *other.once)))


def shared_out(stages: Stages, layers: int) -> tuple[int, ...] | None:
    """Return the layers of each stage, one or more, with which all fit and a step is shortest; None where none fit.

    First stages are extended one by one; of those with equally many layers, one that is behind another in all that
    counts is dropped, and so is one that cannot end before a split that is already known.
    """
    import numpy as np

    slowest, best = least_largest(stages.places, np.where(stages.fits, sum(stages.seconds), np.inf), layers)
    if slowest == np.inf:
        return None
    first = np.where(stages.fits, stages.seconds[0], np.inf)
    bound, rest = stages.step(best), _from(stages.places, first, layers, np.add)
    none = _Label((0.0,) * len(stages.seconds), 0.0, (0.0,) * len(stages.once), ())
    front: dict[int, list[_Label]] = {0: [none]}
    for rank in range(len(first)):
        following: dict[int, list[_Label]] = {}
        for used, labels in front.items():
            for count in stages.lengths(rank, used, layers):
                left = rest[rank + 1, used + count]
                for label in labels if left < np.inf else ():
                    longer = _extended(stages, label, rank, count)
                    if stages.seconds_of(longer.slowest, longer.sum + left, longer.once) < bound:
                        following.setdefault(used + count, []).append(longer)
        front = {used: _kept(labels) for used, labels in following.items()}
    done = [label.layers for label in front.get(layers, ())]
    return min([best, *done], key=lambda split: (stages.step(split), split))


def least_largest(
    places: NDArray[np.int64], values: NDArray[np.float64], layers: int,
) -> tuple[float, tuple[int, ...]]:
    """Return the split whose largest value of a stage is least, and that value; infinite where no split has one."""
    import numpy as np

    rest, start, split = _from(places, values, layers, np.maximum), 0, list[int]()
    for rank in range(len(values)):
        of_all = np.maximum(values[rank, places[start, : layers - start]], rest[rank + 1, start + 1 :])
        split.append(int(of_all.argmin()) + 1)
        start += split[-1]
    return float(rest[0, 0]), tuple(split)


def _from(
    places: NDArray[np.int64], values: NDArray[np.float64], layers: int, joined: Any,
) -> NDArray[np.float64]:
    """Row r, column n: the least that the stages from r on come to behind n layers, ``joined`` one to the next."""
    import numpy as np

    rest = np.full((len(values) + 1, layers + 1), np.inf)
    rest[-1, layers] = 0.0
    for rank in reversed(range(len(values))):
        for start in range(layers):
            rest[rank, start] = joined(values[rank, places[start, : layers - start]], rest[rank + 1, start + 1 :]).min()
    return rest


def _extended(stages: Stages, label: _Label, rank: int, count: int) -> _Label:
    place = rank, int(stages.places[sum(label.layers), count - 1])
    seconds = [float(chunk[place]) for chunk in stages.seconds]
    once = tuple(max(own, float(kind[place])) for own, kind in zip(label.once, stages.once, strict=True))
    return _Label(tuple(map(max, label.slowest, seconds)), label.sum + seconds[0], once, (*label.layers, count))


def _kept(labels: list[_Label]) -> list[_Label]:
    """Return those that no other beats; of equal ones the first."""
    kept: list[_Label] = []
    for label in sorted(labels):
        if not any(other.beats(label) for other in kept):
            kept.append(label)
    return kept
