"""Expressions as sums of monomials: products of powers of what is neither a sum, a product nor a quotient."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import TypeAlias

from . import ops
from .differences import Rational, plain
from .graph import Node

#: Atoms with their exponents, none of them 0, by serial number of the atom.
Monomial: TypeAlias = tuple[tuple[int, int], ...]
Polynomial: TypeAlias = dict[Monomial, Rational]

ONE: Monomial = ()
#: A product with more terms stays a product.
_MOST_TERMS = 400


class Polynomials:
    """Turns nodes into polynomials and remembers them.

    ``is_switch`` says of an atom that it is 0 or 1, ``whole`` of a sum that it is not multiplied out.
    """

    def __init__(self, is_switch: Callable[[Node], bool], whole: Callable[[Node], bool]) -> None:
        self.atoms: dict[int, Node] = {}
        self.switches: set[int] = set()
        self._is_switch, self._whole = is_switch, whole
        self._known: dict[Node, Polynomial] = {}

    def of(self, node: Node) -> Polynomial:
        """Return the polynomial of a number."""
        polynomial = self._known.get(node)
        if polynomial is None:
            polynomial = self._known[node] = self._expanded(node)
        return polynomial

    def inside(self, node: Node) -> Polynomial:
        """Return the polynomial of a sum that is an atom elsewhere, multiplied out."""
        return combined((self.of(arg), 1) for arg in node.args)

    def atom(self, node: Node, exponent: int = 1) -> Polynomial:
        """Return a node that is not taken apart."""
        if node.serial not in self.atoms:
            self.atoms[node.serial] = node
            if self._is_switch(node):
                self.switches.add(node.serial)
        return {((node.serial, exponent),): 1}

    def product(self, left: Polynomial, right: Polynomial) -> Polynomial:
        """Return the product of two polynomials."""
        result: Polynomial = {}
        for first, count in left.items():
            for other, times in right.items():
                key = self.times(first, other)
                result[key] = result.get(key, 0) + count * times
        return {key: count for key, count in result.items() if count}

    def times(self, left: Monomial, right: Monomial) -> Monomial:
        """Return the product of two monomials; the square of a switch is the switch."""
        if not left or not right:
            return left or right
        powers = dict(left)
        for serial, exponent in right:
            power = powers.get(serial, 0) + exponent
            powers[serial] = min(power, 1) if serial in self.switches else power
        return tuple(sorted((serial, power) for serial, power in powers.items() if power))

    def _expanded(self, node: Node) -> Polynomial:
        if node.op == ops.NUMBER:
            assert isinstance(node.value, Fraction)
            return {ONE: plain(node.value)} if node.value else {}
        if node.op == ops.ADD and not self._whole(node):
            return self.inside(node)
        if node.op == ops.MUL:
            return self._multiplied(node.args)
        if node.op == ops.DIV:
            return self._multiplied((node.args[0],), self._inverse(node.args[1]))
        return self.atom(node)

    def _multiplied(self, factors: Iterable[Node], start: Polynomial | None = None) -> Polynomial:
        result: Polynomial = {ONE: 1} if start is None else start
        for factor in factors:
            other = self.of(factor)
            if len(result) * len(other) > _MOST_TERMS:
                other = self.atom(factor)
            result = self.product(result, other)
        return result

    def _inverse(self, node: Node) -> Polynomial:
        if node.op == ops.MUL:
            result: Polynomial = {ONE: 1}
            for factor in node.args:
                result = self.product(result, self._inverse(factor))
            return result
        if node.op == ops.DIV:
            return self._multiplied((node.args[1],), self._inverse(node.args[0]))
        terms = self.of(node)
        if len(terms) == 1:
            (monomial, count), = terms.items()
            return {tuple((serial, -power) for serial, power in monomial): plain(1 / Fraction(count))}
        return self.atom(node, -1)


def combined(parts: Iterable[tuple[Mapping[Monomial, Rational], Rational]]) -> Polynomial:
    """Return a sum of multiples of polynomials."""
    result: Polynomial = {}
    for polynomial, times in parts:
        for monomial, count in polynomial.items():
            result[monomial] = result.get(monomial, 0) + times * count
    return {monomial: count for monomial, count in result.items() if count}
