"""Maxima and minima: what all arguments share stands outside, what is added to one goes inside where things cancel.

max(u x, v x) is x max(u, v) for x >= 0, max(u + x, v + x) is x + max(u, v), and x - max(u, v) is min(x - u, x - v).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from sympy import Add, Expr, Integer, Mul

from .functions import Max, Min
from .monomials import powers
from .polynomials import OF_SIZES, factored, polynomials, simplest
from .splits import content, divided
from .terms import is_zero_or_one, operations, times

_OPPOSITE = {Max: Min, Min: Max}


@cache
def with_shared(expression: Expr) -> Expr:
    """Return the form of ``expression`` in which maxima and minima share what they can, if that saves operations."""
    if not expression.has(Max, Min):
        return expression
    changed = _changed(expression)
    return min(expression, changed, factored(changed), key=operations)


def _changed(expression: Expr) -> Expr:
    """Return the expression with every maximum and minimum changed where that saves operations."""
    if not expression.has(Max, Min):
        return expression
    if isinstance(expression, Add):
        return _put_inside(min(expression, Add(*map(_changed, expression.args)), key=operations))
    if isinstance(expression, Mul):
        numbers = [part for part in expression.args if part.is_Number]
        rest = Mul(*(_changed(part) for part in expression.args if not part.is_Number))
        return times(Mul(*numbers), rest)
    if isinstance(expression, Max | Min):
        return _taken_out(expression.func, [_changed(part) for part in expression.args])
    if isinstance(expression, OF_SIZES) or expression.is_Pow:
        return expression.func(*map(_changed, expression.args))
    return expression


def _taken_out(kind: type[Expr], arguments: Sequence[Expr]) -> Expr:
    """Return a maximum or minimum with common factors that are not negative outside, or common summands."""
    plain = kind(*arguments)
    parts = polynomials(arguments)
    if parts is None or not isinstance(plain, kind):
        return plain
    every, atoms = parts
    (shared, signed), _ = content(tuple(summand for polynomial in every for summand in polynomial))
    number = -signed if signed < 0 else signed
    forms = [plain]
    factors = [atoms[place] for place, _ in powers(shared)]
    if (factors or number != 1) and all(factor.is_nonnegative for factor in factors):
        inside = [simplest(divided(polynomial, shared, number), atoms) for polynomial in every]
        outside, factor = simplest(((shared, number),), atoms).as_coeff_Mul()
        forms.append(times(outside, factor * _taken_out(kind, inside)))
    common = tuple(summand for summand in every[0] if all(summand in polynomial for polynomial in every))
    if common:
        rest = [tuple(item for item in polynomial if item not in common) for polynomial in every]
        forms.append(Add(simplest(common, atoms), kind(*(simplest(polynomial, atoms) for polynomial in rest))))
    return min(forms, key=operations)


def _put_inside(total: Expr) -> Expr:
    """Put summands beside maxima and minima inside these, also those behind a switch, as long as that saves."""
    best = min(_each_inside(total), key=_in_a_sum, default=total)
    return _put_inside(best) if _in_a_sum(best) < _in_a_sum(total) else total


def _in_a_sum(expression: Expr) -> int:
    """Count the operations of a summand: its sign is that of the sum."""
    return operations(expression) - bool(expression.as_coeff_Mul()[0].is_negative)


def _each_inside(total: Expr) -> Iterator[Expr]:
    """Yield the forms of a sum in which what is added to one maximum or minimum stands inside."""
    for part in Add.make_args(total):
        number, rest = part.as_coeff_Mul()
        extremes = [factor for factor in Mul.make_args(rest) if isinstance(factor, Max | Min)]
        switches = [factor for factor in Mul.make_args(rest) if factor not in extremes]
        if number not in (1, -1) or len(extremes) != 1 or len(switches) > 1 or not all(map(is_zero_or_one, switches)):
            continue
        other, (extreme,) = Add(*(summand for summand in total.args if summand is not part)), extremes
        off = other.xreplace(dict.fromkeys(switches, Integer(0))) if switches else Integer(0)
        on = other.xreplace(dict.fromkeys(switches, Integer(1))) - off
        kind = extreme.func if number == 1 else _OPPOSITE[extreme.func]
        values = [number * argument + on for argument in extreme.args]
        yield Add(off, Mul(-1, *switches, _OPPOSITE[kind](*(factored(-value) for value in values))))
        yield Add(off, Mul(*switches, kind(*map(factored, values))))
