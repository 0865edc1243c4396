"""Proofs that one expression never exceeds another, for all values within bounds.

The difference is written as a sum of monomials, and every negative one is covered by positive ones that are at least as
large. What is not proved counts as unknown: the answer is never wrong, but it may be that nothing was found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from math import inf, isinf

from .bounds import Bound, Bounds, difference
from .graph import ADD, CEIL_DIV, DIV, FLOOR_DIV, MAX, MIN, MUL, NAME, NUMBER, SELECT, Node
from .polynomials import Monomial, Polynomial, Polynomials, combined

#: Switches that one proof may tell apart, one after the other.
_MOST_SPLITS = 4
#: How deep proofs about arguments of functions may be nested.
_DEEPEST = 4
_MONOTONE = frozenset((CEIL_DIV, FLOOR_DIV, DIV))
#: Too long to be worth an attempt.
_LONGEST = 600


class Prover:
    """Compares expressions within bounds; remembers what it found."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds, self.graph = bounds, bounds.graph
        self._found: dict[tuple[Node, Node], bool] = {}
        self._ratios: dict[tuple[Monomial, Monomial], Bound] = {}
        self._closed = Polynomials(self._is_switch, lambda node: bounds.interval(node)[0] >= 0)
        self._open = Polynomials(self._is_switch, self._is_complement)
        self._depth = 0

    def never_exceeds(self, smaller: Node, larger: Node) -> bool:
        """True only if ``smaller <= larger`` wherever both have a value."""
        if smaller is larger:
            return True
        key = (smaller, larger)
        if key not in self._found:
            self._found[key] = False  # while it is being proved, it must not be used
            self._depth += 1
            self._found[key] = self._depth <= _DEEPEST and self._compared(smaller, larger)
            self._depth -= 1
        return self._found[key]

    def _compared(self, smaller: Node, larger: Node) -> bool:
        low, high = self.bounds.interval(smaller), self.bounds.interval(larger)
        if low[1] <= high[0]:
            return True
        if low[0] > high[1]:
            return False
        if smaller.op == larger.op and smaller.op in _MONOTONE and smaller.args[1] is larger.args[1]:
            if self.bounds.interval(smaller.args[1])[0] > 0 and self.never_exceeds(smaller.args[0], larger.args[0]):
                return True
        if smaller.op == MAX:
            return all(self.never_exceeds(arg, larger) for arg in smaller.args)
        if larger.op == MIN:
            return all(self.never_exceeds(smaller, arg) for arg in larger.args)
        if larger.op == MAX and any(self.never_exceeds(smaller, arg) for arg in larger.args):
            return True
        if smaller.op == MIN and any(self.never_exceeds(arg, larger) for arg in smaller.args):
            return True
        summands = difference(self.graph, larger, smaller)
        for form, splits in ((self._closed, 0), (self._open, _MOST_SPLITS)):
            terms = combined((form.of(node), count) for node, count in summands.items())
            if len(terms) <= _LONGEST and self._never_negative(terms, form, splits):
                return True
        return False

    def _never_negative(self, terms: Polynomial, form: Polynomials, splits: int) -> bool:
        left = self._uncovered(terms, form)
        if not left:
            return True
        if not splits:
            return False
        switch = _busiest((left, terms), form.switches)
        if switch is not None:
            return all(
                self._never_negative(_with_switch(terms, switch, on), form, splits - 1) for on in (False, True)
            )
        return any(
            all(self._never_negative(case, form, splits - 1) for case in cases)
            for cases in self._chosen(terms, left, form)
        )

    def _uncovered(self, terms: Polynomial, form: Polynomials) -> Polynomial:
        """A term that is or may be negative and that positive ones do not cover; nothing if all are covered."""
        positive = {monomial: count for monomial, count in terms.items() if count > 0}
        negative = {monomial: -count for monomial, count in terms.items() if count < 0}
        for monomial in terms:
            if not self._are_signless((monomial,), form):
                return {monomial: terms[monomial]}
        partners: dict[Monomial, list[tuple[Bound, Monomial]]] = {}
        for monomial in negative:
            ratios = ((self._ratio(other, monomial, form), other) for other in positive)
            partners[monomial] = [(ratio, other) for ratio, other in ratios if ratio]
            if not partners[monomial]:
                return {monomial: terms[monomial]}
        for monomial, need in sorted(negative.items(), key=lambda item: len(partners[item[0]])):
            left: Bound = need
            for ratio, other in sorted(partners[monomial], key=lambda item: len(item[1])):
                used = min(positive[other], left / ratio)
                positive[other] -= used  # type: ignore[assignment]
                left -= used * ratio
            if left:
                return {monomial: terms[monomial]}
        return {}

    def _are_signless(self, monomials: Iterable[Monomial], form: Polynomials) -> bool:
        """True if no factor can be negative."""
        return all(self.bounds.interval(form.atoms[serial])[0] >= 0 for monomial in monomials for serial, _ in monomial)

    def _ratio(self, over: Monomial, under: Monomial, form: Polynomials) -> Bound:
        """Something that ``over / under`` is never below; atoms are at least 0."""
        key = (over, under)
        found = self._ratios.get(key)
        if found is None:
            powers = dict(over)
            for serial, power in under:
                powers[serial] = powers.get(serial, 0) - power
            above = [form.atoms[serial] for serial, power in powers.items() for _ in range(power)]
            below = [form.atoms[serial] for serial, power in powers.items() for _ in range(-power)]
            found = self._ratios[key] = self._least_quotient(above, below)
        return found

    def _least_quotient(self, above: list[Node], below: list[Node]) -> Bound:
        result: Bound = 1
        for node in below:
            high = self.bounds.interval(node)[1]
            if isinf(high):
                partner = next((other for other in above if self._may_compare(node, other)
                                and self.never_exceeds(node, other)), None)
                if partner is None:
                    return 0
                above.remove(partner)
            elif high > 0:
                result /= Fraction(high)
        for node in above:
            result *= self.bounds.interval(node)[0]
        return result

    def _may_compare(self, smaller: Node, larger: Node) -> bool:
        """False where no proof is to be expected: two names that nothing connects."""
        if smaller.op == larger.op == NAME:
            return bool(self.bounds.facts)
        return self.bounds.interval(larger)[1] == inf

    def _chosen(self, terms: Polynomial, left: Polynomial, form: Polynomials) -> Iterator[list[Polynomial]]:
        """Ways to prove a sum with a maximum or minimum: each a list of sums that have to be shown."""
        found = {serial: form.atoms[serial] for monomial in (*left, *terms) for serial, power in monomial if power == 1}
        for serial, node in found.items():
            if node.op not in (MAX, MIN):
                continue
            within = {monomial: count for monomial, count in terms.items() if (serial, 1) in monomial}
            cases = [self._with_value(terms, serial, form.of(arg), form) for arg in node.args]
            if all((count > 0) == (node.op == MAX) for count in within.values()) and self._are_signless(within, form):
                yield from ([case] for case in cases)
            else:
                yield cases
            return

    @staticmethod
    def _with_value(terms: Polynomial, serial: int, value: Polynomial, form: Polynomials) -> Polynomial:
        parts: list[tuple[Polynomial, Fraction]] = []
        for monomial, count in terms.items():
            if (serial, 1) in monomial:
                rest = {tuple(item for item in monomial if item[0] != serial): Fraction(1)}
                parts.append((form.product(rest, value), count))
            else:
                parts.append(({monomial: Fraction(1)}, count))
        return combined(parts)

    def _is_switch(self, node: Node) -> bool:
        if node.op == SELECT:
            return [arg.value for arg in node.args[1:]] == [1, 0]
        return node.op == NAME and self.bounds.interval(node) == (0, 1)

    def _is_complement(self, node: Node) -> bool:
        """True for 1 less a product of switches that stand for conditions."""
        one, *rest = node.args
        if one.op != NUMBER or one.value != 1 or len(rest) != 1:
            return False
        count, product = self.graph.coefficient(rest[0])
        factors = product.args if product.op == MUL else (product,)
        return count == -1 and all(factor.op == SELECT and self._is_switch(factor) for factor in factors)


def _busiest(places: tuple[Polynomial, ...], switches: set[int]) -> int | None:
    """The switch that most terms have, of the first of ``places`` that has any."""
    for terms in places:
        counts: dict[int, int] = {}
        for monomial in terms:
            for serial, _ in monomial:
                if serial in switches:
                    counts[serial] = counts.get(serial, 0) + 1
        if counts:
            return max(counts, key=lambda serial: (counts[serial], -serial))
    return None


def _with_switch(terms: Polynomial, switch: int, on: bool) -> Polynomial:
    result: Polynomial = {}
    for monomial, count in terms.items():
        rest = tuple(item for item in monomial if item[0] != switch)
        if on or len(rest) == len(monomial):
            result[rest] = result.get(rest, Fraction(0)) + count
    return {monomial: count for monomial, count in result.items() if count}
