"""Polynomials, and how one splits into shared * quotient + rest at a monomial or a sum that summands share.

A polynomial is a sequence of monomials with numbers; a monomial has one exponent for each atom: a symbol, a bracket, a
function, or a sum that is divided by. All that is listed comes in the order of the summands, so that nothing that
follows from it depends on a hash.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from itertools import combinations
from math import gcd

Monomial = tuple[int, ...]
#: Whole numbers are integers, with which Python computes many times faster.
Number = int | Fraction
#: Summands in an order, each with its number.
Polynomial = tuple[tuple[Monomial, Number], ...]
#: Two factors and a rest.
Split = tuple[Polynomial, Polynomial, Polynomial]


def polynomial_of(summands: Mapping[Monomial, Number]) -> Polynomial:
    """Return the summands that are not 0, in the order in which they came."""
    return tuple((powers, number) for powers, number in summands.items() if number)


def content(polynomial: Polynomial) -> tuple[tuple[Monomial, Number], Polynomial]:
    """Split into what all summands share, with the sign if all are negative, and what is left."""
    shared = _shared(*(powers for powers, _ in polynomial))
    numbers = [number for _, number in polynomial]
    common = _common(*numbers)
    if all(number < 0 for number in numbers):
        common = -common
    if common == 1 and not any(shared):
        return (shared, 1), polynomial
    return (shared, common), divided(polynomial, shared, common)


def divided(polynomial: Polynomial, shared: Monomial, common: Number) -> Polynomial:
    """Divide by a monomial and a number."""
    return tuple((_without(powers, shared), ratio(number, common)) for powers, number in polynomial)


def ratio(over: Number, under: Number) -> Number:
    """Divide exactly."""
    if under == 1:
        return over
    if isinstance(over, int) and isinstance(under, int) and over % under == 0:
        return over // under
    value = Fraction(over) / under
    return value.numerator if value.denominator == 1 else value


def _common(*numbers: Number) -> Number:
    """Return the factor that all numerators have, over the one that all denominators have."""
    over, under = gcd(*(number.numerator for number in numbers)), gcd(*(number.denominator for number in numbers))
    return over if under == 1 else Fraction(over, under)


def _shared(first: Monomial, *more: Monomial) -> Monomial:
    """Return the powers that all monomials have above, or all have below."""
    shared = first
    for monomial in more:
        if not any(shared):
            break
        shared = tuple(
            0 if left * right <= 0 else min(left, right) if left > 0 else max(left, right)
            for left, right in zip(shared, monomial, strict=True)
        )
    return shared


def _is_multiple(number: Number, factor: Number) -> bool:
    """Tell whether a number is a whole multiple of a factor."""
    if type(number) is int and type(factor) is int:
        return number % factor == 0
    return _common(number, factor) == factor


def _without(powers: Monomial, shared: Monomial) -> Monomial:
    return tuple(map(int.__sub__, powers, shared))


def _multiples(polynomial: Polynomial, shared: Monomial) -> Polynomial:
    """Return the summands that a monomial divides."""
    parts = [(place, part) for place, part in enumerate(shared) if part]
    return tuple(item for item in polynomial if all(
        part <= item[0][place] if part > 0 else item[0][place] <= part for place, part in parts))


def splits(polynomial: Polynomial) -> Iterator[Split]:
    """Yield the splits at what two summands or more share, and at sums that come up twice."""
    sums: dict[Polynomial, None] = {}
    for shared in _monomials(polynomial):
        inside = _multiples(polynomial, shared)
        for number in _numbers(inside):
            taken = tuple(item for item in inside if _is_multiple(item[1], number))
            if len(taken) < 2 or (number == 1 and not any(shared)):
                continue
            quotient, gone = divided(taken, shared, number), {powers for powers, _ in taken}
            yield ((shared, number),), quotient, tuple(item for item in polynomial if item[0] not in gone)
            if number == 1:
                sums.setdefault(content(quotient)[1], None)
    for left, right in combinations([(part, frozenset(part)) for part in sums], 2):
        both = tuple(item for item in left[0] if item in right[1])
        if len(both) > 1:
            sums.setdefault(content(both)[1], None)
    yield from filter(None, (_at(polynomial, divisor) for divisor in sums))


def _monomials(polynomial: Polynomial) -> Iterable[Monomial]:
    """List shared parts of two monomials, then each atom alone, above and below."""
    pairs = dict.fromkeys(_shared(left, right) for (left, _), (right, _) in combinations(polynomial, 2))
    single: dict[Monomial, None] = {}
    for powers, _ in polynomial:
        for place, exponent in enumerate(powers):
            if exponent:
                step = 1 if exponent > 0 else -1
                single[(0,) * place + (step,) + (0,) * (len(powers) - place - 1)] = None
    return {**pairs, **single}


def _numbers(summands: Polynomial) -> list[Number]:
    """Return numbers that two summands have as a factor, and 1."""
    counts = Counter(-number if number < 0 else number for _, number in summands)
    shared: set[Number] = {1, *(_common(left, right) for left, right in combinations(counts, 2))}
    shared.update(number for number, count in counts.items() if count > 1)
    return sorted(shared)


def _at(polynomial: Polynomial, divisor: Polynomial) -> Split | None:
    """Split off all that is a multiple of ``divisor``, summand by summand; None if that is one multiple or none."""
    known = dict(polynomial)
    (first, number), *more = divisor
    quotient: dict[Monomial, Number] = {}
    used: set[Monomial] = set()
    for powers, part in polynomial:
        if powers in used:
            continue
        times_this, factor = _without(powers, first), ratio(part, number)
        covered = [powers]
        for other, times in more:
            at = tuple(map(int.__add__, times_this, other))
            if at in used or known.get(at) != factor * times:
                break
            covered.append(at)
        else:
            quotient[times_this] = factor
            used.update(covered)
    if len(quotient) < 2:
        return None
    return divisor, polynomial_of(quotient), tuple(item for item in polynomial if item[0] not in used)
