"""Polynomials of one graph, and what is known of the atoms that they are made of."""

from __future__ import annotations

from collections.abc import Collection
from fractions import Fraction

from ..expressions import ops
from ..expressions.differences import Rational
from ..expressions.graph import Graph, Node
from ..expressions.polynomials import Monomial, Polynomial, Polynomials

#: Terms of polynomials that one proof looks at.
MOST_WORK = 1_000_000
#: A sum with more terms is not multiplied out further.
_MOST_TERMS = 3000


class Algebra:
    """Polynomials of the nodes of ``graph``; ``switches`` are names with values 0 and 1.

    ``left`` are the terms that a proof may still look at, so that it ends.
    """

    def __init__(self, graph: Graph, switches: Collection[str] = ()) -> None:
        self.graph, self._switches, self.left = graph, frozenset(switches), MOST_WORK
        self.form = Polynomials(self.is_switch, lambda node: False)

    def may_spend(self, terms: int) -> bool:
        """Count terms that are looked at; False once there were too many."""
        self.left -= terms
        return self.left >= 0

    def of(self, node: Node) -> Polynomial:
        """Return the polynomial of a number, its sums multiplied out."""
        return self.form.of(node)

    def difference(self, larger: Node, smaller: Node) -> Polynomial:
        """Return the polynomial of ``larger - smaller``."""
        return self.of(self.minus(larger, smaller))

    def minus(self, larger: Node, smaller: Node) -> Node:
        """Return the node of ``larger - smaller``."""
        return self.graph.add((larger, self.graph.mul((self.graph.number(-1), smaller))))

    def node(self, terms: Polynomial) -> Node:
        """Return the node of a polynomial without divisors."""
        atoms = self.form.atoms
        return self.graph.add(
            self.graph.mul((self.graph.number(count), *(atoms[serial] for serial, power in monomial
                                                        for _ in range(power))))
            for monomial, count in terms.items()
        )

    def is_switch(self, node: Node) -> bool:
        """Return True for an atom that is 0 or 1."""
        if node.op == ops.SELECT:
            return [arg.value for arg in node.args[1:]] == [1, 0]
        return node.op == ops.NAME and node.value in self._switches

    def atoms(self, terms: Polynomial) -> list[Node]:
        """Return the atoms of a polynomial, in the order in which they were made."""
        serials = {serial for monomial in terms for serial, _ in monomial}
        return [self.form.atoms[serial] for serial in sorted(serials)]

    def without_sums_below(self, terms: Polynomial) -> tuple[Polynomial, list[Node]]:
        """Return a polynomial times the sums that divide it, and these sums; unchanged where it would get too long."""
        sums: list[Node] = []
        for _ in range(8):
            powers: dict[int, int] = {}
            for monomial in terms:
                for serial, power in monomial:
                    if power < 0 and self.form.atoms[serial].op == ops.ADD:
                        powers[serial] = min(power, powers.get(serial, 0))
            if not powers:
                break
            serial, power = min(powers.items())
            node = self.form.atoms[serial]
            inside = self.form.inside(node)
            length = len(terms) * len(inside) ** -power
            if length > _MOST_TERMS or not self.may_spend(length):
                break
            terms = self._cleared(terms, serial, power, inside)
            sums.append(node)
        return terms, sums

    def _cleared(self, terms: Polynomial, serial: int, lowest: int, inside: Polynomial) -> Polynomial:
        result: Polynomial = {}
        for monomial, count in terms.items():
            power = dict(monomial).get(serial, 0) - lowest
            product: Polynomial = {tuple(item for item in monomial if item[0] != serial): count}
            for _ in range(power):
                product = self.form.product(product, inside)
            for key, value in product.items():
                result[key] = result.get(key, 0) + value
        return {key: value for key, value in result.items() if value}


def divided(terms: Polynomial, by: Polynomial) -> Polynomial | None:
    """Return a polynomial over a single monomial; None if ``by`` is a sum."""
    if len(by) != 1:
        return None
    ((below, divisor),) = by.items()
    result: Polynomial = {}
    for monomial, count in terms.items():
        powers = dict(monomial)
        for serial, power in below:
            powers[serial] = powers.get(serial, 0) - power
        key: Monomial = tuple(sorted((serial, power) for serial, power in powers.items() if power))
        result[key] = result.get(key, 0) + _quotient(count, divisor)
    return result


def _quotient(count: Rational, divisor: Rational) -> Rational:
    value = Fraction(count) / Fraction(divisor)
    return value.numerator if value.denominator == 1 else value
