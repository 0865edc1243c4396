"""Expressions as polynomials, to be factored: multiplied out or not, whichever needs fewer operations in the end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import product as every
from math import prod

from sympy import Add, Basic, Expr, Integer, Mul
from sympy.logic.boolalg import Boolean

from .factoring import form, search
from .functions import CeilDiv, FloorDiv, Iverson, LeastCommonMultiple, Max, Min
from .monomials import monomial
from .splits import Number, Polynomial, polynomial_of, ratio
from .terms import is_zero_or_one, operations

#: Sums of more products than these are not multiplied out.
_LONGEST = 60
#: Functions of sizes, whose arguments are factored too; conditions stay as somebody wrote them.
OF_SIZES = (CeilDiv, FloorDiv, LeastCommonMultiple, Max, Min)

#: Numbers of symbols, brackets, functions and sums, and summands by the numbers and exponents of what they multiply.
_Atoms = dict[Expr, int]
_Summands = dict[frozenset[tuple[int, int]], Number]


@cache
def factored(expression: Expr) -> Expr:
    """Take common factors out of the sums of ``expression``, and of parts of sums, if that saves operations.

    Sums inside products are multiplied out first, or taken as they are: what needs fewer operations in the end. The
    cheaper form is searched again, with its sums as they are.
    """
    best = _arguments_factored(expression)
    multiplied_out = _products(expression, spread=True) > _products(expression, spread=False)
    for spread in (False, True)[:1 + multiplied_out]:
        other = _searched(expression, spread)
        if other is not None and operations(other) < operations(best):
            best = other
    again = _searched(best, spread=False)
    while again is not None and operations(again) < operations(best):
        best, again = again, _searched(again, spread=False)
    return best if operations(best) < operations(expression) else expression


def _arguments_factored(expression: Expr) -> Expr:
    """Return the expression with its parts factored, each for itself."""
    if isinstance(expression, OF_SIZES):
        return expression.func(*map(factored, expression.args))
    if isinstance(expression, Iverson | Boolean):
        return _sides_factored(expression)
    if isinstance(expression, Mul):
        return Mul(*map(factored, expression.args), evaluate=False)
    if expression.is_Pow and expression.exp.is_Integer:
        return factored(expression.base) ** expression.exp
    return expression


@cache
def _sides_factored(condition: Basic) -> Basic:
    """Return a condition with both sides of its comparisons factored."""
    parts = [
        factored(part) if isinstance(part, Expr) else _sides_factored(part) if part.args else part
        for part in condition.args
    ]
    return condition if tuple(parts) == condition.args else condition.func(*parts)


def _searched(expression: Expr, spread: bool) -> Expr | None:
    """Return the form that the search finds; None for what is no sum or product, or has too many summands."""
    if not isinstance(expression, Add | Mul) or _products(expression, spread) > _LONGEST:
        return None
    (polynomial,), atoms = _polynomials([expression], spread)
    return simplest(polynomial, atoms)


def simplest(polynomial: Polynomial, atoms: Sequence[Expr]) -> Expr:
    """Return the form of a polynomial that the search finds."""
    return form(search(tuple(map(operations, atoms))).best(polynomial), atoms) if polynomial else Integer(0)


def polynomials(expressions: Sequence[Expr]) -> tuple[list[Polynomial], list[Expr]] | None:
    """Expressions, multiplied out, and the atoms that they have together; None if they have too many products."""
    if sum(_products(part, spread=True) for part in expressions) > _LONGEST:
        return None
    return _polynomials(expressions, spread=True)


def _polynomials(expressions: Sequence[Expr], spread: bool) -> tuple[list[Polynomial], list[Expr]]:
    atoms: _Atoms = {}
    sums = [_summands(part, atoms, spread) for part in expressions]
    return [
        polynomial_of({monomial(powers): number for powers, number in summands.items()})
        for summands in sums
    ], list(atoms)


def _products(expression: Expr, spread: bool) -> int:
    if expression.is_Add:
        return sum(_products(part, spread) for part in expression.args)
    if expression.is_Mul and spread:
        return prod(_products(part, spread) for part in expression.args)
    if expression.is_Pow and spread and expression.exp.is_Integer and expression.exp.is_positive:
        return int(_products(expression.base, spread) ** int(expression.exp))
    return 1


def _summands(expression: Expr, atoms: _Atoms, spread: bool) -> _Summands:
    """Return the products of atoms that an expression is the sum of; without ``spread``, sums in products are atoms."""
    if expression.is_Rational:
        return {frozenset(): ratio(int(expression.p), int(expression.q))}
    if expression.is_Add:
        whole: _Summands = {}
        for part in expression.args:
            for powers, number in _summands(part, atoms, spread).items():
                whole[powers] = whole.get(powers, 0) + number
        return whole
    if expression.is_Mul:
        return _multiplied([_factor(part, atoms, spread) for part in expression.args], atoms)
    return _factor(expression, atoms, spread)


def _factor(factor: Expr, atoms: _Atoms, spread: bool) -> _Summands:
    """Return the products of atoms in one factor of a product."""
    base, exponent = (factor.base, int(factor.exp)) if factor.is_Pow and factor.exp.is_Integer else (factor, 1)
    if base.is_Rational or base.is_Mul or (base.is_Add and spread and exponent > 0):
        parts = _summands(base, atoms, spread)
        if len(parts) == 1 and exponent != 1:
            ((powers, number),) = parts.items()
            return {frozenset((atom, power * exponent) for atom, power in powers): number**exponent}
        return _multiplied([parts] * exponent, atoms)
    atom = factored(base) if base.is_Add else _arguments_factored(base)
    if atom.is_Mul:  # numbers and factors of a sum that is not multiplied out
        return _factor(atom**exponent if exponent != 1 else atom, atoms, spread)
    return {frozenset({(atoms.setdefault(atom, len(atoms)), exponent)}): 1}


def _multiplied(factors: Iterable[_Summands], atoms: _Atoms) -> _Summands:
    """Multiply sums; a switch or a bracket is its own square."""
    switches = {number for atom, number in atoms.items() if is_zero_or_one(atom)}
    whole: _Summands = {frozenset(): 1}
    for factor in factors:
        before, whole = whole, {}
        for (left, number), (right, other) in every(before.items(), factor.items()):
            powers = dict(left)
            for atom, exponent in right:
                total = powers.pop(atom, 0) + exponent
                if total:
                    powers[atom] = 1 if total > 1 and atom in switches else total
            key = frozenset(powers.items())
            whole[key] = whole.get(key, 0) + number * other
    return whole
