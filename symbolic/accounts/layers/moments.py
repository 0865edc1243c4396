"""The largest moments of the backward pass of one layer, or of the final norm, from its operations.

Of moments at which no more can be alive than at another one nothing is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import product as combinations

from sympy import Add, Expr, Mul, Symbol

from ...dimension import ONE
from ...dimensions import HEADS, KV_HEADS
from ...functions import Iverson
from ...implementations import Implementation
from ...parallel.deepspeed import STAYS
from ...parameters import BY_LETTER, symbols
from ..pytorch.gathered import ACCUMULATED
from ..rows import local_shape
from .autograd import Value, Walk
from .transformers import Layer

a, k, qkn, rfull = symbols("a k qkn rfull")

#: Numbers of key and of query heads, which are as many or more; on one rank too.
_MORE_HEADS = {k: a, local_shape((KV_HEADS,))[0]: local_shape((HEADS,))[0]}
#: 1 where a gradient is gone at once, by the kind of data parallelism that can have it so: added, or in a bucket.
_GONE: Mapping[str, Expr] = {"ddp": ACCUMULATED, "deepspeed": 1 - STAYS}
#: Levels of one moment by the values of the switches.
Case = tuple[int, ...]
Levels = Mapping[Case, Mapping[Expr, int]]


def moments(implementation: Implementation, recorded: Callable[[Layer], Value] | None = None, kind: type[Layer] = Layer,
            *, is_forward: bool = False, saves: bool = True) -> tuple[Expr, ...]:
    """Return the bytes of every moment that can be the largest, beside all that the recorded operations have saved.

    ``is_forward``: of the first forward pass without recompute, instead of the backward pass; of one that ``saves``
    nothing, with recompute.
    """
    choices = implementation.choices
    is_layer = recorded is None
    added = range(1 + (choices["data_parallel"] in _GONE and not is_forward))
    normed = range(1 + (is_layer and choices["heads"] == "grouped"))
    own = kind.switches(choices) if is_layer else ()
    switches = (qkn, _GONE[choices["data_parallel"]] if 1 in added else ONE, rfull, *own)
    cases: list[Case] = [*combinations(normed, added, range(1 + (is_layer and not is_forward)),
                                       *(range(2) for _ in own))]
    levels: dict[tuple[str, int], dict[Case, Mapping[Expr, int]]] = {}
    for case in cases:
        layer = kind(implementation, bool(case[0]), *map(bool, case[len(switches) - len(own):]))
        walk = Walk(layer.tape, bool(case[1]), bool(case[2]))
        output = layer.run() if recorded is None else recorded(layer)
        if is_forward:
            walk.run_forward(saves)
        else:
            walk.run(output)
        for moment, level in walk.moments.items():
            levels.setdefault(moment, {})[case] = level
    return tuple(_written(level, cases, switches) for level in _undominated(levels.values(), cases))


def _undominated(levels: Iterable[Levels], cases: list[Case]) -> list[Levels]:
    """Drop every moment that is nowhere above another one."""
    kept: list[Levels] = []
    for level in levels:
        if any(_below(level, other, cases) for other in kept):
            continue
        kept = [other for other in kept if not _below(other, level, cases)]
        kept.append(level)
    return kept


def _below(low: Levels, high: Levels, cases: list[Case]) -> bool:
    """Tell whether one moment is never above another; a moment that a case does not have is nothing there."""
    return all(case not in low or (case in high and _at_most(low[case], high[case])) for case in cases)


def _at_most(low: Mapping[Expr, int], high: Mapping[Expr, int]) -> bool:
    """Tell whether one sum of products is at most another: each product has a larger one of its own."""
    more = {key: value - low.get(key, 0) for key, value in high.items()}
    more |= {key: -value for key, value in low.items() if key not in high}
    needed = {key: -value for key, value in more.items() if value < 0}
    spare = {key: value for key, value in more.items() if value > 0}
    for small, number in needed.items():
        missing = number
        for large, left in spare.items():
            if missing and left and _is_larger(large, small):
                taken = min(missing, left)
                spare[large], missing = left - taken, missing - taken
        if missing:
            return False
    return True


@cache
def _is_larger(large: Expr, small: Expr) -> bool:
    """Tell whether a product is at least another, with as many query heads as there are key heads or more."""
    return any(_has_factors(large / small.xreplace(swapped)) for swapped in ({}, _MORE_HEADS))


def _has_factors(quotient: Expr) -> bool:
    """Tell whether all factors are at least 1 where they multiply, and at most 1 where they divide."""
    for base, power in quotient.as_powers_dict().items():
        is_switch = isinstance(base, Iverson) or (isinstance(base, Symbol) and _is_switch(base))
        if (is_switch and power > 0) or (not is_switch and not base.is_number and power < 0):
            return False
    return bool(Mul(*(base for base in quotient.as_powers_dict() if base.is_number)) >= 1)


def _is_switch(letter: Symbol) -> bool:
    return str(letter) in BY_LETTER and BY_LETTER[str(letter)].is_switch


def _written(levels: Levels, cases: list[Case], switches: tuple[Expr, ...]) -> Expr:
    """Return a moment as one sum, in which every switch, and all switches together, add what they change."""
    changes = {case: Counter(levels.get(case, {})) for case in cases}
    for place in range(len(switches)):
        for case in (case for case in cases if case[place]):
            changes[case].subtract(changes[*case[:place], 0, *case[place + 1:]])
    return Add(*(
        Mul(*(switch for switch, is_on in zip(switches, case, strict=True) if is_on))
        * Add(*(number * key for key, number in change.items() if number))
        for case, change in changes.items()))
