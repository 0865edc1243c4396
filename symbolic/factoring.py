"""Factoring of sums and of parts of sums: a search for the form of a polynomial with the fewest operations.

A polynomial is split into shared * quotient + rest, and each of the three is factored again. The splits that look best
are followed; among equal ones the first is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from sympy import Add, Expr, Mul, Rational

from .monomials import Monomial, powers
from .splits import Number, Polynomial, content, splits
from .terms import times

#: How many splits are followed for a polynomial of at most so many summands; beyond, one is.
_FOLLOWED = ((8, 6), (24, 5))
#: A number up to this one goes into a sum where that saves; larger ones would hide where they come from.
_TAKEN_IN = 16


class Product(NamedTuple):
    """A number times powers of atoms times sums."""

    number: Number
    powers: Monomial
    sums: tuple[Sum, ...] = ()


class Sum(NamedTuple):
    """Products that are added, and the number of operations of all of them."""

    products: tuple[Product, ...]
    cost: int

    @property
    def number(self) -> Number:
        """The number among the products; 0 without one."""
        return next((part.number for part in self.products if not (part.powers or part.sums)), 0)

    def negated(self) -> Sum:
        """Get the sum with all signs turned; it costs as much, as one summand at least is positive before and after."""
        return Sum(tuple(Product(-part.number, part.powers, part.sums) for part in self.products), self.cost)

    @property
    def numbered(self) -> bool:
        """True if every product has a number, or is one, or has a sum of such: then another number costs nothing."""
        return all(
            abs(part.number.numerator) != 1 or not (part.powers or part.sums)
            or any(inner.numbered for inner in part.sums)
            for part in self.products
        )

    @property
    def mixed(self) -> bool:
        """True if some summands are negative and some are not."""
        return len({part.number < 0 for part in self.products}) == 2


class Factoring:
    """The search among atoms that cost ``costs``; what was found for a polynomial is kept, whatever its atoms are."""

    def __init__(self, costs: tuple[int, ...]) -> None:
        self._costs = costs
        self._found: dict[Polynomial, Product] = {}
        self._flat_costs: dict[Polynomial, int] = {}
        self._atom_costs: dict[Monomial, tuple[int, int, int]] = {}

    def best(self, polynomial: Polynomial) -> Product:
        """Return the form of ``polynomial`` with the fewest operations that the search finds."""
        if polynomial not in self._found:
            self._found[polynomial] = self._best(polynomial)
        return self._found[polynomial]

    def _best(self, polynomial: Polynomial) -> Product:
        (shared_by_all, number), rest = content(polynomial)
        common = Product(number, shared_by_all)
        if len(rest) == 1:
            return common
        flat = self._sum([Product(number, powers) for powers, number in rest])
        ranked = sorted((sum(map(self._flat, split)), place, split) for place, split in enumerate(splits(rest)))
        follow = next((width for longest, width in _FOLLOWED if len(rest) <= longest), 1)
        for _, _, (shared, quotient, left) in ranked[:follow]:
            inside = self._times(self.best(shared), self.best(quotient))
            form = self._sum([inside, *self._summands(left)])
            if form.cost < flat.cost:
                flat = form
        if len(flat.products) == 1:
            return self._times(common, flat.products[0])
        whole = self._times(common, Product(1, 0, (flat,)))
        apart = self._sum([Product(number, powers) for powers, number in polynomial])
        return whole if self.cost(whole) <= apart.cost else Product(1, 0, (apart,))

    def _summands(self, polynomial: Polynomial) -> list[Product]:
        """Return the form of a rest, as summands of the sum that it is in."""
        if not polynomial:
            return []
        form = self.best(polynomial)
        if form.powers or len(form.sums) != 1 or abs(form.number) != 1:
            return [form]
        inner = form.sums[0] if form.number > 0 else form.sums[0].negated()
        return list(inner.products)

    def _flat(self, polynomial: Polynomial) -> int:
        """Estimate the cost of a polynomial: with nothing taken out but what all summands share."""
        if not polynomial:
            return 0
        if polynomial not in self._flat_costs:
            (shared, number), rest = content(polynomial)
            inside = len(rest) - 1 + sum(self._operations(part, factor, 0, 0) for factor, part in rest)
            self._flat_costs[polynomial] = self._operations(number, shared, len(rest) > 1, inside) + 1
        return self._flat_costs[polynomial]

    def _times(self, left: Product, right: Product) -> Product:
        """Multiply two forms.

        Sums are turned to make the product positive, and their first summands if that goes. A number goes into a sum
        in which it costs nothing.
        """
        number, sums = left.number * right.number, [*left.sums, *right.sums]
        mixed = [place for place, part in enumerate(sums) if part.mixed]
        wrong = [place for place in mixed if (sums[place].number or sums[place].products[0].number) < 0]
        if number < 0 and mixed:
            turned = [wrong.pop(0) if wrong else mixed[-1]]
            number = -number
        else:
            turned = []
        for place in (*turned, *wrong[:len(wrong) // 2 * 2]):
            sums[place] = sums[place].negated()
        inside = next((place for place, part in enumerate(sums) if part.numbered), None)
        if inside is not None and 1 < number <= _TAKEN_IN and number.denominator == 1:
            sums[inside] = self._numbered(number, sums[inside])
            number = 1
        return Product(number, left.powers + right.powers, tuple(sums))

    def _numbered(self, number: Number, inside: Sum) -> Sum:
        """Multiply a sum with a number that costs nothing there."""
        return self._sum([self._times(Product(number, 0), part) for part in inside.products])

    def _sum(self, products: list[Product]) -> Sum:
        negative = all(part.number < 0 for part in products)
        return Sum(tuple(products), sum(map(self.cost, products)) + len(products) - 1 + negative)

    def cost(self, product: Product) -> int:
        """Return the operations of a product, without its sign."""
        return self._operations(product.number, product.powers, len(product.sums),
                                sum([part.cost for part in product.sums]))

    def _operations(self, number: Number, packed: Monomial, sums: int, inside: int) -> int:
        """Count the operations of a number times powers of atoms times sums, which have those ``inside`` of them."""
        over, under, in_atoms = self._of_atoms(packed)
        over += sums + (number.numerator not in (1, -1))
        return max(over - 1, 0) + under + (number.denominator != 1) + in_atoms + inside

    def _of_atoms(self, packed: Monomial) -> tuple[int, int, int]:
        """Return how many atoms are multiplied with, how many are divided by, and the operations of these."""
        if packed not in self._atom_costs:
            exponents = powers(packed)
            over = sum(exponent > 0 for _, exponent in exponents)
            inside = sum(self._costs[atom] + (abs(exponent) > 1) for atom, exponent in exponents)
            self._atom_costs[packed] = over, len(exponents) - over, inside
        return self._atom_costs[packed]


@cache
def search(costs: tuple[int, ...]) -> Factoring:
    """Return the one search among atoms with these costs."""
    return Factoring(costs)


def form(product: Product, atoms: Sequence[Expr]) -> Expr:
    """Return a form as SymPy has it; nothing is multiplied out."""
    factors = (atoms[place] ** exponent for place, exponent in powers(product.powers))
    sums = (Add(*(form(inner, atoms) for inner in part.products)) for part in product.sums)
    return times(Rational(product.number.numerator, product.number.denominator), Mul(*factors, *sums))
