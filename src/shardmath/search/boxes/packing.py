"""Tables for boxes that are cut in one order: rows of all other boxes are left out.

Of most tables these are the more by far, as any of the axes may be free there; in one order those are that come last.
What is left of a row lies side by side: a box takes most numbers of a row, which come from memory together.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from shardmath.search.boxes import blocks
from shardmath.search.boxes.closing import for_closing
from shardmath.search.boxes.prepared import Integers, Prepared
from shardmath.search.boxes.stages import Stages


def packed(prepared: Prepared) -> Prepared:
    """Return what was prepared with tables that have boxes of its order alone.

    Those are boxes in which the first axes of the order have a place and the others are free. All parents but the root
    were bounded, so programs of all axes but the first leave out what does not change along them.
    """
    prepared = for_closing(prepared, prepared.order[1:].tolist())
    firsts, steps = np.zeros_like(prepared.firsts), np.zeros_like(prepared.steps)
    levels, rows = {axis: level for level, axis in enumerate(prepared.order.tolist())}, list[Integers]()
    for table, (count, *members) in enumerate(prepared.members.tolist()):
        own = np.zeros(1, np.int64)
        for axis in sorted(members[:count], key=levels.__getitem__, reverse=True):
            firsts[table, axis], steps[table, axis] = 1, len(own)
            places = prepared.firsts[table, axis] + prepared.steps[table, axis] * np.arange(len(prepared.live[axis]))
            own = np.concatenate([own[:1], (places[:, np.newaxis] + own).ravel()])
        rows.append(own)
    gathers = [stages.code[:, 0] == blocks.GATHER for stages in prepared.stages]
    columns = np.unique(np.concatenate([
        stages.code[own][:, (3, 2)] for stages, own in zip(prepared.stages, gathers, strict=True)]), axis=0)
    counts = np.bincount(columns[:, 0], minlength=len(rows))
    begins = np.cumsum([0, *(count * len(own) for count, own in zip(counts, rows, strict=True))])
    places = begins[columns[:, 0]] + np.arange(len(columns)) - np.searchsorted(columns[:, 0], columns[:, 0])
    by_start = np.argsort(columns[:, 1])

    def moved(stages: Stages, own: NDArray[np.bool_]) -> Stages:
        code = stages.code.copy()
        code[own, 2] = places[by_start][np.searchsorted(columns[by_start, 1], code[own, 2])]
        code[own, 4] = counts[code[own, 3]]
        return replace(stages, code=code)

    low, high = (
        np.concatenate([ends[:0], *(ends[columns[columns[:, 0] == table, 1] + own[:, np.newaxis]].ravel()
                                    for table, own in enumerate(rows))])
        for ends in (prepared.low, prepared.high))
    return replace(
        prepared, low=low, high=high, firsts=firsts, steps=steps,
        legal=np.concatenate([prepared.legal[start + own] for start, own in zip(prepared.starts, rows, strict=False)]),
        starts=np.cumsum([0, *map(len, rows)]), stages=tuple(map(moved, prepared.stages, gathers)),
    )
