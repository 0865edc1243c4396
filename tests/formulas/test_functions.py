"""The functions of formulas against Python's integers, and what SymPy may assume of them."""

import math
from collections.abc import Callable
from fractions import Fraction
from operator import neg

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st
from sympy import Add, Eq, Expr, Ge, Gt, Integer, Le, Lt, Ne, Not, Or, Rational, Symbol, count_ops, false, srepr, true

from shardmath.symbolic.accounts import build
from shardmath.symbolic.functions import CeilDiv, Divides, Iverson, LeastCommonMultiple, Max, Min, pad_to
from shardmath.symbolic.implementations import IMPLEMENTATIONS

pytestmark = pytest.mark.slow

NATURAL = st.integers(1, 10**30)
WHOLE = st.integers(-(10**30), 10**30)
NONZERO = NATURAL | NATURAL.map(neg)
FRACTIONS = st.fractions(-1000, 1000, max_denominator=99)
NONZERO_FRACTIONS = st.builds(Fraction, st.integers(1, 1000) | st.integers(-1000, -1), st.integers(1, 99))

x, y = Symbol("x", integer=True), Symbol("y", integer=True)
positive, other = (Symbol(name, integer=True, positive=True) for name in "mn")
natural = Symbol("k", integer=True, nonnegative=True)
RELATIONS = {Eq: "__eq__", Ne: "__ne__", Lt: "__lt__", Le: "__le__", Gt: "__gt__", Ge: "__ge__"}


def rational(value: Fraction) -> Rational:
    return Rational(value.numerator, value.denominator)


@given(WHOLE, NONZERO)
def test_ceil_div_of_integers(numerator: int, denominator: int) -> None:
    found = CeilDiv(Integer(numerator), Integer(denominator))
    assert found.is_Integer
    assert int(found) == -(-numerator // denominator)


@given(FRACTIONS, NONZERO_FRACTIONS)
def test_ceil_div_of_fractions(numerator: Fraction, denominator: Fraction) -> None:
    assert CeilDiv(rational(numerator), rational(denominator)) == math.ceil(numerator / denominator)


@given(WHOLE, NONZERO)
def test_ceil_div_after_substitution(numerator: int, denominator: int) -> None:
    expression = 3 * CeilDiv(x, y) + 1
    assert expression.xreplace({x: Integer(numerator), y: Integer(denominator)}) == (
        3 * -(-numerator // denominator) + 1
    )


@given(NATURAL, NATURAL)
def test_padding_is_the_least_multiple_that_is_large_enough(size: int, multiple: int) -> None:
    padded = int(pad_to(Integer(size), Integer(multiple)))
    assert padded % multiple == 0
    assert 0 <= padded - size < multiple


@given(NATURAL, NATURAL)
def test_least_common_multiple(left: int, right: int) -> None:
    expected = math.lcm(left, right)
    assert LeastCommonMultiple(Integer(left), Integer(right)) == expected
    substituted = LeastCommonMultiple(positive, other).xreplace({positive: Integer(left), other: Integer(right)})
    assert substituted == expected


@given(NONZERO, WHOLE)
def test_divides(divisor: int, dividend: int) -> None:
    expected = true if dividend % divisor == 0 else false
    assert Divides(Integer(divisor), Integer(dividend)) == expected
    assert Divides(x, y).xreplace({x: Integer(divisor), y: Integer(dividend)}) == expected
    assert Not(Divides(x, y)).xreplace({x: Integer(divisor), y: Integer(dividend)}) == Not(expected)


@pytest.mark.parametrize("relation", RELATIONS, ids=lambda relation: relation.__name__)
@given(st.integers(-3, 3), st.integers(-3, 3))
def test_iverson_of_a_relation(relation: type, left: int, right: int) -> None:
    expected = int(getattr(left, RELATIONS[relation])(right))
    assert Iverson(relation(Integer(left), Integer(right))) == expected
    for sides in ((x, y), (x, right), (left, y), (x - y, 0), (x + 1, y + 1), (2 * x, 2 * y)):
        found = Iverson(relation(*sides)).xreplace({x: Integer(left), y: Integer(right)})
        assert found == expected, sides


@given(st.integers(-9, 9), st.integers(-9, 9), st.integers(-9, 9))
def test_iverson_of_an_equation_is_solved_for_its_symbol(left: int, right: int, value: int) -> None:
    found = Iverson(Eq(x + left, Integer(right)))
    assert found == Iverson(Eq(x, right - left)) == Iverson(Eq(Integer(right) - x, left))
    assert found.xreplace({x: Integer(value)}) == int(value + left == right)


def test_iverson_of_what_is_decided_by_assumptions() -> None:
    assert Iverson(Eq(positive, 0)) == 0
    assert Iverson(Ge(natural, 0)) == 1
    assert Iverson(Eq(natural, 0)).free_symbols == {natural}
    assert Iverson(true) == 1
    assert Iverson(false) == 0
    assert Iverson(Or(Eq(x, 1), Divides(y, x))).xreplace({x: Integer(6), y: Integer(4)}) == 0


EXTREMES = pytest.mark.parametrize(("function", "of_numbers"), [(Max, max), (Min, min)], ids=["Max", "Min"])
#: Sums of products in which positive, natural and any integers and sums stand, and numbers; some as written.
SUMS = st.builds(
    lambda parts, evaluate: Add(*(sympy.Mul(number, *factors, evaluate=evaluate) for number, factors in parts),
                                evaluate=evaluate),
    st.lists(st.tuples(st.integers(-2, 3), st.lists(
        st.sampled_from([positive, other, natural, x, 1 - positive, other - 2]), max_size=2)), max_size=3),
    st.booleans(),
)


@EXTREMES
@given(st.lists(FRACTIONS, min_size=1, max_size=5))
def test_extremes_of_numbers(function: type, of_numbers: Callable[..., Fraction], values: list[Fraction]) -> None:
    assert function(*map(rational, values)) == rational(of_numbers(values))


@EXTREMES
@given(st.lists(SUMS, min_size=1, max_size=4), st.integers(1, 9), st.integers(1, 9), st.integers(0, 9), WHOLE)
def test_extremes_after_substitution(
    function: type, of_numbers: Callable[..., Expr], parts: list[Expr], first: int, second: int, third: int, any_: int,
) -> None:
    values = dict(zip((positive, other, natural, x), map(Integer, (first, second, third, any_)), strict=True))
    expected = of_numbers(part.xreplace(values) for part in parts)
    assert function(*parts).xreplace(values) == expected
    assert function(function(*parts[:2]), *parts[2:]) == function(*parts) == function(*parts[::-1])


@pytest.mark.parametrize(
    ("found", "expected"),
    [(Max(1, positive), positive), (Min(1, positive), 1), (Max(0, natural), natural), (Min(natural, 0), 0),
     (Max(1, positive * other), positive * other), (Min(positive, 2 - other - natural), 2 - other - natural),
     (Max(x, x + natural, x - positive), x + natural), (Min(x, x + natural, x - positive), x - positive),
     (Max(2 * positive, positive, 0), 2 * positive), (Min(x, Min(x + 1, y), y), Min(x, y)),
     (Max(2, 2 * positive), 2 * positive), (Min(2, 1 + positive), 2),
     (Max(x * y, sympy.Mul(y, x, evaluate=False), 0), Max(0, x * y)),
     (Max(3 * x, Add(x, x, evaluate=False) + x), 3 * x), (Max(0, natural * (positive - 1)), natural * (positive - 1)),
     (Max(x, x + natural * (1 - positive)), x), (Min(6, (positive + 1) * (other + 2)), 6)],
    ids=str,
)
def test_an_argument_that_another_one_makes_superfluous_is_dropped(found: Expr, expected: Expr) -> None:
    assert found == expected


@pytest.mark.parametrize(
    "parts",
    [(1, natural), (0, x), (2, positive), (x, y), (positive, natural), (positive * x, x), (x + natural, positive),
     (0, natural * (positive - 2)), (7, (positive + 1) * (other + 2))],
)
@EXTREMES
def test_an_argument_that_may_be_the_answer_stays(function: type, of_numbers: object, parts: tuple[Expr, ...]) -> None:
    assert set(function(*parts).args) == set(parts)
    assert count_ops(function(*parts, y)) == count_ops(function(*parts)) + 1 - (y in parts)


def test_formulas_have_the_extremes_that_are_quick_to_compare() -> None:
    for implementation in IMPLEMENTATIONS.values():
        assert not [term.name for term in build(implementation).terms.values()
                    if term.expression.has(sympy.Max, sympy.Min)]


@pytest.mark.parametrize(
    "unevaluated",
    [CeilDiv(x, y), CeilDiv(positive, Integer(64)), LeastCommonMultiple(positive, Integer(128)),
     Iverson(Eq(positive, 1)), CeilDiv(x / 2, Integer(1)), Max(x, y), Min(x, 1)],
    ids=str,
)
def test_a_function_of_symbols_stays_what_it_is(unevaluated: Expr) -> None:
    assert unevaluated.is_Function
    assert unevaluated.is_integer
    assert unevaluated.func(*unevaluated.args) == unevaluated
    assert unevaluated.doit() == unevaluated == unevaluated.expand()
    assert srepr(unevaluated).startswith(type(unevaluated).__name__)


def test_ceil_div_by_one() -> None:
    assert CeilDiv(x, Integer(1)) == x
    assert CeilDiv(x / 2, Integer(1)) != x / 2


def test_one_divides_all() -> None:
    assert Divides(Integer(1), x) == true
    assert isinstance(Divides(x, y), Divides)
    assert Divides(x, y).free_symbols == {x, y}


def test_signs() -> None:
    assert CeilDiv(positive, other).is_positive
    assert CeilDiv(natural, other).is_nonnegative
    assert CeilDiv(natural, other).is_positive is None
    assert CeilDiv(x, other).is_nonnegative is None
    assert CeilDiv(positive, y).is_positive is None
    assert LeastCommonMultiple(positive, other).is_positive
    assert Iverson(Eq(x, y)).is_nonnegative
    assert Iverson(Eq(x, y)).is_positive is None
    assert Iverson(Eq(x, y)).is_zero is None
    assert Max(x, positive).is_positive
    assert Max(x, natural).is_nonnegative
    assert Min(positive, other).is_positive
    assert Min(natural, positive).is_nonnegative
    assert Min(natural, x).is_nonnegative is None
    assert Max(x, y).is_real
    assert Max(x / 2, y).is_integer is None


@pytest.mark.parametrize("function", [CeilDiv, LeastCommonMultiple, Iverson, Divides])
def test_wrong_number_of_arguments(function: type) -> None:
    with pytest.raises((TypeError, ValueError)):
        function(x, y, x)
