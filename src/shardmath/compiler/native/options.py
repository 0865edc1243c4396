"""Options of LLVM: how wide vectors are, whether they gather and add by masks, and whether loops are unrolled.

None of it changes a number: no instruction of ``expressions`` may be rounded otherwise, or in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import median
from typing import TypeAlias

import llvmlite.binding as llvm

#: A rival replaces what stands if it takes at most this share of its time.
MARGIN = 0.92
_WIDTHS = ("-prefer-256-bit", "+prefer-256-bit")
_GATHERS = ("-prefer-no-gather", "+prefer-no-gather")


@dataclass(frozen=True)
class Options:
    """How functions are compiled.

    ``features`` are switches of LLVM besides the processor's. With ``masks``, numbers are counted by adding to some
    parts of a vector only. ``unrolling`` and ``interleaving`` are those of loops.
    """

    features: tuple[str, ...] = ()
    masks: bool = False
    unrolling: bool = False
    interleaving: bool = False


#: Seconds of runs of each of some options: as many of each, in turn.
Timed: TypeAlias = Callable[[Sequence[Options]], Sequence[Sequence[float]]]


def usual() -> Options:
    """Return the options of a processor that nothing was measured on.

    AMD's gather instructions are slower than eight loads. Short loops unrolled early are not vectorised, and vectors
    side by side need more registers than there are.
    """
    gathers = ("+prefer-no-gather",) if llvm.get_host_cpu_name().startswith("znver") else ()
    return Options(gathers, has("avx512f"))


def has(feature: str) -> bool:
    """Tell whether the processor has a feature, by LLVM's name."""
    return bool(llvm.get_host_cpu_features().get(feature, False))


def quickest(start: Options, timed: Timed) -> Options:
    """Return the options that are quicker than ``start`` by a clear margin, or ``start`` itself.

    The width of vectors and gathers are tried together, as each changes what the other costs; then the rest, each by
    itself.
    """
    for rivals in (_features_of, _loops_of):
        start = _winner([start, *rivals(start)], timed)
    return start


def _features_of(start: Options) -> list[Options]:
    """Get the other widths and gathers that the processor has: AVX2 gathers, and AVX-512 has vectors of two widths."""
    widths = _WIDTHS if has("avx512f") else ()
    kinds = [kind for kind in (widths, _GATHERS if has("avx2") else ()) if kind]
    return [replace(start, features=features) for features in product(*kinds) if features] if kinds else []


def _loops_of(start: Options) -> list[Options]:
    others = [replace(start, interleaving=True), replace(start, unrolling=True)]
    return [*others, replace(start, masks=False)] if start.masks else others


def _winner(candidates: Sequence[Options], timed: Timed) -> Options:
    """Get the quickest at its best, if it is quicker than the first by the margin there and in most of the rounds."""
    if len(candidates) == 1:
        return candidates[0]
    first, *others = timed(candidates)
    best = min(first)
    quicker = [
        (min(taken), place) for place, taken in enumerate(others, 1)
        if min(taken) <= MARGIN * best
        and median(mine / other for mine, other in zip(taken, first, strict=True)) <= MARGIN
    ]
    return candidates[min(quicker)[1]] if quicker else candidates[0]
