"""Proofs that one expression never exceeds another, for all values within bounds.

The difference is written as a sum of monomials, and every negative one is covered by positive ones that are at least as
large. What is not proved counts as unknown: the answer is never wrong, but it may be that nothing was found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import chain
from math import isinf

from . import ops
from .arithmetic import exact_bound
from .differences import Rational, difference
from .graph import Node, ordered
from .intervals import Bounds
from .polynomials import Monomial, Polynomial, Polynomials, combined
from .trials import Points

#: Switches that one proof may tell apart, and sums that it may take apart, one after the other.
_MOST_STEPS = 8
#: How deep proofs about arguments of functions may be nested.
_DEEPEST = 4
_OPENED = frozenset((ops.ADD, ops.MAX, ops.MIN))
_MONOTONE = frozenset((ops.CEIL_DIV, ops.FLOOR_DIV, ops.DIV))
#: Too long to be worth an attempt.
_LONGEST = 600


class Prover:
    """Compares expressions within bounds; remembers what it found."""

    def __init__(self, bounds: Bounds, points: Points) -> None:
        self.bounds, self.graph, self._points = bounds, bounds.graph, points
        self._found: dict[tuple[Node, Node], bool] = {}
        self._ratios: dict[tuple[Monomial, Monomial], Rational] = {}
        self._form = Polynomials(self._is_switch, self._is_whole)
        self._below: dict[int, set[int]] = {}
        self._proving: set[tuple[Node, Node]] = set()
        #: How deep inside the outermost proof under way others were given up: deeper inside they are not tried again.
        self._given_up: dict[tuple[Node, Node], int] = {}
        #: True if something was not tried because too much is being proved: it may be found another time.
        self._gave_up = False

    def never_exceeds(self, smaller: Node, larger: Node) -> bool:
        """Return True only if ``smaller <= larger`` wherever both have a value."""
        if smaller is larger:
            return True
        key = (smaller, larger)
        if key in self._found:
            return self._found[key]
        depth = len(self._proving)
        if depth >= self._given_up.get(key, _DEEPEST) or key in self._proving:
            self._gave_up = True
            return False
        outside, self._gave_up = self._gave_up, False
        self._proving.add(key)
        proved = self._compared(smaller, larger)
        self._proving.remove(key)
        if proved or not self._gave_up or not self._proving:
            self._found[key] = proved
        else:
            self._given_up[key] = depth
        if not self._proving:
            self._given_up.clear()
        self._gave_up |= outside
        return proved

    def _compared(self, smaller: Node, larger: Node) -> bool:
        low, high = self.bounds.interval(smaller), self.bounds.interval(larger)
        if low[1] <= high[0]:
            return True
        if low[0] > high[1] or self._points.refute(smaller, larger):
            return False
        if self._are_quotients(smaller, larger) and self.never_exceeds(smaller.args[0], larger.args[0]):
            return True
        if smaller.op == ops.MAX:
            return all(self.never_exceeds(arg, larger) for arg in smaller.args)
        if larger.op == ops.MIN:
            return all(self.never_exceeds(smaller, arg) for arg in larger.args)
        if larger.op == ops.MAX and any(self.never_exceeds(smaller, arg) for arg in larger.args):
            return True
        if smaller.op == ops.MIN and any(self.never_exceeds(arg, larger) for arg in smaller.args):
            return True
        summands = difference(self.graph, larger, smaller)
        terms = combined((self._form.of(node), count) for node, count in summands.items())
        return self._never_negative(terms, _MOST_STEPS)

    def _are_quotients(self, first: Node, other: Node) -> bool:
        """Return True for quotients by the same positive number, rounded in the same way."""
        return first.op == other.op and first.op in _MONOTONE and first.args[1] is other.args[1] and (
            self.bounds.interval(first.args[1])[0] > 0)

    def _never_negative(self, terms: Polynomial, steps: int) -> bool:
        """Return True only if the sum is never below 0; ``steps`` limits how often it is taken apart."""
        if len(terms) > _LONGEST:
            return False
        left = self._uncovered(terms)
        if left is None:
            return True
        return steps > 0 and any(
            all(self._never_negative(case, steps - 1) for case in way) for way in self._ways(terms, left)
        )

    def _ways(self, terms: Polynomial, left: Monomial) -> Iterator[list[Polynomial]]:
        """Yield lists of sums that imply a sum whose term ``left`` is not covered; all sums of a list are needed."""
        atoms, switches = self._form.atoms, self._form.switches
        own = (serial for serial, _ in left if serial in switches)
        every = (serial for monomial in terms for serial, _ in monomial if serial in switches)
        serial = next(chain(own, self._opened(terms, left), every), None)
        if serial is None:
            return
        node = atoms[serial]
        if serial in switches:
            yield [_with_switch(terms, serial, on) for on in (False, True)]
        elif node.op == ops.ADD:
            yield [self._with_value(terms, serial, self._form.inside(node))]
        else:
            within = {monomial: count for monomial, count in terms.items() if dict(monomial).get(serial, 0) > 0}
            cases = [self._with_value(terms, serial, self._form.of(arg)) for arg in node.args]
            grows = all((count > 0) == (node.op == ops.MAX) for count in within.values())
            if grows and all((serial, 1) in monomial for monomial in within) and self._are_signless(within):
                yield from ([case] for case in cases)
            else:
                yield cases

    def _opened(self, terms: Polynomial, left: Monomial) -> Iterator[int]:
        """Return the atoms to take apart: first those around parts of ``left``, then its own, then all."""
        atoms, parts = self._form.atoms, {serial for serial, _ in left}
        pairs = [
            (serial, parts - {other for other, _ in monomial})
            for monomial, count in terms.items() for serial, power in monomial
            if power > 0 and atoms[serial].op in _OPENED
        ]
        own = [serial for serial, _ in pairs if serial in parts]
        around = [serial for serial, missing in pairs if serial not in parts and missing <= self._inside(serial)]
        return chain(around, own, (serial for serial, _ in pairs))

    def _inside(self, serial: int) -> set[int]:
        if serial not in self._below:
            self._below[serial] = {node.serial for node in ordered(self._form.atoms[serial].args)}
        return self._below[serial]

    def _with_value(self, terms: Polynomial, serial: int, value: Polynomial) -> Polynomial:
        """Return the same sum with ``value`` for an atom, where it is not a divisor."""
        parts: list[tuple[Polynomial, Rational]] = []
        for monomial, count in terms.items():
            power = dict(monomial).get(serial, 0)
            product: Polynomial = {tuple(item for item in monomial if item[0] != serial or power < 0): 1}
            for _ in range(power):
                product = self._form.product(product, value)
            parts.append((product, count))
        return combined(parts)

    def _uncovered(self, terms: Polynomial) -> Monomial | None:
        """Return a term that is or may be negative and that positive ones do not cover; nothing if all are covered."""
        positive = {monomial: count for monomial, count in terms.items() if count > 0}
        negative = {monomial: -count for monomial, count in terms.items() if count < 0}
        for monomial in terms:
            if not self._are_signless((monomial,)):
                return monomial
        partners: dict[Monomial, list[tuple[Rational, Monomial]]] = {}
        for monomial in negative:
            ratios = ((self._ratio(other, monomial), other) for other in positive)
            partners[monomial] = [(ratio, other) for ratio, other in ratios if ratio]
            if not partners[monomial]:
                return monomial
        for monomial, need in sorted(negative.items(), key=lambda item: len(partners[item[0]])):
            left: Rational = need
            for ratio, other in sorted(partners[monomial], key=lambda item: _distance(item[1], monomial)):
                used = min(positive[other], Fraction(left) / ratio)
                positive[other] -= used
                left -= used * ratio
                if not left:
                    break
            if left:
                return monomial
        return None

    def _are_signless(self, monomials: Iterable[Monomial]) -> bool:
        """Return True if no factor can be negative."""
        serials = {serial for monomial in monomials for serial, _ in monomial}
        return all(self.bounds.interval(self._form.atoms[serial])[0] >= 0 for serial in serials)

    def _ratio(self, over: Monomial, under: Monomial) -> Rational:
        """Something that ``over / under`` is never below; atoms are at least 0."""
        key = (over, under)
        ratio = self._ratios.get(key)
        if ratio is None:
            powers = dict(over)
            for serial, power in under:
                powers[serial] = powers.get(serial, 0) - power
            above = [self._form.atoms[serial] for serial, power in powers.items() for _ in range(power)]
            below = [self._form.atoms[serial] for serial, power in powers.items() for _ in range(-power)]
            outside, self._gave_up = self._gave_up, False
            ratio = self._least_quotient(above, below)
            if ratio or not self._gave_up:
                self._ratios[key] = ratio
            self._gave_up |= outside
        return ratio

    def _least_quotient(self, above: list[Node], below: list[Node]) -> Rational:
        """By the bounds of all factors, or without pairs of which the one above is at least as large."""
        rest, unpaired = list(above), []
        for node in below:
            partner = next(
                (other for other in rest if self._may_compare(node, other) and self.never_exceeds(node, other)), None)
            if partner is None:
                unpaired.append(node)
            else:
                rest.remove(partner)
        paired = self._by_bounds(rest, unpaired)
        return paired if len(unpaired) == len(below) else max(paired, self._by_bounds(above, below))

    def _by_bounds(self, above: list[Node], below: list[Node]) -> Rational:
        result: Rational = 1
        for node in below:
            high = self.bounds.interval(node)[1]
            if isinf(high):
                return 0
            if high > 0:
                result = Fraction(result) / Fraction(high)
        for node in above:
            result *= exact_bound(self.bounds.interval(node)[0])
        return result

    def _may_compare(self, smaller: Node, larger: Node) -> bool:
        """Return False where bounds say it all or no proof is to be expected: two names that nothing connects."""
        if smaller.op == larger.op == ops.NAME:
            return bool(self.bounds.facts)
        return smaller.op not in (ops.NAME, ops.SELECT) and larger.op != ops.SELECT

    def _is_switch(self, node: Node) -> bool:
        if node.op == ops.SELECT:
            return [arg.value for arg in node.args[1:]] == [1, 0]
        return node.op == ops.NAME and self.bounds.interval(node) == (0, 1)

    def _is_whole(self, node: Node) -> bool:
        """Return True for a sum that is an atom: it is never negative, and more than a sum of names."""
        if self.bounds.interval(node)[0] < 0:
            return False
        return any(self.graph.coefficient(arg)[1].op not in (ops.NAME, ops.NUMBER) for arg in node.args)


def _distance(first: Monomial, other: Monomial) -> int:
    """Count the factors that two monomials do not share: the closest pair is used up first."""
    return len(set(first) ^ set(other))


def _with_switch(terms: Polynomial, switch: int, on: bool) -> Polynomial:
    result: Polynomial = {}
    for monomial, count in terms.items():
        rest = tuple(item for item in monomial if item[0] != switch)
        if on or len(rest) == len(monomial):
            result[rest] = result.get(rest, 0) + count
    return {monomial: count for monomial, count in result.items() if count}
