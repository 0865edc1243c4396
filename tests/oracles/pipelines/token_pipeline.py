"""A pipeline of slices played action by action: what each rank runs in which order, and when each action ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple


class Action(NamedTuple):
    """One pass of a slice through a stage."""

    backward: bool
    sequence: int
    part: int


def order(schedule: str, ranks: int, sequences: int, slices: int, rank: int) -> list[Action]:
    """Return what a rank runs, in its order.

    TeraPipe runs everything forward, then everything back. Seq1F1B starts with as many forward passes as ranks behind
    this one and slices before the last need, then takes turns; its sequences go back in the order in which they came.
    """
    forward = [Action(False, sequence, part) for sequence in range(sequences) for part in range(slices)]
    if schedule == "tokens":
        return forward + [action._replace(backward=True) for action in reversed(forward)]
    back = [Action(True, sequence, part) for sequence in range(sequences) for part in reversed(range(slices))]
    ahead = min(len(forward), ranks - 1 - rank + slices - 1)
    actions, waiting = forward[:ahead], forward[ahead:]
    for action in back:
        if waiting:
            actions.append(waiting.pop(0))
        actions.append(action)
    return actions


def play(
    schedule: str, ranks: int, sequences: int, forward: Sequence[Fraction], backward: Sequence[Fraction],
) -> Fraction:
    """Seconds until the last rank is done, where each slice takes as long on every rank."""
    left = [order(schedule, ranks, sequences, len(forward), rank) for rank in range(ranks)]
    now, done = [Fraction(0)] * ranks, dict[tuple[Action, int], Fraction]()
    while any(left):
        for rank, actions in enumerate(left):
            while actions and (ready := _ready(actions[0], rank, ranks, done)) is not None:
                action = actions.pop(0)
                seconds = (backward if action.backward else forward)[action.part]
                now[rank] = done[action, rank] = max(now[rank], ready) + seconds
    return max(now)


def _ready(action: Action, rank: int, ranks: int, done: Mapping[tuple[Action, int], Fraction]) -> Fraction | None:
    """Return when the input of an action is there, or None while it is not."""
    before = rank + 1 if action.backward else rank - 1
    if not 0 <= before < ranks:
        return done.get((action._replace(backward=False), rank)) if action.backward else Fraction(0)
    return done.get((action, before))
