"""The sign of an expression wherever assumptions hold, proved by the signs of coefficients.

Every symbol is written in symbols that are never negative: ``p > 1`` makes ``2 + p'`` of ``p``, and ``t`` divides ``k``
makes ``t (1 + k')`` of ``k``. A polynomial whose coefficients are then all positive is positive for all values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from sympy import QQ, Add, Expr, Integer, Mul, Pow, Symbol, expand, ring
from sympy.polys.rings import PolyElement, PolyRing

from ..functions import CeilDiv, FloorDiv, Iverson, LeastCommonMultiple, Max, outermost
from ..parameters import BY_LETTER
from ..terms import is_zero_or_one, summands

#: Expressions of more summands, and of more combinations of conditions, switches and roundings, are not decided.
_MOST_SUMMANDS, _MOST_CORNERS = 200, 32


class Domain:
    """The integers that assumptions allow.

    ``least`` and ``most`` are bounds of symbols, ``multiples`` has what divides a symbol, ``above`` what a symbol is
    never below; ``facts`` are more expressions that are never negative, and ``products`` are the whole factors of
    symbols. A symbol without a bound has the smallest legal value of its parameter.
    """

    def __init__(
        self, least: Mapping[Symbol, int], most: Mapping[Symbol, int], multiples: Mapping[Symbol, Expr],
        above: Mapping[Symbol, Expr], facts: Sequence[Expr] = (), products: Mapping[Symbol, Expr] | None = None,
    ) -> None:
        self._least, self._multiples, self._above, self._facts = least, multiples, above, (
            *facts, *(name - least_of for name, least_of in above.items() if name in multiples or name in most),
        )
        self._upper = {name: bound for name, bound in most.items() if not is_zero_or_one(name)}
        self._products = products or {}
        self._values: dict[Expr, Expr] = {}
        self._parts: set[Symbol] = set()
        self._signs: dict[tuple[Expr, bool], bool] = {}

    def is_nonnegative(self, expression: Expr) -> bool:
        """Return True if the expression is proved never to be negative."""
        return self._decided(expression, strict=False)

    def is_positive(self, expression: Expr) -> bool:
        """Return True if the expression is proved to be always positive."""
        return self._decided(expression, strict=True)

    def is_whole(self, quotient: Expr) -> bool:
        """Return True if a quotient of integers is proved to be an integer."""
        over, under = quotient.as_numer_denom()
        common = {node: Mul(*node.args) for node in under.atoms(LeastCommonMultiple)}  # which divides the product
        product = expand((over / under.xreplace(common)).xreplace(dict(self._factored)))
        return all(_is_whole(part) for part in Add.make_args(product))

    def _decided(self, expression: Expr, *, strict: bool) -> bool:
        key = expression, strict
        if key not in self._signs:
            self._signs[key] = self._proved(expression, strict) or any(
                self._proved(expression - fact, strict) for fact in self._facts
            )
        return self._signs[key]

    def _proved(self, expression: Expr, strict: bool) -> bool:
        plain = expression.xreplace({node: self._written(node) for node in outermost(expression)})
        divisions = _divisions(plain)
        if not all(self._decided(node.base, strict=True) for node in divisions):
            return False
        polynomial = self._polynomial(plain.xreplace({node: _inverse(node) for node in divisions}))
        if polynomial is None:
            return False
        corners = [polynomial]
        for name in sorted((part for part in polynomial.ring.symbols if self._has_ends(part)), key=str):
            corners = [end for corner in corners for end in _ends(corner, name)]
            if len(corners) > _MOST_CORNERS:
                return False
        return all(self._at_corner(corner, strict) for corner in corners)

    def _polynomial(self, expression: Expr) -> PolyElement | None:
        """Return the expression times its denominators; None where one is not positive, or for too long ones."""
        if summands(expression) > _MOST_SUMMANDS:
            return None
        names = sorted(expression.free_symbols, key=str)
        inverses = {name: Symbol(f"1/{name}") for name in names}
        over = ring([*names, *inverses.values()], QQ)[0]
        product = over.from_expr(expression.replace(
            lambda node: node.is_Pow and node.base.is_Symbol and node.exp.is_negative,
            lambda node: inverses[node.base]**-node.exp,
        ))
        count = len(names)
        net = {tuple(up - down for up, down in zip(powers[:count], powers[count:], strict=True)): value
               for powers, value in product.terms()}
        lowest = [min((powers[place] for powers in net), default=0) for place in range(count)]
        if any(low < 0 and self._smallest(name) <= 0 for name, low in zip(names, lowest, strict=True)):
            return None
        whole = ring(names, QQ)[0]
        return whole.from_dict({
            tuple(power - min(low, 0) for power, low in zip(powers, lowest, strict=True)): value
            for powers, value in net.items()
        })

    def _has_ends(self, name: Symbol) -> bool:
        """Return True for a symbol without interesting powers: a switch, a condition, the part that rounding adds."""
        return name in self._parts or is_zero_or_one(name)

    def _at_corner(self, polynomial: PolyElement, strict: bool) -> bool:
        """Prove the sign of a polynomial without conditions and switches."""
        names = [name for place, name in enumerate(polynomial.ring.symbols) if polynomial.degree(place) > 0]
        written = {name: self._in_slacks(name) for name in names}
        bounded = sorted({part for value in written.values() for part in value.free_symbols if part in self._upper},
                         key=str)
        slacks = sorted(set().union(*(value.free_symbols for value in written.values())), key=str)
        over = ring([*slacks, *(_slack(name, "between") for name in bounded)], QQ)[0]
        total = _composed(polynomial, {name: over.from_expr(value) for name, value in written.items()}, over)
        at_ends = [over.one]
        for name in bounded:
            at_most = over(_slack(name, "between"))**max(total.degree(over.symbols.index(name)), 0)
            at_ends = [end * at for end in at_ends for at in (over.one, at_most)]
            total = self._between(total, name)
        signs_hold = all(value > 0 for value in total.coeffs())
        return signs_hold and (not strict or all(total.coeff(end) for end in at_ends))

    def _between(self, polynomial: PolyElement, name: Symbol) -> PolyElement:
        """Write ``name`` as ``(least + most y)/(1 + y)`` with y >= 0, times a positive power of the denominator.

        The least value is y = 0; the largest is no y, and what is left there is the coefficient of the highest power.
        """
        over = polynomial.ring
        place, y = over.symbols.index(name), over(_slack(name, "between"))
        inside, below = self._smallest(name) + self._upper[name] * y, 1 + y
        degree, total = polynomial.degree(place), over.zero
        for powers, value in polynomial.terms():
            rest = over.from_dict({(*powers[:place], 0, *powers[place + 1:]): value})
            total += rest * inside**powers[place] * below**(degree - powers[place])
        return total

    def _in_slacks(self, name: Symbol) -> Expr:
        """Return a symbol as an expression of bounded symbols and of symbols that are never negative."""
        return name if name in self._upper else self._ordered.get(name, self._smallest(name) + _slack(name, "more"))

    @cached_property
    def _ordered(self) -> Mapping[Symbol, Expr]:
        """Return each symbol that depends on others in slack symbols; where that were circular it does not."""
        written: dict[Symbol, Expr] = {}

        def write(name: Symbol, users: tuple[Symbol, ...]) -> Expr | None:
            if name in users:
                return None
            if name in written or name in self._upper:
                return written.get(name, name)
            slack = _slack(name, "more")
            for bounds, factor, rest in ((self._multiples, 1 + slack, Integer(0)), (self._above, Integer(1), slack)):
                if name in bounds:
                    parts = {part: write(part, (*users, name)) for part in bounds[name].free_symbols}
                    if None not in parts.values():
                        written[name] = bounds[name].xreplace(parts) * factor + rest
                        return written[name]
            return self._smallest(name) + slack

        for name in sorted({*self._multiples, *self._above}, key=str):
            write(name, ())
        return {name: expand(value) for name, value in written.items()}

    @cached_property
    def _factored(self) -> Mapping[Symbol, Expr]:
        """Return each symbol that is a multiple as a product of what divides it and a whole number."""
        products = {**self._products, **{name: factor * _whole(name) for name, factor in self._multiples.items()}}
        for _ in products:
            products = {
                name: value.xreplace({part: product for part, product in products.items() if part != name})
                for name, value in products.items()
            }
        return products

    def _smallest(self, name: Symbol) -> int:
        if name in self._least:
            return self._least[name]
        if str(name) in BY_LETTER:
            return BY_LETTER[str(name)].minimum
        return 1 if name.is_positive and name.is_integer else 0

    def _written(self, node: Expr) -> Expr:
        """Return a function as an expression of symbols: what it is, up to a symbol that is never negative."""
        if node not in self._values:
            parts = [part.xreplace({inner: self._written(inner) for inner in outermost(part)}) for part in node.args]
            self._values[node] = self._rounded(node, *parts)
        return self._values[node]

    def _rounded(self, node: Expr, first: Expr, *others: Expr) -> Expr:
        rest = _slack(Symbol(f"{node.func.__name__}_{len(self._values)}"), "rest")
        if isinstance(node, Iverson):
            self._parts.add(rest)
            return rest
        if isinstance(node, LeastCommonMultiple):
            return first * (1 + rest)
        if isinstance(node, CeilDiv | FloorDiv):
            self._parts.add(rest)
            return first / others[0] + (rest if isinstance(node, CeilDiv) else -rest)
        chosen = next((part for part in (first, *others) if not part.is_Number), first)
        return chosen + rest if isinstance(node, Max) else chosen - rest


def _slack(name: Symbol, kind: str) -> Symbol:
    return Symbol(f"{name}_{kind}", nonnegative=True)


def _whole(name: Symbol) -> Symbol:
    return Symbol(f"{name}_whole", integer=True, positive=True)


def _is_whole(product: Expr) -> bool:
    number, rest = product.as_coeff_Mul()
    return bool(number.is_Integer and rest.is_integer and not rest.as_numer_denom()[1].free_symbols)



def _divisions(expression: Expr) -> set[Expr]:
    """Return the powers of sums with negative exponents."""
    return {node for node in expression.atoms(Pow) if node.exp.is_negative and not node.base.is_Symbol}


def _inverse(division: Expr) -> Expr:
    """Return a symbol for one over a sum that is always positive."""
    return _slack(Symbol(f"1/({division.base})"), "more")**-division.exp


def _composed(polynomial: PolyElement, values: Mapping[Symbol, PolyElement], over: PolyRing) -> PolyElement:
    """Return a polynomial with polynomials of the ring ``over`` for its symbols."""
    total = over.zero
    for powers, value in polynomial.terms():
        product = over.one * value
        for name, power in zip(polynomial.ring.symbols, powers, strict=True):
            if power:
                product *= values[name]**power
        total += product
    return total


def _ends(polynomial: PolyElement, name: Symbol) -> tuple[PolyElement, ...]:
    """Return the polynomial with 0 and with 1 for ``name``; the smaller of the two alone where signs tell which."""
    place, over = polynomial.ring.symbols.index(name), polynomial.ring
    at_zero, rest = over.zero, over.zero
    for powers, value in polynomial.terms():
        term = over.from_dict({(*powers[:place], 0, *powers[place + 1:]): value})
        if powers[place]:
            rest += term
        else:
            at_zero += term
    signs = {bool(value > 0) for value in rest.coeffs()}
    return (at_zero, at_zero + rest) if len(signs) == 2 else (at_zero + rest,) if False in signs else (at_zero,)
