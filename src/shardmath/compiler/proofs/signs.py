"""Signs of polynomials: never negative, if no coefficient is once every variable counts from its least value.

A polynomial that is linear in a variable with a largest value is never negative if it is not at both ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from math import comb, prod
from typing import Protocol

from ..expressions.differences import Rational
from ..expressions.graph import Node
from ..expressions.polynomials import ONE, Monomial, Polynomial
from .algebra import Algebra

#: A polynomial with more terms is not looked at.
_MOST_TERMS = 1_500
#: Distances from the least values at which a polynomial is computed before it is shifted.
_TRIED = (0, 1, 1000)
#: Cost of a shifted term.
_SHIFTING = 20
#: Ends of ranges that one proof may tell apart.
_MOST_ENDS = 32


class Ranges(Protocol):
    """Least and largest values of atoms."""

    def least(self, atom: Node) -> Rational | None:
        """Return a value that an atom is never below; None if there is none."""

    def most(self, atom: Node) -> Node | None:
        """Return an expression that an atom never exceeds; None if there is none."""


class Signs:
    """Proofs about signs with one algebra."""

    def __init__(self, algebra: Algebra) -> None:
        self.algebra = algebra

    def is_never_negative(self, terms: Polynomial, ranges: Ranges, *, strict: bool = False) -> bool:
        """Return True only if a polynomial is at least 0 for all values in ``ranges``; with ``strict``, above 0."""
        if not terms:
            return not strict
        terms, sums = self.algebra.without_sums_below(terms)
        if any(not self.is_never_negative(self.algebra.form.inside(node), ranges, strict=True) for node in sums):
            return False
        return self._at_ends(terms, ranges, strict, [_MOST_ENDS])

    def _at_ends(self, terms: Polynomial, ranges: Ranges, strict: bool, left: list[int]) -> bool:
        """Look at both ends of ranges, the latest made first: their ends may be made of others."""
        if not self.algebra.may_spend(len(terms)):
            return False
        if not strict and all(count >= 0 for count in terms.values()) and self._least(terms, ranges) is not None:
            return True
        for atom in reversed(self.algebra.atoms(terms)):
            most = ranges.most(atom)
            if most is None:
                continue
            parts = _linear(terms, atom.serial)
            if parts is None:
                continue
            rest, slope = parts
            least = ranges.least(atom)
            if least is None:
                continue
            signless = self._least(slope, ranges) is not None
            ends = []
            if not signless or any(count > 0 for count in slope.values()):
                ends.append(_sum(rest, slope, least))
            if not signless or any(count < 0 for count in slope.values()):
                ends.append(_sum(rest, self.algebra.form.product(slope, self.algebra.of(most)), 1))
            left[0] -= len(ends) - 1
            return left[0] > 0 and all(self._at_ends(end, ranges, strict, left) for end in ends)
        return self._from_least(terms, ranges, strict)

    def _least(self, terms: Polynomial, ranges: Ranges) -> dict[int, Rational] | None:
        """Return the least values of all atoms; None if one may be negative, or 0 below a fraction bar."""
        known: dict[int, Rational] = {}
        for atom in self.algebra.atoms(terms):
            least = ranges.least(atom)
            if least is None or least < 0:
                return None
            known[atom.serial] = least
        if any(power < 0 and known[serial] <= 0 for monomial in terms for serial, power in monomial):
            return None
        return known

    def _from_least(self, terms: Polynomial, ranges: Ranges, strict: bool) -> bool:
        known = self._least(terms, ranges)
        if known is None:
            return False
        terms = without_content(terms)
        if not strict and all(count >= 0 for count in terms.values()):
            return True
        if any(_value(terms, {serial: start + more for serial, start in known.items()}) < 0 for more in _TRIED):
            return False
        if not strict and _is_covered(terms, known):
            return True
        shifted = _shifted(terms, known) if self.algebra.may_spend(_SHIFTING * len(terms)) else None
        if shifted is None or any(count < 0 for count in shifted.values()):
            return False
        return not strict or shifted.get(ONE, 0) > 0


def _linear(terms: Polynomial, serial: int) -> tuple[Polynomial, Polynomial] | None:
    """Return a polynomial as ``rest + x slope``; None if it is not linear in the atom ``serial``."""
    rest: Polynomial = {}
    slope: Polynomial = {}
    for monomial, count in terms.items():
        power = dict(monomial).get(serial, 0)
        if power not in (0, 1):
            return None
        if power:
            slope[tuple(item for item in monomial if item[0] != serial)] = count
        else:
            rest[monomial] = count
    return rest, slope


def _sum(left: Polynomial, right: Polynomial, times: Rational) -> Polynomial:
    result = dict(left)
    for monomial, count in right.items():
        result[monomial] = result.get(monomial, 0) + times * count
    return {monomial: count for monomial, count in result.items() if count}


def without_content(terms: Polynomial, *, all_of_it: bool = False) -> Polynomial:
    """Return a polynomial times the positive atoms that divide it; with ``all_of_it``, over common factors too."""
    lowest: dict[int, int] = {}
    serials = {serial for monomial in terms for serial, _ in monomial}
    for serial in serials:
        power = min(dict(monomial).get(serial, 0) for monomial in terms)
        if power < 0 or (all_of_it and power):
            lowest[serial] = power
    if not lowest:
        return terms
    result: Polynomial = {}
    for monomial, count in terms.items():
        powers = dict(monomial)
        for serial, power in lowest.items():
            powers[serial] = powers.get(serial, 0) - power
        result[tuple(sorted((serial, power) for serial, power in powers.items() if power))] = count
    return result


def _value(terms: Polynomial, values: Mapping[int, Rational]) -> Rational:
    """Return the value of a polynomial without divisors."""
    result: Rational = 0
    for monomial, count in terms.items():
        result += count * prod(values[serial] ** power for serial, power in monomial)
    return result


def _is_covered(terms: Polynomial, least: Mapping[int, Rational]) -> bool:
    """Return True if positive monomials that are multiples of negative ones outweigh these, each used up once."""
    left = {monomial: count for monomial, count in terms.items() if count > 0}
    for monomial, count in sorted(terms.items(), key=lambda item: -len(item[0])):
        need = -count
        if need <= 0:
            continue
        powers = dict(monomial)
        ratios = [(ratio, other) for other in left if (ratio := _least_ratio(other, powers, least)) > 0]
        for ratio, other in sorted(ratios, key=lambda item: (len(item[1]), -item[0], item[1])):
            used = min(left[other], Fraction(need) / ratio)
            left[other] -= used
            need -= used * ratio
            if need <= 0:
                break
        if need > 0:
            return False
    return True


def _least_ratio(over: Monomial, under: Mapping[int, int], least: Mapping[int, Rational]) -> Rational:
    """Return the least value of one monomial over another; 0 unless the other divides it."""
    rest = dict(over)
    if any(rest.get(serial, 0) < power for serial, power in under.items()):
        return 0
    return prod(least[serial] ** (power - under.get(serial, 0)) for serial, power in over)


def _shifted(terms: Polynomial, least: Mapping[int, Rational]) -> Polynomial | None:
    """Return a polynomial in what some atoms exceed their least values by; None if it is too long.

    Atoms that stand in more positive than negative monomials come first.
    """
    weight = dict.fromkeys(least, 0)
    for monomial, count in terms.items():
        for serial, _ in monomial:
            weight[serial] += 1 if count > 0 else -1
    for serial in sorted(least, key=lambda serial: (-weight[serial], serial)):
        if least[serial]:
            terms = _from(terms, serial, least[serial])
        if len(terms) > _MOST_TERMS:
            return None
    return terms


def _from(terms: Polynomial, serial: int, start: Rational) -> Polynomial:
    """Return a polynomial in what one atom exceeds ``start`` by."""
    result: Polynomial = {}
    for monomial, count in terms.items():
        power = dict(monomial).get(serial, 0)
        if not power:
            result[monomial] = result.get(monomial, 0) + count
            continue
        for kept in range(power + 1):
            key = tuple((other, kept if other == serial else exponent) for other, exponent in monomial
                        if other != serial or kept)
            result[key] = result.get(key, 0) + count * comb(power, kept) * start ** (power - kept)
    return {monomial: count for monomial, count in result.items() if count}
