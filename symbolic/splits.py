"""Polynomials, and how one splits into shared * quotient + rest at a monomial or a sum that summands share.

A polynomial is a sequence of monomials with numbers; atoms of monomials are symbols, brackets, functions, and sums that
are divided by. All that is listed comes in the order of the summands, so that nothing that follows from it depends on a
hash.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache
from itertools import combinations
from math import gcd

from .monomials import Monomial, bits, monomial, of_bits, powers

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
    in_all = bits(polynomial[0][0])
    for part, _ in polynomial[1:]:
        in_all &= bits(part)
    shared, numbers = of_bits(in_all), [number for _, number in polynomial]
    common = _common(*numbers)
    if all(number < 0 for number in numbers):
        common = -common
    if common == 1 and not shared:
        return (0, 1), polynomial
    return (shared, common), divided(polynomial, shared, common)


def divided(polynomial: Polynomial, shared: Monomial, common: Number) -> Polynomial:
    """Divide by a monomial and a number."""
    if common == 1:
        return tuple([(part - shared, number) for part, number in polynomial])
    return tuple([(part - shared, ratio(number, common)) for part, number in polynomial])


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


def _is_multiple(number: Number, factor: Number) -> bool:
    """Tell whether a number is a whole multiple of a factor."""
    if type(number) is int and type(factor) is int:
        return number % factor == 0
    return _common(number, factor) == factor


def splits(polynomial: Polynomial) -> Iterator[Split]:
    """Yield the splits at what two summands or more share, and at sums that come up twice."""
    sums: dict[Polynomial, None] = {}
    summands = [(bits(item[0]), item) for item in polynomial]
    for shared in _monomials(polynomial):
        needed = bits(shared)
        inside = [item for own, item in summands if own & needed == needed]
        for number in _numbers(tuple([abs(number) for _, number in inside])):
            taken = inside if number == 1 else [item for item in inside if _is_multiple(item[1], number)]
            if len(taken) < 2 or (number == 1 and not shared):
                continue
            quotient, gone = divided(tuple(taken), shared, number), {part for part, _ in taken}
            yield ((shared, number),), quotient, tuple([item for item in polynomial if item[0] not in gone])
            if number == 1:
                sums.setdefault(content(quotient)[1], None)
    for both in _in_two([*sums]):
        sums.setdefault(content(both)[1], None)
    known = dict(polynomial)
    yield from filter(None, (_at(polynomial, known, divisor) for divisor in sums))


def _in_two(sums: Sequence[Polynomial]) -> Iterator[Polynomial]:
    """Yield what a sum has in common with a later one, if that is more than one summand."""
    places: dict[tuple[Monomial, Number], int] = {}
    sets = [sum(1 << places.setdefault(item, len(places)) for item in part) for part in sums]
    for number, (part, own) in enumerate(zip(sums, sets, strict=True)):
        for both in dict.fromkeys([own & other for other in sets[number + 1:]]):
            if both.bit_count() > 1:
                yield tuple([item for item in part if both >> places[item] & 1])


def _monomials(polynomial: Polynomial) -> dict[Monomial, None]:
    """List shared parts of two monomials, then each atom alone, above and below."""
    all_bits = [bits(part) for part, _ in polynomial]
    pairs = dict.fromkeys([left & right for left, right in combinations(all_bits, 2)])
    single = dict.fromkeys([
        monomial([(atom, 1 if exponent > 0 else -1)]) for part, _ in polynomial for atom, exponent in powers(part)])
    return {**dict.fromkeys(map(of_bits, pairs)), **single}


@cache
def _numbers(numbers: tuple[Number, ...]) -> list[Number]:
    """Return numbers that two of these have as a factor, and 1."""
    counts = Counter(numbers)
    shared: set[Number] = {1, *(_common(left, right) for left, right in combinations(counts, 2))}
    shared.update(number for number, count in counts.items() if count > 1)
    return sorted(shared)


def _at(polynomial: Polynomial, known: Mapping[Monomial, Number], divisor: Polynomial) -> Split | None:
    """Split off all that is a multiple of ``divisor``, summand by summand; None if that is one multiple or none.

    ``known`` are the numbers of the polynomial by monomial.
    """
    (first, number), *more = divisor
    quotient: dict[Monomial, Number] = {}
    used: set[Monomial] = set()
    for part, own in polynomial:
        if part in used:
            continue
        times_this, factor = part - first, ratio(own, number)
        covered = [part]
        for other, times in more:
            at = times_this + other
            if at in used or known.get(at) != factor * times:
                break
            covered.append(at)
        else:
            quotient[times_this] = factor
            used.update(covered)
    if len(quotient) < 2:
        return None
    return divisor, polynomial_of(quotient), tuple([item for item in polynomial if item[0] not in used])
