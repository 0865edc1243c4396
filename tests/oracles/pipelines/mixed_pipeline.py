"""1F1B played pass by pass on stages of unequal speed: when each pass ends, with messages between stages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations

#: A pass: whether it goes back, the chunk of layers, and the number of its micro-batch.
Pass = tuple[bool, int, int]
#: Seconds of each stage, or of each of its chunks of layers.
Seconds = Sequence[Fraction] | Sequence[Sequence[Fraction]]


def order(stages: int, microbatches: int, rank: int, chunks: int = 1) -> list[Pass]:
    """Return the passes of a rank: some forward passes ahead, then one forward and one back in turns.

    Each chunk of layers works on as many micro-batches as there are stages, then the next chunk does. Ahead are as many
    passes as stages follow; of several chunks twice as many, and all of the chunks but the last one.
    """
    rounds = [range(start, min(start + stages, microbatches)) for start in range(0, microbatches, stages)]
    forward = [(chunk, number) for numbers in rounds for chunk in range(chunks) for number in numbers]
    behind = stages - 1 - rank
    ahead = min(len(forward), behind if chunks == 1 else 2 * behind + (chunks - 1) * stages)
    passes: list[Pass] = [(False, *own) for own in forward[:ahead]]
    for place, (chunk, number) in enumerate(forward):
        passes += [(False, *own) for own in forward[ahead + place:ahead + place + 1]]
        passes.append((True, chunks - 1 - chunk, number))
    return passes


def play(forward: Seconds, backward: Seconds, microbatches: int, sends: Sequence[Fraction] = ()) -> Fraction:
    """Seconds until all stages are done; ``sends`` are those of a message over each border between stages.

    With several chunks of layers the last stage sends to the first one too, over the last border.
    """
    there, back_again = ([own if isinstance(own, Sequence) else [own] for own in passes]
                         for passes in (forward, backward))
    stages, chunks = len(there), len(there[0])
    left = [order(stages, microbatches, rank, chunks)[::-1] for rank in range(stages)]
    now, done = [Fraction(0)] * stages, dict[tuple[bool, int, int], Fraction]()
    while (waiting := sum(map(len, left))):
        for rank, passes in enumerate(left):
            while passes:
                back, chunk, number = passes[-1]
                part = chunk * stages + rank
                before = part + 1 if back else part - 1
                if not 0 <= before < stages * chunks:
                    ready = done[False, part, number] if back else Fraction(0)
                elif (back, before, number) in done:
                    ready = done[back, before, number] + (sends[min(part, before) % stages] if sends else 0)
                else:
                    break
                passes.pop()
                now[rank] = max(now[rank], ready) + (back_again if back else there)[rank][chunk]
                done[back, part, number] = now[rank]
        assert sum(map(len, left)) < waiting, "every stage waits for another"
    return max(now)


def at_least(seconds: Sequence[Sequence[Fraction]], microbatches: int) -> Fraction:
    """Seconds that no order of passes undercuts: a stage's own micro-batches, behind a first chunk of all before it."""
    return max(sum((chunks[0] for chunks in seconds[:rank]), Fraction(0)) + microbatches * sum(own, Fraction(0))
               for rank, own in enumerate(seconds))


def splits(layers: int, stages: int) -> Iterator[tuple[int, ...]]:
    """Every number of layers for each stage, one or more."""
    for cuts in combinations(range(1, layers), stages - 1):
        yield tuple(b - a for a, b in zip((0, *cuts), (*cuts, layers), strict=True))
