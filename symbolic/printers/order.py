"""The order in which people read formulas: numbers, then ``s b h a k d f v``, then the rest.

SymPy sorts factors and summands by its own rules, so ``sbh`` would be printed as ``bhs``. What is put in
order here is meant for printing only: the products and sums are not evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from sympy import Add, Expr, Float, Integer, Mul, Number, Piecewise, Pow, S, Symbol, default_sort_key, true
from sympy.core.exprtools import decompose_power
from sympy.logic.boolalg import Boolean

from ..functions import Iverson, cases
from ..parameters import BY_LETTER

#: Coefficients first, then sizes, then degrees of parallelism; switches and terms come after them.
_LETTERS = (
    "w", "L", "Lr", "nr", "m", "B", "s", "b", "h", "A", "K", "a", "k", "kt", "d", "f", "v", "u", "g", "M",
    "c", "t", "ts", "p", "V", "D", "N", "n", "shards", "r",
)
_AFTER_ALL_LETTERS = len(_LETTERS)
#: So many zeros at the end of a number are written as a power of ten.
_MANY_ZEROS = 6


@cache
def in_reading_order(expr: Expr) -> Expr:
    """Put factors and summands into reading order.

    A sum that somebody wrote in an order of its own keeps it, but for numbers, which go first, and negative
    summands, which go last; a sum in SymPy's order was written by nobody and is sorted. Raises ValueError
    if the expression has a floating point number: formulas are exact.
    """
    if expr.has(Float):
        raise ValueError(f"{expr} has a floating point number")
    return _ordered(expr)


def in_sympy_order(expr: Add) -> list[Expr]:
    """Sort the summands as ``expr.as_ordered_terms()`` does, which makes a complex number of every coefficient."""
    number, *others = sorted(expr.args, key=lambda part: not part.is_Number)
    if len(others) == 1 and number.is_Number and number.is_positive and others[0].is_Mul:  # 1 - x, not -x + 1
        count, *sizes = sorted(others[0].args, key=lambda part: not part.is_Number)
        if len(sizes) == 1 and count.is_Number and count.is_negative:
            return [number, *others]
    summands = []
    for summand in expr.args:
        coefficient, rest = summand.as_coeff_Mul()
        powers: dict[Expr, int] = {}
        for factor in Mul.make_args(rest) if rest is not S.One else ():
            if factor.is_Symbol:
                powers[factor] = 1
            elif factor.is_number:
                coefficient *= factor
            else:
                base, exponent = decompose_power(factor)
                powers[base] = exponent
        summands.append((summand, powers, coefficient))
    bases = sorted({base for _, powers, _ in summands for base in powers}, key=_sort_key)

    def key(item: tuple[Expr, dict[Expr, int], Number]) -> tuple[list[int], Number]:
        _, powers, coefficient = item
        return [-powers.get(base, 0) for base in bases], coefficient

    return [summand for summand, *_ in sorted(summands, key=key)]


_sort_key = cache(default_sort_key)


def signed(summand: Expr) -> tuple[bool, Expr]:
    """Split a summand into whether it is negative and what is left; the order of factors stays."""
    if summand.is_Number:
        return bool(summand.is_negative), abs(summand)
    if not isinstance(summand, Mul):
        return False, summand
    numbers = [factor for factor in summand.args if factor.is_Number]
    negative = sum(bool(number.is_negative) for number in numbers) % 2 == 1
    factors = [abs(factor) if factor.is_Number else factor for factor in summand.args]
    return negative, joined([factor for factor in factors if factor != 1])


def over_and_under(product: Expr) -> tuple[list[Expr], list[Expr]]:
    """Split a product into the factors of its numerator and denominator; their order stays."""
    over: list[Expr] = []
    under: list[Expr] = []
    for factor in Mul.make_args(product):
        if isinstance(factor, Number):
            over += [Integer(factor.p)] if factor.p != 1 else []
            under += [Integer(factor.q)] if factor.q != 1 else []
        elif factor.is_Pow and factor.exp.is_Integer and factor.exp.is_negative:
            below, above = over_and_under(Pow(factor.base, -factor.exp))
            over += above
            under += below
        else:
            over.append(factor)
    return over, under


def power_of_ten(number: int) -> tuple[int, int]:
    """Split a number into one without zeros at its end and a power of ten; exponent 0 where few zeros would go."""
    lead, zeros = number, 0
    while lead and lead % 10 == 0:
        lead, zeros = lead // 10, zeros + 1
    return (lead, zeros) if zeros >= _MANY_ZEROS else (number, 0)


def needs_brackets(operand: Expr) -> bool:
    """Tell whether an operand of a minus or of a product stands in brackets: a sum, or one with a minus in front."""
    return isinstance(operand, Add) or signed(operand)[0]


def quotient(numerator: Expr, denominator: Expr) -> tuple[Expr, Expr]:
    """Write a division as numerator and denominator of one fraction that is not cancelled."""
    over, under = over_and_under(numerator)
    return _ordered(joined(over)), _ordered(joined([denominator, *under]))


def cases_in_words(expr: Piecewise) -> Iterator[tuple[Expr, str, Boolean]]:
    """Yield the values of cases, each with the words after it and its condition; the last one holds otherwise."""
    for value, condition in expr.args:
        yield value, " otherwise" if condition == true else " if ", condition


def is_switch(expr: Expr) -> bool:
    """Tell whether a symbol is a parameter that is either 0 or 1."""
    return isinstance(expr, Symbol) and expr.name in BY_LETTER and BY_LETTER[str(expr.name)].is_switch


def joined(factors: list[Expr]) -> Expr:
    """Multiply factors in the given order without evaluation; the product of none is 1."""
    if len(factors) < 2:
        return factors[0] if factors else Integer(1)
    return Mul(*factors, evaluate=False)


def numbers_last(parts: tuple[Expr, ...]) -> list[Expr]:
    """Sort the arguments of a maximum or minimum: numbers go to the end."""
    return sorted(parts, key=lambda part: bool(part.is_Number))


@cache
def _ordered(expr: Expr) -> Expr:
    if not expr.args or expr.is_Atom:
        return expr
    if isinstance(expr, Add):
        by_nobody = expr.args == Add(*expr.args).args
        key = _reading if by_nobody else _sign_and_number
        parts = sorted((_ordered(part) for part in expr.args), key=key)
        return Add(*(summand for part in parts for summand in Add.make_args(part)), evaluate=False)
    parts = [_ordered(part) for part in expr.args]
    if isinstance(expr, Mul):
        factors = (inner for part in parts for inner in Mul.make_args(part))
        return Mul(*sorted(factors, key=_factor_key), evaluate=False)
    if isinstance(expr, Pow):
        return Pow(*parts, evaluate=False)
    if isinstance(expr, Piecewise):
        return cases(*(part.args for part in parts))
    return expr.func(*parts)


@cache
def _factor_key(factor: Expr) -> tuple[int, int, str]:
    base = factor.base if isinstance(factor, Pow) else factor
    if base.is_Number:
        return (0, 0, "")
    if isinstance(base, Symbol):
        name = str(base.name)
        if is_switch(base):
            return (2, 0, name)
        return (1, _rank(name), name)
    kind = 6 if isinstance(base, Piecewise) else 5 if isinstance(base, Add) else 4 if isinstance(base, Iverson) else 3
    return (kind, len(base.args), str(base))


def _rank(name: str) -> int:
    """Find the place of a letter; micro-batches in flight stand where their letter does, other terms last."""
    known = "nr" if name.endswith(".in_flight") else name
    return _LETTERS.index(known) if known in _LETTERS else _AFTER_ALL_LETTERS


def _sign_and_number(summand: Expr) -> tuple[bool, bool]:
    """Sort positive before negative summands, numbers before products, as in 12 + 4k/a."""
    return (signed(summand)[0], not summand.is_Number)


def _reading(summand: Expr) -> tuple[bool, bool, list[tuple[int, str]]]:
    """Sort as ``_sign_and_number``, then by the sizes in the numerator; more of them come first."""
    letters = []
    for factor in over_and_under(summand)[0]:
        base = factor.base if isinstance(factor, Pow) else factor
        if isinstance(base, Symbol) and not is_switch(base):
            letters.append((_rank(str(base.name)), str(base.name)))
    end = (_AFTER_ALL_LETTERS + 1, "")
    return (*_sign_and_number(summand), [*letters, end])
