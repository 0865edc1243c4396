"""The nest of a part of a space: on columns where that takes no longer than compiling, else as machine code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from shardmath.search.nests.columns import ColumnNest
from shardmath.search.nests.compiled import CompiledNest, NumbaNest
from shardmath.search.nests.nest import Nest
from shardmath.search.spaces import Part, Question

#: Operations on single numbers that columns are good for: they take a processor about a second, and compiling takes two
#: to seven.
OPERATIONS = 4 * 10**8


def nest_of(part: Part, questions: Sequence[Question]) -> Nest:
    """Return the nest that answers ``questions`` soonest the first time; which one it is depends on the part alone."""
    nest = ColumnNest(part, questions)
    return CompiledNest(part, questions) if nest.exceeds(OPERATIONS) else nest


#: The backends of loops by name: what makes the nest of a part.
BACKENDS: Mapping[str, Callable[[Part, Sequence[Question]], Nest]] = {
    "auto": nest_of, "numpy": ColumnNest, "llvm": CompiledNest, "numba": NumbaNest,
}
