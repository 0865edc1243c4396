"""1F1B played pass by pass on stages of unequal speed: when each pass ends, with messages between stages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations

#: A pass: whether it goes back, and the number of its micro-batch.
Pass = tuple[bool, int]


def order(stages: int, microbatches: int, rank: int) -> list[Pass]:
    """Return the passes of a rank: as many forward as stages follow it, then one forward and one back in turns."""
    ahead = min(microbatches, stages - 1 - rank)
    passes: list[Pass] = [(False, number) for number in range(ahead)]
    for number in range(microbatches):
        if ahead + number < microbatches:
            passes.append((False, ahead + number))
        passes.append((True, number))
    return passes


def play(
    forward: Sequence[Fraction], backward: Sequence[Fraction], microbatches: int, sends: Sequence[Fraction] = (),
) -> Fraction:
    """Seconds until all stages are done; ``sends`` are those of a message over each border between stages."""
    stages = len(forward)
    left = [order(stages, microbatches, rank) for rank in range(stages)]
    now, done = [Fraction(0)] * stages, dict[tuple[Pass, int], Fraction]()
    while any(left):
        for rank, passes in enumerate(left):
            while passes:
                back, number = passes[0]
                before = rank + 1 if back else rank - 1
                if not 0 <= before < stages:
                    ready = done[(False, number), rank] if back else Fraction(0)
                elif ((back, number), before) in done:
                    ready = done[(back, number), before] + (sends[min(rank, before)] if sends else 0)
                else:
                    break
                passes.pop(0)
                now[rank] = max(now[rank], ready) + (backward if back else forward)[rank]
                done[(back, number), rank] = now[rank]
    return max(now)


def at_least(seconds: Sequence[Fraction], microbatches: int) -> Fraction:
    """Seconds that no order of passes undercuts: a stage's own micro-batches, behind one of all stages before it."""
    return max(sum(seconds[:rank], Fraction(0)) + microbatches * own for rank, own in enumerate(seconds))


def splits(layers: int, stages: int) -> Iterator[tuple[int, ...]]:
    """Every number of layers for each stage, one or more."""
    for cuts in combinations(range(1, layers), stages - 1):
        yield tuple(b - a for a, b in zip((0, *cuts), (*cuts, layers), strict=True))
