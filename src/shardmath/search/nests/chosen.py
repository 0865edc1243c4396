"""The nest of a part of a space: on columns where that takes no longer than compiling, else as machine code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from shardmath.errors import InputError
from shardmath.search.nests.columns import ColumnNest
from shardmath.search.nests.compiled import CompiledNest, NumbaNest
from shardmath.search.nests.listed import ListedNest
from shardmath.search.nests.nest import Nest
from shardmath.search.nests.posing import is_large
from shardmath.search.spaces import Part, Question

#: Operations on single numbers that columns are good for: they take a processor about a second, and compiling takes two
#: to seven. The nest of a large part serves that part alone, and is seldom used again: two seconds on columns are less.
OPERATIONS, OF_LARGE = 4 * 10**8, 10**9


def nest_of(part: Part, questions: Sequence[Question], like: Nest | None = None) -> Nest:
    """Return the nest that answers ``questions`` soonest the first time; which one it is depends on the part alone.

    It is of the kind that is ``like``, if that is given: a nest of the same part with other values of symbols.
    """
    if part.sharing is not None:
        return ListedNest(part, questions)
    if isinstance(like, CompiledNest):
        return CompiledNest(part, questions)
    if isinstance(like, ColumnNest):
        return ColumnNest(part, questions)
    nest = ColumnNest(part, questions)
    return CompiledNest(part, questions) if nest.exceeds(OF_LARGE if is_large(part) else OPERATIONS) else nest


def is_quick(nest: Nest) -> bool:
    """Tell whether loops end here before a cluster has begun: those on columns take about a second."""
    return isinstance(nest, ColumnNest)


def refuse_loops(parts: Sequence[Part], **asked: str) -> None:
    """Raise InputError where layouts with layers of their own are asked of loops that know one machine.

    ``asked`` are arguments of ``explore``, whose first value looks at each layout.
    """
    usual = {"method": "sweep", "device": "cpu", "backend": "auto"}
    words = next((part.sharing.words for part in parts if part.sharing is not None), "")
    for name, value in asked.items():
        if words and value != usual[name]:
            rule = f"must be {usual[name]} {words}: each layout has layers of its own"
            raise InputError(name, value, rule, usual[name])


#: The backends of loops by name: what makes the nest of a part.
BACKENDS: Mapping[str, Callable[[Part, Sequence[Question]], Nest]] = {
    "auto": nest_of, "numpy": ColumnNest, "llvm": CompiledNest, "numba": NumbaNest,
}
