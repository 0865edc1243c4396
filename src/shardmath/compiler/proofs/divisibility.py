"""Use conditions of divisibility: names become products of others and of new names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from ..expressions import ops
from ..expressions.graph import Node
from ..expressions.polynomials import Polynomial
from .algebra import Algebra, divided

#: A factor of a product: a node, or the number of a new name.
Factor = Node | int


@dataclass(frozen=True)
class Divided:
    """Names as products; without any, ``rest`` is what is left of the condition, None if it always holds."""

    parts: Mapping[Node, Sequence[Factor]]
    rest: Node | None = None


def divided_by(algebra: Algebra, divisor: Node, dividend: Node) -> Divided | None:
    """Use the condition that ``divisor`` divides ``dividend``; None where it says nothing that can be put in.

    All names are positive integers. Summands that are multiples of the divisor are left out. A single name that is left
    is the divisor times a new name. A name that divides a product of names is a product too, of a divisor of each.
    """
    below = algebra.of(divisor)
    quotient = divided(algebra.of(dividend), below)
    if quotient is None:
        return None
    left = {monomial: count for monomial, count in quotient.items() if not _is_whole(algebra, {monomial: count})}
    if not left:
        return Divided({})
    if len(left) != 1:
        return None
    ((monomial, count),) = left.items()
    atoms = algebra.form.atoms
    if any(atoms[serial].op != ops.NAME or abs(power) != 1 for serial, power in monomial):
        return None
    above = [atoms[serial] for serial, power in monomial if power > 0]
    under = [atoms[serial] for serial, power in monomial if power < 0]
    rational = Fraction(count)
    if len(above) == 1 and rational.numerator == 1:
        numbers = [] if rational.denominator == 1 else [algebra.graph.number(rational.denominator)]
        return Divided({above[0]: (*numbers, *under, 0)})
    if len(under) == 1 and rational == 1 and above:
        parts: dict[Node, Sequence[Factor]] = {name: (2 * place, 2 * place + 1) for place, name in enumerate(above)}
        return Divided({**parts, under[0]: tuple(2 * place for place in range(len(above)))})
    if len(quotient) > len(left):
        rest = algebra.graph.mul([algebra.graph.number(rational.numerator), *above])
        whole = algebra.graph.mul([algebra.graph.number(rational.denominator), *under])
        return Divided({}, algebra.graph.binary(ops.DIVIDES, whole, rest))
    return None


def _is_whole(algebra: Algebra, terms: Polynomial) -> bool:
    """Return True if all factors are integers that stand above the fraction bar."""
    return all(
        Fraction(count).denominator == 1 and all(
            power > 0 and algebra.form.atoms[serial].op == ops.NAME for serial, power in monomial)
        for monomial, count in terms.items()
    )
