"""No search finds a form with fewer operations than the printed one: SymPy's, and equality saturation where FULL."""

from __future__ import annotations

import re

import pytest
from oracles.extent import FULL
from sympy import Expr, Mul, Symbol, factor, symbols

from shardmath.symbolic.factoring import _TAKEN_IN
from shardmath.symbolic.implementations import IMPLEMENTATIONS
from shardmath.symbolic.terms import operations
from validation.simplest import PAGE, QUICK, Printed, distinct, parts_with_simpler, printed, simpler

pytestmark = pytest.mark.slow

#: Every form, or one of so many.
_STEP = 1 if FULL else 9
a, b, c, t = symbols("a b c t", positive=True)


@pytest.mark.parametrize("name", QUICK)
def test_sympy_finds_nothing_simpler(name: str) -> None:
    assert len(distinct()) > 900
    for where, form in distinct()[::_STEP]:
        assert simpler(QUICK[name], form) is None, (where, form.name, form.printed)


def test_a_search_that_finds_something_says_so() -> None:
    form = Printed("test", Symbol("test"), a * b + a * c, a * b + a * c)
    assert simpler(factor, form) == a * (b + c)
    circular = Printed("test", Symbol("x"), a * b, a * b)
    assert simpler(lambda _: Symbol("x"), circular) is None
    assert simpler(lambda _: Symbol("y"), circular) == Symbol("y")


@pytest.mark.parametrize(
    ("formula", "count"),
    [(a * b + a * c + t * b + t * c + 1, 4), (a / t - a * b / t, 3), (3 * c / 2 - a - b, 4), (a * a * b + a * c, 4),
     (2 * a + 2 * b, 2), (a - a, 0)],
)
def test_saturation_finds_the_cheapest_form_and_keeps_the_value(formula: Expr, count: int) -> None:
    cheapest = pytest.importorskip("validation.saturation", exc_type=ImportError).cheapest
    other = cheapest(formula)
    assert operations(other) <= count
    assert (other - formula).expand() == 0


@pytest.mark.skipif(not FULL, reason="minutes: with ORACLES=full")
def test_saturation_finds_nothing_simpler_but_numbers_taken_in() -> None:
    from validation.saturation import cheapest

    for where, form in distinct():
        for part, other in parts_with_simpler(cheapest, form):
            numbers = [factor for factor in Mul.make_args(part) if factor.is_Number]
            assert any(abs(number) > _TAKEN_IN for number in numbers), (where, form.name, part, other)
            assert operations(part) - operations(other) == 1


def test_the_page_has_the_operations_of_every_implementation() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name, implementation in IMPLEMENTATIONS.items():
        forms = printed(implementation)
        before, after = (sum(map(operations, column)) for column in (
            [form.written for form in forms], [form.printed for form in forms],
        ))
        row = re.search(rf"^\| {name} \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \|", text, re.MULTILINE)
        assert row is not None
        assert [int(number.replace(",", "")) for number in row.groups()] == [len(forms), before, after]
