"""The largest or the smallest legal value of a symbol with which an estimate stays within a limit.

The pieces of the estimate say where it certainly fits and where it certainly does not: the ends of these stretches are
roots of linear and quadratic polynomials. What lies between the two bounds, where roundings decide, and whether a value
is legal, is settled by exact evaluation next to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from ..expressions.differences import Rational
from .laurent import Laurent, NoClosedFormError, combined, constant, signs, value
from .pieces import Piece, Pieces

Part = TypeVar("Part")

#: Legal values that are tried one by one before bounds of a smaller stretch are asked for.
_TRIED = 8
#: Legal values that are evaluated in all, at most: where bounds lie far apart there may be any number between them.
_MOST_TRIED = 50_000


class Legal(Protocol):
    """The legal values of a symbol."""

    def next(self, start: int, stop: int) -> int | None:
        """Return the first legal value on the way from ``start`` to ``stop``, up or down; None if there is none."""


@dataclass(frozen=True)
class Asked:
    """Goal of a symbol.

    ``enclose`` gives the pieces of the estimate on a stretch of integers, ``exact`` its value at one; ``limit`` is what
    it must not exceed.
    """

    enclose: Callable[[int, int], Pieces]
    exact: Callable[[int], Rational]
    legal: Legal
    limit: Rational


@dataclass(frozen=True)
class Extreme:
    """An answer: ``piece`` is the closed form there, ``tried`` how many values were evaluated beside it.

    ``others_fit`` says whether all legal values on the fitting side fit as well; None if the bounds do not say.
    """

    value: int
    piece: Piece
    tried: int
    others_fit: bool | None


def extreme(asked: Asked, first: int, last: int, *, largest: bool) -> Extreme | None:
    """Return the largest, or the smallest, legal value from ``first`` to ``last`` that fits; None if none does.

    No order is assumed: everything beyond the answer is known not to fit. Raises NoClosedFormError where the bounds
    leave too many values between them.
    """
    search = _Search(asked, largest)
    place = search.within(first, last)
    if place is None:
        return None
    at, piece = place
    side = (first, at) if largest else (at, last)
    return Extreme(at, piece, search.tried, _all_fit(asked, *side))


class _Search:
    """Goes from one end of the integers to the other, over stretches on which the low bound fits."""

    def __init__(self, asked: Asked, largest: bool) -> None:
        self.asked, self.largest, self.tried = asked, largest, 0

    def within(self, first: int, last: int) -> tuple[int, Piece] | None:
        for piece in self._ordered(self.asked.enclose(first, last)):
            for start, stop in self._ordered(list(_fitting(piece, piece.low, self.asked.limit))):
                place = self._on(piece, start, stop)
                if place is not None:
                    return place
        return None

    def _ordered(self, parts: Sequence[Part]) -> Sequence[Part]:
        return parts[::-1] if self.largest else parts

    def _on(self, piece: Piece, start: int, stop: int) -> tuple[int, Piece] | None:
        """Return the answer on a stretch where the low bound fits, if it has one."""
        near, far = (stop, start) if self.largest else (start, stop)
        step = -1 if self.largest else 1
        for _ in range(_TRIED):
            at = self.asked.legal.next(near, far)
            if at is None:
                return None
            if self._fits(piece, at):
                return at, piece
            if at == far:
                return None
            near = at + step
        middle = (near + far) // 2
        nearer, further = sorted((near, middle + (step < 0))), sorted((middle + (step > 0), far))
        if abs(near - far) <= _TRIED:  # nothing left to divide
            return self._on(piece, min(near, far), max(near, far))
        return self.within(*nearer) or self.within(*further)

    def _fits(self, piece: Piece, at: int) -> bool:
        if value(piece.high, at) <= self.asked.limit:
            return True
        if self.tried == _MOST_TRIED:
            raise NoClosedFormError(f"its bounds leave more than {_MOST_TRIED:,} values open")
        self.tried += 1
        return self.asked.exact(at) <= self.asked.limit


def _fitting(piece: Piece, bound: Laurent, limit: Rational) -> Iterator[tuple[int, int]]:
    for start, stop, sign in signs(combined(bound, constant(-limit)), piece.first, piece.last):
        if sign <= 0:
            yield start, stop


def _all_fit(asked: Asked, first: int, last: int) -> bool | None:
    """Tell from the bounds whether everything from ``first`` to ``last`` fits, or whether something does not."""
    pieces = asked.enclose(first, last)
    if all(sign <= 0 for piece in pieces for *_, sign in
           signs(combined(piece.high, constant(-asked.limit)), piece.first, piece.last)):
        return True
    certain = any(sign > 0 for piece in pieces for *_, sign in
                  signs(combined(piece.low, constant(-asked.limit)), piece.first, piece.last))
    return False if certain else None
