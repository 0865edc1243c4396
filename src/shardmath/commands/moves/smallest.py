"""The smallest sets of changes that reach something: none of them has a part that reaches it already."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations, product

import numpy as np
from numpy.typing import NDArray

from shardmath.commands.moves.around import Around, Move, Rows
from shardmath.commands.moves.variants import Variant
from shardmath.search.choosing import FASTER

#: As many changes at once are always looked at; more only while nothing is found.
_PAIRS = 2
#: Variants are combined with each other and with sizes up to so many changes.
_MOST = 3
#: Sizes alone are combined up to so many changes.
_SIZES = 4

Reached = Callable[[Rows], NDArray[np.bool_]]


def singles(around: Around, made: Sequence[Variant]) -> list[Move]:
    """Return every legal move that changes one thing."""
    return _moves(around, made, 1, lambda rows: np.ones(len(rows.peaks), np.bool_))


def fitting(around: Around, made: Sequence[Variant]) -> list[Move]:
    """Return the smallest sets of changes that make it fit; none if no layout of these GPUs fits.

    Sets of two are always looked at. Of larger ones, those of the first size at which any fits; beyond that the best
    layout that there is, however much it changes.
    """
    def fits(rows: Rows) -> NDArray[np.bool_]:
        fitting_rows: NDArray[np.bool_] = rows.peaks <= rows.limits
        return fitting_rows

    smallest: dict[frozenset[tuple[str, int | str]], Move] = {}
    for size in range(1, (_MOST if around.listed else _SIZES) + 1):
        if size > _PAIRS and smallest:
            break
        for move in _moves(around, made, size, fits):
            if not any(part in smallest for part in _parts(move)):
                smallest[move.key] = move
    if not smallest and (best := around.best()) is not None and best.fits:
        return [best]
    return list(smallest.values())


def gaining(around: Around, made: Sequence[Variant], seconds: float) -> list[Move]:
    """Single changes and pairs that fit and are worth it: faster than ``seconds``, and than each part that gains."""
    def gains(rows: Rows) -> NDArray[np.bool_]:
        faster_rows: NDArray[np.bool_] = (rows.peaks <= rows.limits) & (rows.seconds < (1 - FASTER) * seconds)
        return faster_rows

    gaining_moves: dict[frozenset[tuple[str, int | str]], Move] = {}
    for size in range(1, _PAIRS + 1):
        for move in _moves(around, made, size, gains):
            parts = [gaining_moves[part].seconds for part in _parts(move) if part in gaining_moves]
            best = min(known for known in (*parts, seconds) if known is not None)
            if move.seconds is not None and move.seconds < (1 - FASTER) * best:
                gaining_moves[move.key] = move
    return list(gaining_moves.values())


def _parts(move: Move) -> Iterator[frozenset[tuple[str, int | str]]]:
    """Yield every smaller set of a move's changes."""
    for size in range(1, len(move.changes)):
        yield from map(frozenset, combinations(move.key, size))


def _moves(around: Around, made: Sequence[Variant], size: int, wanted: Reached) -> list[Move]:
    """Return all legal moves of ``size`` changes that are wanted: of sizes, of variants, and of both."""
    moves = list[Move]()
    for count in range(size + 1 if size <= _MOST else 1):
        for chosen in _combined(made, count):
            rows = around.rows(chosen, size - count)
            moves += [rows.move(int(row)) for row in np.flatnonzero((rows.counts == size) & wanted(rows))]
    return moves


def _combined(made: Sequence[Variant], count: int) -> Iterable[tuple[Variant, ...]]:
    """Yield sets of variants of different things."""
    names = dict.fromkeys(item.name for item in made)
    for chosen in combinations(names, count):
        yield from product(*([item for item in made if item.name == name] for name in chosen))
