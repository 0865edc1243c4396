"""Monomials: products of powers of atoms, each packed into one integer, so that multiplying two is adding them.

A monomial is the sum of ``exponent * 2**(8 * atom)`` over its atoms. What two monomials share is found by their bits:
an exponent of 3 is three bits of its atom, one of -3 three other bits, and what is shared has the bits of both.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

Monomial = int
#: Bits of a packed exponent, and the largest exponent, of either sign: sums and differences of two still fit.
_WIDTH = 8
_MOST = 16
_HALF, _ALL = 1 << (_WIDTH - 1), (1 << _WIDTH) - 1


def monomial(exponents: Iterable[tuple[int, int]]) -> Monomial:
    """Return the monomial of exponents by the number of their atom."""
    return sum(exponent << (_WIDTH * atom) for atom, exponent in exponents)


@cache
def powers(packed: Monomial) -> tuple[tuple[int, int], ...]:
    """Return atoms, in their order, and exponents, which are not 0."""
    parts: list[tuple[int, int]] = []
    atom = 0
    while packed:
        exponent = ((packed + _HALF) & _ALL) - _HALF
        if exponent:
            parts.append((atom, exponent))
        packed = (packed - exponent) >> _WIDTH
        atom += 1
    return tuple(parts)


@cache
def bits(packed: Monomial) -> int:
    """Return as many bits for an atom as its exponent says, in another place if that is negative.

    Raises OverflowError for an exponent that is too large.
    """
    whole = 0
    for atom, exponent in powers(packed):
        if abs(exponent) > _MOST:
            raise OverflowError(f"an exponent must be between -{_MOST} and {_MOST}, not {exponent}")
        whole |= ((1 << abs(exponent)) - 1) << (_MOST * (2 * atom + (exponent < 0)))
    return whole


@cache
def of_bits(whole: int) -> Monomial:
    """Return the monomial with these bits."""
    exponents: list[tuple[int, int]] = []
    side = (1 << _MOST) - 1
    while whole:
        exponents.append((len(exponents), (whole & side).bit_count() - (whole >> _MOST & side).bit_count()))
        whole >>= 2 * _MOST
    return monomial(exponents)
