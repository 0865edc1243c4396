"""Derivatives, pieces and growth of formulas in SymPy's functions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import lcm

from sympy import (
    Add,
    And,
    Dummy,
    Eq,
    Expr,
    Integer,
    Max,
    Min,
    Mod,
    Mul,
    Piecewise,
    Rational,
    Symbol,
    ceiling,
    diff,
    expand,
    factor,
    factor_terms,
    floor,
    fraction,
    solve,
    together,
)
from sympy.logic.boolalg import Boolean, BooleanFalse, true

#: Residue classes that a rounding may have.
_MOST_CLASSES = 256


@dataclass(frozen=True)
class Piece:
    """One value, and the condition under which it is the one."""

    value: Expr
    condition: Boolean

    def __str__(self) -> str:
        """Return both in one line."""
        return f"{self.value}" if self.condition == true else f"{self.value} if {self.condition}"


class RoundedError(ValueError):
    """A ``rounding`` that no residue class makes exact: its symbol is not multiplied with a number.

    Multiples of ``divisor`` are exact; it is None where no multiple helps.
    """

    def __init__(self, rounding: Expr, divisor: Expr | None) -> None:
        super().__init__(f"{rounding} is rounded")
        self.rounding, self.divisor = rounding, divisor


def derivative(expression: Expr, symbol: Symbol) -> Expr:
    """Return the derivative: what is rounded moves like what is rounded, a maximum like its largest argument."""
    if symbol not in expression.free_symbols:
        return Integer(0)
    inner = {node: Dummy() for node in _outermost(expression, symbol)}
    plain = expression.xreplace(inner)
    back = {dummy: node for node, dummy in inner.items()}
    parts = [diff(plain, symbol)]
    parts += [diff(plain, dummy) * _of_function(node, symbol) for node, dummy in inner.items()]
    return Add(*parts).xreplace(back)


def _of_function(node: Expr, symbol: Symbol) -> Expr:
    if isinstance(node, ceiling | floor):
        return derivative(node.args[0], symbol)
    return Piecewise(*((derivative(piece.value, symbol), piece.condition) for piece in _cases(node)))


def _outermost(expression: Expr, symbol: Symbol) -> Iterator[Expr]:
    """Yield the functions of ``symbol`` that are not inside of others."""
    if symbol not in expression.free_symbols:
        return
    if isinstance(expression, ceiling | floor | Max | Min | Piecewise):
        yield expression
        return
    for part in expression.args:
        yield from _outermost(part, symbol)


def _cases(node: Expr) -> Iterator[Piece]:
    """Yield the arguments of a maximum, a minimum or cases, each with the condition that it is the one."""
    if isinstance(node, Piecewise):
        before: Boolean = true
        for value, condition in node.args:
            yield Piece(value, And(before, condition))
            before = And(before, ~condition)
        return
    for place, part in enumerate(node.args):
        leads = [part - other if isinstance(node, Max) else other - part for other in node.args]
        comparisons = [_is_positive(lead, strict=index < place) for index, lead in enumerate(leads) if index != place]
        yield Piece(part, And(*comparisons))


def _is_positive(difference: Expr, *, strict: bool) -> Boolean:
    """Return the condition that a difference is positive, or not negative, without the factors that always are."""
    factors = Mul.make_args(factor(expand(difference)))
    left = Mul(*(part for part in factors if not part.is_positive))
    return left > 0 if strict else left >= 0


@dataclass(frozen=True)
class Residue:
    """The integers that leave ``rest`` when they are divided by ``modulus``."""

    modulus: int = 1
    rest: int = 0

    def condition(self, symbol: Symbol) -> Boolean:
        """Return the condition that ``symbol`` is one of them."""
        return true if self.modulus == 1 else Eq(Mod(symbol, self.modulus), self.rest)

    def within(self, modulus: int) -> list[Residue]:
        """Split them so that each part has one rest for ``modulus`` too."""
        whole = lcm(self.modulus, modulus)
        return [Residue(whole, rest) for rest in range(self.rest, whole, self.modulus)]


def pieces(
    expression: Expr, symbol: Symbol, condition: Boolean = true, residue: Residue = Residue(),  # frozen
) -> Iterator[Piece]:
    """Yield the expressions without functions of ``symbol`` that an expression is made of, each with its condition.

    A rounded multiple of ``symbol`` is exact in each residue class. Raises RoundedError where its factor is no number.
    """
    node = _innermost(expression, symbol)
    if node is None:
        yield Piece(expression, And(condition, residue.condition(symbol)))
    elif isinstance(node, ceiling | floor):
        slope, start = _line(node, symbol)
        for part in residue.within(int(slope.q)):
            exact = slope * (symbol - part.rest) + node.func(slope * part.rest + start)
            yield from pieces(expression.xreplace({node: exact}), symbol, condition, part)
    else:
        for case in _cases(node):
            together = And(condition, case.condition)
            if not isinstance(together, BooleanFalse):
                yield from pieces(expression.xreplace({node: case.value}), symbol, together, residue)


def _innermost(expression: Expr, symbol: Symbol) -> Expr | None:
    """Return the first function of ``symbol``; of a rounding the first function inside, if there is one."""
    node = next(_outermost(expression, symbol), None)
    inner = _innermost(node.args[0], symbol) if isinstance(node, ceiling | floor) else None
    return node if inner is None else inner


def _line(node: Expr, symbol: Symbol) -> tuple[Rational, Rational]:
    """Slope and start of what is rounded. Raises RoundedError where they are no numbers, or no small ones."""
    start = node.args[0].xreplace({symbol: Integer(0)})
    slope = expand(node.args[0] - start) / symbol
    if not (slope.is_Rational and start.is_Rational and slope.q <= _MOST_CLASSES):
        divisor = fraction(together(slope))[1]
        raise RoundedError(node, divisor if start.is_integer and symbol not in slope.free_symbols else None)
    return slope, start


def solutions(expression: Expr, symbol: Symbol) -> list[Piece]:
    """Return where ``expression`` is zero: values of ``symbol``, each with the condition under which it is one.

    The condition may speak of ``symbol``, which then is the value; where the expression is zero everywhere, ``symbol``
    itself is the value. Raises RoundedError as ``pieces`` does.
    """
    answers = []
    for piece in pieces(expression, symbol):
        answers += [Piece(value, piece.condition) for value in _roots(piece.value, symbol)
                    if _may_hold(piece.condition, symbol, value)]
    return answers


def _may_hold(condition: Boolean, symbol: Symbol, value: Expr) -> bool:
    """Return False if a value breaks a condition; cases put into cases take SymPy minutes and are left as they are."""
    return value.has(Piecewise) or not any(
        isinstance(part.xreplace({symbol: value}), BooleanFalse)
        for part in And.make_args(condition) if not part.has(Piecewise))


def _roots(expression: Expr, symbol: Symbol) -> list[Expr]:
    """Return where a sum of powers is zero: solved with letters for the coefficients, which are put back."""
    if expand(expression) == 0:
        return [symbol]
    counts = powers(expression, symbol)
    letters = {power: Dummy(f"c{power}") for power in counts}
    unknown = Dummy(str(symbol), positive=True)
    low = min(counts)
    equation = Add(*(letter * unknown**(power - low) for power, letter in letters.items()))
    back = {letters[power]: factor_terms(value) for power, value in counts.items()}
    return [value.xreplace(back) for value in solve(equation, unknown)]


def powers(expression: Expr, symbol: Symbol) -> dict[int, Expr]:
    """Return the coefficients of a sum of powers of ``symbol``, the highest first.

    Raises ValueError for an expression that is no such sum.
    """
    coefficients: dict[int, list[Expr]] = {}
    for part in Add.make_args(expand(expression)):
        coefficient, rest = part.as_independent(symbol, as_Add=False)
        _, exponent = rest.as_base_exp()
        if part == 0:
            rest = Integer(1)
        if rest != 1 and (rest != symbol**exponent or not exponent.is_Integer):
            raise ValueError(f"{part} is no power of {symbol}")
        coefficients.setdefault(0 if rest == 1 else int(exponent), []).append(coefficient)
    return {power: Add(*coefficients[power]) for power in sorted(coefficients, reverse=True)}


def growth(expression: Expr, symbol: Symbol) -> dict[int, Expr]:
    """Return the powers of ``symbol`` that are left when it is large: roundings are gone, conditions are decided.

    Raises ValueError for an expression that does not grow like a power.
    """
    return powers(_at_infinity(expression, symbol), symbol)


def _at_infinity(node: Expr, symbol: Symbol) -> Expr:
    if symbol not in node.free_symbols:
        return node
    if isinstance(node, ceiling | floor):
        return _at_infinity(node.args[0], symbol)
    if isinstance(node, Piecewise):
        for value, condition in node.args:
            decided = _holds_at_infinity(condition, symbol)
            if decided is None:
                raise ValueError(f"{condition} depends on {symbol} however large it is")
            if decided:
                return _at_infinity(value, symbol)
    if isinstance(node, Max | Min):
        return _extreme(type(node), [_at_infinity(part, symbol) for part in node.args], symbol)
    return node.func(*(_at_infinity(part, symbol) for part in node.args)) if node.args else node


def _extreme(kind: type[Expr], parts: list[Expr], symbol: Symbol) -> Expr:
    """Return the argument that is largest or smallest in the end; several of one power are compared there."""
    by_part = {part: powers(part, symbol) for part in parts}
    degrees = {part: max(counts) for part, counts in by_part.items()}
    degree = (max if kind is Max else min)(degrees.values())
    leading = [part for part in parts if degrees[part] == degree]
    if len(leading) == 1:
        return leading[0]
    return Mul(kind(*(by_part[part][degree] for part in leading), evaluate=False), symbol**degree)


def _holds_at_infinity(condition: Boolean, symbol: Symbol) -> bool | None:
    if symbol not in condition.free_symbols:
        return None
    if isinstance(condition, And):
        answers = [_holds_at_infinity(part, symbol) for part in condition.args]
        return False if False in answers else None if None in answers else True
    try:
        counts = powers(condition.lhs - condition.rhs, symbol)
    except (AttributeError, ValueError):
        return None
    sign = counts[max(counts)].is_positive if max(counts) > 0 else None
    if sign is None and not (max(counts) > 0 and counts[max(counts)].is_negative):
        return None
    if isinstance(condition, Eq):
        return False
    return bool(condition.func(Integer(1 if sign else -1), 0))
