"""Ends of bounds that closing boxes needs: the least values of keys, and whether a box may have what counts.

Most of the other ends are never asked for: the least value of a sum needs the least values of its parts alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np

from shardmath.search.boxes import blocks
from shardmath.search.boxes.blocks import BOTH, LOWER, UPPER
from shardmath.search.boxes.prepared import Prepared
from shardmath.search.boxes.stages import Stages

#: Ends of a result that are needed, and those of its arguments that follow from them.
_Needs = Callable[[int], tuple[int, ...]]


def _other(ends: int) -> int:
    return {LOWER: UPPER, UPPER: LOWER, BOTH: BOTH}[ends]


_SAME = {blocks.ADD, blocks.MULTIPLY, blocks.MAXIMUM, blocks.MINIMUM, blocks.ADD_NUMBER, blocks.SCALE,
         blocks.DIVIDE_NUMBER, blocks.CEIL, blocks.FLOOR}
_OF_ONE = {blocks.ADD_NUMBER, blocks.SCALE, blocks.FLIP, blocks.DIVIDE_NUMBER, blocks.CEIL, blocks.FLOOR, blocks.NOT}
_NEEDS: Mapping[int, _Needs] = {
    **dict.fromkeys(_SAME - _OF_ONE, lambda ends: (ends, ends)),
    **dict.fromkeys(_SAME & _OF_ONE, lambda ends: (ends,)),
    **dict.fromkeys((blocks.FLIP, blocks.NOT), lambda ends: (_other(ends),)),
    blocks.TIMES_POSITIVE: lambda ends: (ends, BOTH),
    blocks.DIVIDE: lambda ends: (ends, _other(ends)),
    blocks.SELECT: lambda ends: (BOTH, ends, ends),
    **dict.fromkeys((blocks.AT_MOST, blocks.LESS), lambda ends: (_other(ends), ends)),
    **dict.fromkeys((blocks.TIMES, blocks.TIMES_UNBOUNDED, blocks.DIVIDE_ANY, blocks.MULTIPLE, blocks.EQUAL,
                     blocks.DIVIDES), lambda ends: (BOTH, BOTH)),
    blocks.FILL: lambda ends: (),
}


def for_closing(prepared: Prepared, around: Iterable[int] = ()) -> Prepared:
    """Return what was prepared with programs for what closes boxes alone.

    Those of axes of ``around`` are for children of boxes that were bounded: what does not change along the axis is that
    of the parent.
    """
    lent = {*around}
    return replace(prepared, stages=tuple(
        _closing(_changing(stages) if axis in lent else stages) for axis, stages in enumerate(prepared.stages)))


def _changing(stages: Stages) -> Stages:
    """Return programs for what changes along their axis alone."""
    return replace(stages, counting=stages.changing, keys=np.where(stages.lent, blocks.PARENTS, stages.keys))


def _closing(stages: Stages) -> Stages:
    """Return programs without the ends that are not needed, and without instructions of which none is."""
    code, (begin, first, then, stop) = stages.code.copy(), stages.stages.tolist()
    needed: dict[int, int] = defaultdict(int)
    lent: dict[int, int] = defaultdict(int)
    tables, of_parents = set[int](), set[int]()
    for slot in stages.keys[stages.keys != blocks.PARENTS].tolist():
        needed[slot] |= LOWER

    def trace(start: int, end: int) -> None:
        """Look at instructions from the last to the first, as each says what those before it are needed for."""
        for row in code[start:end][::-1]:
            operation, slot, *args = row[:5].tolist()
            if operation in (blocks.ROWS, blocks.OUTER_ROWS):
                row[6] = BOTH if args[0] in tables else 0
                if operation == blocks.ROWS and args[0] in tables:
                    of_parents.add(args[0])
                tables.discard(args[0])
                continue
            row[6] = needed.pop(slot, 0)
            if not row[6]:
                continue
            if operation == blocks.LEND:
                lent[args[0]] |= int(row[6])
            elif operation == blocks.GATHER:
                tables.add(args[1])
            else:
                for arg, ends in zip(args, _NEEDS[operation](int(row[6])), strict=False):
                    needed[arg] |= ends

    trace(then, stop)
    for slot in stages.counting.tolist():
        needed[slot] |= UPPER
    kept = [slot for slot in stages.kept.tolist() if needed.get(slot)]
    trace(first, then)
    needed.clear()
    needed.update(lent)
    tables |= of_parents
    trace(begin, first)
    left = code[:, 6] != 0
    before = np.concatenate([[0], np.cumsum(left)])
    return replace(stages, code=code[left], stages=before[stages.stages], kept=np.asarray(kept, np.int64), every=0)
