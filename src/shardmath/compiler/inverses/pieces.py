"""Bounds of an expression in one integer symbol: pieces, on each of which two polynomials have it between them.

Without roundings the two are the same, and the expression is what they are: a polynomial on each piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from ..expressions.differences import Rational
from .laurent import Laurent, NoClosedFormError, combined, constant, inverse, product, signs, value


@dataclass(frozen=True)
class Piece:
    """``low <= expression <= high`` at the integers from ``first`` to ``last``; one object if it is both."""

    first: int
    last: int
    low: Laurent
    high: Laurent

    @property
    def is_exact(self) -> bool:
        """True if the expression is the polynomial."""
        return self.low is self.high

    def within(self, first: int, last: int) -> Piece:
        """Return a part of the piece."""
        return self if (first, last) == (self.first, self.last) else Piece(first, last, self.low, self.high)


#: Pieces one after the other, without gaps.
Pieces: TypeAlias = "tuple[Piece, ...]"
#: Where a condition holds: stretches with True, False, or None where it is not known.
Truth: TypeAlias = "tuple[tuple[int, int, bool | None], ...]"


def polynomial(first: int, last: int, exact: Laurent) -> Pieces:
    """Return one piece of an expression that is a polynomial."""
    return (Piece(first, last, exact, exact),)


def number(pieces: Pieces) -> Rational | None:
    """Return the value of an expression that is the same everywhere; None if it is not."""
    (piece, *others) = pieces
    if others or not piece.is_exact or any(piece.low.keys() - {0}):
        return None
    return piece.low.get(0, 0)


def cells(values: Sequence[Pieces]) -> Iterator[tuple[Piece, ...]]:
    """Yield stretches on which each of the values is one piece."""
    places = [0] * len(values)
    while True:
        here = [pieces[place] for pieces, place in zip(values, places, strict=True)]
        first, last = max(piece.first for piece in here), min(piece.last for piece in here)
        yield tuple(piece.within(first, last) for piece in here)
        for index, piece in enumerate(here):
            if piece.last == last:
                places[index] += 1
        if places[0] == len(values[0]):
            return


def joined(parts: Iterable[Piece]) -> Pieces:
    """Return pieces in which neighbours with the same polynomials are one."""
    pieces: list[Piece] = []
    for part in parts:
        before = pieces[-1] if pieces else None
        if before is not None and before.is_exact == part.is_exact and (before.low, before.high) == (
                part.low, part.high):
            pieces[-1] = Piece(before.first, part.last, before.low, before.high)
        else:
            pieces.append(part)
    return tuple(pieces)


def _made(first: int, last: int, low: Laurent, high: Laurent, exact: bool) -> Piece:
    return Piece(first, last, low, low if exact else high)


def added(values: Sequence[Pieces]) -> Pieces:
    """Return the sum of some expressions."""
    total, *rest = values
    for other in rest:
        total = joined(
            _made(left.first, left.last, low := combined(left.low, two.low),
                  low if left.is_exact and two.is_exact else combined(left.high, two.high),
                  left.is_exact and two.is_exact)
            for left, two in cells((total, other))
        )
    return total


def multiplied(first: Pieces, other: Pieces) -> Pieces:
    """Return the product of two expressions. Raises NoClosedFormError where the sign of one is not known."""
    return joined(part for pair in cells((first, other)) for part in _product(*pair))


def _product(left: Piece, two: Piece) -> Iterator[Piece]:
    first, last = left.first, left.last
    if left.is_exact and two.is_exact:
        yield _made(first, last, low := product(left.low, two.low), low, True)
        return
    if not left.is_exact and two.is_exact:
        left, two = two, left
    if left.is_exact:
        for start, stop, sign in signs(left.low, first, last):
            bounds = [product(left.low, two.low), product(left.low, two.high)]
            low, high = bounds if sign >= 0 else reversed(bounds)
            yield Piece(start, stop, low, high)
        return
    if _is_never(-1, left.low, first, last) and _is_never(-1, two.low, first, last):
        yield Piece(first, last, product(left.low, two.low), product(left.high, two.high))
        return
    raise NoClosedFormError("a product of two roundings that may be negative")


def _is_never(sign: int, bound: Laurent, first: int, last: int) -> bool:
    return all(seen_sign != sign for _, _, seen_sign in signs(bound, first, last))


def divided(over: Pieces, under: Pieces) -> Pieces:
    """Divide by a monomial on each piece, never 0. Raises NoClosedFormError for a rounding."""
    inverses = []
    for piece in under:
        if not piece.is_exact:
            raise NoClosedFormError("a division by a rounding")
        inverses.append(Piece(piece.first, piece.last, inverted := inverse(piece.low), inverted))
    return multiplied(over, tuple(inverses))


def rounded(over: Pieces, under: Pieces, up: bool) -> Pieces:
    """Round a quotient up or down: the error is below 1, and at most 1 - 1 / ``under`` if both are whole."""
    divisor = number(under)
    return joined(
        part for piece, quotient in cells((over, divided(over, under)))
        for part in _rounded(quotient, up, divisor if _is_whole(piece) else None)
    )


def _is_whole(piece: Piece) -> bool:
    """Return True for polynomials with whole coefficients, integers at integers; False if uncertain."""
    return piece.is_exact and all(
        exponent >= 0 and Fraction(count).denominator == 1 for exponent, count in piece.low.items())


def _rounded(piece: Piece, up: bool, under: Rational | None) -> Iterator[Piece]:
    ends = _range(piece)
    if ends is not None:
        least, most = (-(-end // 1) if up else end // 1 for end in ends)
        if least == most:
            yield _made(piece.first, piece.last, constant(int(least)), {}, True)
            return
    off = Fraction(1) if under is None or under < 1 or Fraction(under).denominator > 1 else 1 - Fraction(1) / under
    yield Piece(piece.first, piece.last, *(
        (piece.low, combined(piece.high, constant(off))) if up else (combined(piece.low, constant(-off)), piece.high)
    ))


def _range(piece: Piece) -> tuple[Rational, Rational] | None:
    """Return the least and the largest value, of bounds that rise or fall all along; else None."""
    ends = []
    for bound in (piece.low, piece.high):
        if len(bound.keys() - {0}) > 1:
            return None
        ends.append(sorted((value(bound, piece.first), value(bound, piece.last))))
    return ends[0][0], ends[1][1]


def padded(size: Pieces, multiple: Pieces) -> Pieces:
    """Return a size rounded up to a multiple: larger by less than that."""
    parts = []
    for left, two in cells((size, multiple)):
        if left.first == left.last and left.is_exact and two.is_exact:
            over, under = value(left.low, left.first), value(two.low, left.first)
            parts.append(_made(left.first, left.last, constant(-(-over // under) * under), {}, True))
        else:
            parts.append(Piece(left.first, left.last, left.low, combined(left.high, two.high)))
    return joined(parts)


def largest(values: Sequence[Pieces]) -> Pieces:
    """Return the largest of some expressions everywhere."""
    return _chosen(values, lambda sign: sign >= 0)


def smallest(values: Sequence[Pieces]) -> Pieces:
    """Return the smallest of some expressions everywhere."""
    return _chosen(values, lambda sign: sign <= 0)


def _chosen(values: Sequence[Pieces], first_wins: Callable[[int], bool]) -> Pieces:
    best, *rest = values
    for other in rest:
        best = joined(part for left, two in cells((best, other)) for part in _better(left, two, first_wins))
    return best


def _better(left: Piece, two: Piece, first_wins: Callable[[int], bool]) -> Iterator[Piece]:
    """Yield the better low bound and the better high bound, each chosen by itself."""
    lows = [(start, stop, left.low if first_wins(sign) else two.low)
            for start, stop, sign in signs(combined(left.low, two.low, -1), left.first, left.last)]
    if left.is_exact and two.is_exact:
        for start, stop, low in lows:
            yield Piece(start, stop, low, low)
        return
    highs = [(start, stop, left.high if first_wins(sign) else two.high)
             for start, stop, sign in signs(combined(left.high, two.high, -1), left.first, left.last)]
    for start, stop, low in lows:
        for begin, end, high in highs:
            if max(start, begin) <= min(stop, end):
                yield Piece(max(start, begin), min(stop, end), low, high)


def selected(truth: Truth, yes: Pieces, no: Pieces) -> Pieces:
    """Return ``yes`` where a condition holds, else ``no``; between both where it is not known."""
    parts: list[Piece] = []
    for left, two in cells((yes, no)):
        for first, last, holds in truth:
            start, stop = max(first, left.first), min(last, left.last)
            if start <= stop:
                here = left.within(start, stop), two.within(start, stop)
                parts += [here[0 if holds else 1]] if holds is not None else _either(*here)
    return joined(parts)


def _either(left: Piece, two: Piece) -> Pieces:
    return between(smallest(((left,), (two,))), largest(((left,), (two,))))


def between(least: Pieces, most: Pieces) -> Pieces:
    """Return the pieces between a lower and an upper expression."""
    return tuple(Piece(low.first, low.last, low.low, high.high) for low, high in cells((least, most)))


def compared(op: str, this: Pieces, two: Pieces) -> Truth:
    """Where one expression is equal to, at most, or below another; ``op`` is the graph's."""
    stretches: list[tuple[int, int, bool | None]] = []
    for left, right in cells((this, two)):
        above = signs(combined(left.low, right.high, -1), left.first, left.last)
        if left.is_exact and right.is_exact:
            stretches += [(start, stop, _HOLDS[op](sign)) for start, stop, sign in above]
            continue
        below = list(signs(combined(left.high, right.low, -1), left.first, left.last))
        for start, stop, least in above:
            for begin, end, most in below:
                if max(start, begin) <= min(stop, end):
                    stretches.append((max(start, begin), min(stop, end), _decided(op, least, most)))
    return tuple(stretches)


def _decided(op: str, least: int, most: int) -> bool | None:
    """Decide a comparison from the signs of the difference; None if they do not decide it."""
    answers = {_HOLDS[op](sign) for sign in range(least, most + 1)}
    return answers.pop() if len(answers) == 1 else None


_HOLDS: dict[str, Callable[[int], bool]] = {
    "eq": lambda sign: sign == 0, "le": lambda sign: sign <= 0, "lt": lambda sign: sign < 0,
}
