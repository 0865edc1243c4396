"""The nest of a part of a space: on columns where that takes no longer than compiling, else as machine code."""

from __future__ import annotations

from collections.abc import Sequence

from shardmath.search.nests.columns import ColumnNest
from shardmath.search.nests.compiled import CompiledNest
from shardmath.search.nests.nest import Nest
from shardmath.search.nests.posing import is_large
from shardmath.search.spaces import Part, Question

#: Operations on single numbers that columns are good for: about a second of one processor.
OPERATIONS = 4 * 10**8


def nest_of(part: Part, questions: Sequence[Question]) -> Nest:
    """The nest that answers ``questions`` soonest the first time; which one it is depends on the part alone."""
    if not is_large(part):
        nest = ColumnNest(part, questions)
        if not nest.exceeds(OPERATIONS):
            return nest
    return CompiledNest(part, questions)
