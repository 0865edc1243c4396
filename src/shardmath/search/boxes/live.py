"""Places of axes at which a configuration may be legal: boxes and tables have no others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shardmath.compiler.expressions.graph import Node
from shardmath.search.boxes import blocks
from shardmath.search.boxes.tables import LEGAL, Table, rows_of
from shardmath.search.spaces import Axis

Integers = NDArray[np.int64]
_NOTHING = np.empty(0)
#: The place of an axis at which nothing is legal.
DEAD = -2


def live_places(
    axes: Sequence[Axis], conditions: Iterable[Node], mask: Mapping[Node, int], common: Mapping[Node, Any],
) -> tuple[Integers, ...]:
    """Return for each axis the places at which no condition fails whatever the places of all other axes are.

    ``mask`` has the axes of each condition, as bits; those of so many that a table has no room are not asked. All
    places are returned where no configuration is legal.
    """
    every = tuple(np.arange(axis.size) for axis in axes)
    masks = list(dict.fromkeys(mask[node] for node in conditions if mask[node]))
    live, before = every, None
    while before is None or any(len(old) > len(new) for old, new in zip(before, live, strict=True)):
        before = live
        for own in masks:
            left = tuple(with_places(axis, places) for axis, places in zip(axes, live, strict=True))
            if rows_of(left, own) <= LEGAL:
                inside = [node for node in conditions if mask[node] and not mask[node] & ~own]
                members = [(place, axis) for place, axis in enumerate(left) if own >> place & 1]
                legal = Table(members, (), inside, common, _NOTHING, _NOTHING).legal.reshape(
                    [axis.size + 1 for _, axis in members])
                live = tuple(
                    places[legal[tuple(slice(1, None) if other == place else 0 for other, _ in members)]]
                    if own >> place & 1 else places for place, places in enumerate(live))
                if not all(map(len, live)):
                    return every
    return live


def with_places(axis: Axis, places: Integers) -> Axis:
    """Return an axis with some of its places."""
    def taken(values: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(values[place] for place in places.tolist())

    return replace(axis, labels=taken(axis.labels), values={name: taken(own) for name, own in axis.values.items()})


def narrowing(sizes: Sequence[int], live: Sequence[Integers]) -> Callable[[NDArray[np.int16]], Integers]:
    """Return a function of boxes that counts the live places of each axis alone; others are ``DEAD``."""
    lookups = []
    for size, places in zip(sizes, live, strict=True):
        lookup = np.full(size + 1, DEAD)
        lookup[places], lookup[size] = np.arange(len(places)), blocks.FREE
        lookups.append(lookup)

    def narrowed(boxes: NDArray[np.int16]) -> Integers:
        result = np.empty(boxes.shape, np.int64)
        for axis, lookup in enumerate(lookups):
            result[:, axis] = lookup[boxes[:, axis]]
        return result

    return narrowed
