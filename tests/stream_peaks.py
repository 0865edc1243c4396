"""Largest moments of the streams of a step: of recorded allocations, and as the ledger has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction

from shardmath.allocator.trace import Action, Event
from shardmath.steps.trace import GATHER, REDUCE


def peaks_by_stream(events: Iterable[Event]) -> dict[int, int]:
    """Return the most bytes that each stream has, as they are asked for."""
    held: dict[int, tuple[int, int]] = {}
    now: Counter[int] = Counter()
    most: Counter[int] = Counter()
    for event in events:
        if event.action is Action.ALLOCATE:
            held[event.key] = event.size, event.stream
            now[event.stream] += event.size
            most[event.stream] = max(most[event.stream], now[event.stream])
        elif event.action is Action.FREE:
            size, stream = held.pop(event.key)
            now[stream] -= size
    return most


def peaks_by_terms(numbers: Mapping[str, int | Fraction]) -> dict[int, int]:
    """Return the same as the ledger has it."""
    default = numbers["stage.static"] + numbers["stage.default_stream"]
    return {0: int(default), GATHER: int(numbers["stage.gather_stream"]), REDUCE: int(numbers["stage.reduce_stream"])}
