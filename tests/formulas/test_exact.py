"""Exact values of terms and conditions: what SymPy finds when it puts the values in and simplifies."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_layouts import batches, by_letter
from sympy import And, Eq, Integer, Le, Ne, Not, Or, Rational, Symbol, false, sqrt, true

from shardmath.symbolic.accounts import build
from shardmath.symbolic.exact import evaluate, holds, number
from shardmath.symbolic.functions import CeilDiv, Divides, FloorDiv, Iverson, LeastCommonMultiple, Max, Min
from shardmath.symbolic.implementations import IMPLEMENTATIONS, MEGATRON, Implementation
from shardmath.symbolic.parallel.legality import rules_for
from shardmath.symbolic.parameters import symbol
from shardmath.symbolic.published import PublishedSet, all_published

x, y, z = [Symbol(letter, integer=True) for letter in "xyz"]
CASES = [*IMPLEMENTATIONS.values(), MEGATRON.with_choices(layers="experts")]
EXPRESSIONS = (
    CeilDiv(x - y, z), FloorDiv(x - y, z), LeastCommonMultiple(abs(x) + 1, z), Max(x, y, 3) - Min(x, y / z),
    x / z - y * z**2 / 3, (x + Rational(1, 2)) ** 3 / z, Iverson(x < y) * z + Iverson(Eq(x, 2)),
    Iverson(And(Ne(x, y), Or(Le(x, z), Divides(z, x)))) - Iverson(Not(Divides(z, y))),
)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@settings(max_examples=3)
@given(st.data())
def test_terms_and_rules_are_what_sympy_says(case: Implementation, data: st.DataObject) -> None:
    terms = build(case)
    layouts = (by_letter(row) for row in data.draw(batches(case, count=4)).rows())
    values = next((row for row in layouts if row["D"] * row["c"] % row["R"] == 0), None)
    if values is None:
        return
    if case.choices["layers"] == "experts":  # of which a dense layout has none
        values |= {"E": 6, "q": 2, "fe": 12}
    known = {symbol(letter): Integer(value) for letter, value in values.items()}
    for name, value in evaluate(terms.terms.values(), values).items():
        assert value == terms[name].expression.xreplace(known).doit(), name
        known[terms[name].symbol] = value
    for rule in rules_for(case):
        assert rule.condition.xreplace(known) == (true if holds(rule.condition, known) else false), rule.name


@pytest.mark.parametrize("item", all_published(), ids=lambda item: item.name)
def test_published_terms_are_what_sympy_says(item: PublishedSet) -> None:
    terms = item.terms
    names = set().union(*(term.expression.free_symbols for term in terms.terms.values())) - terms.by_symbol.keys()
    known = {name: Integer(2 + place % 7) for place, name in enumerate(sorted(names, key=str))}
    for term in terms.terms.values():
        value = number(term.expression, known)
        assert value == term.expression.xreplace(known).doit(), term.name
        known[term.symbol] = value


@given(st.integers(-9, 9), st.integers(-9, 9), st.integers(1, 9), st.integers(1, 4))
def test_functions_are_what_sympy_says(first: int, second: int, third: int, divisor: int) -> None:
    for expression in EXPRESSIONS:
        share = 1 if expression.has(Divides) else divisor  # only integers divide one another
        known = {x: Integer(first), y: Rational(second, share), z: Integer(third)}
        assert number(expression, known) == expression.xreplace(known).doit(), expression


def test_what_has_no_value_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no value for \['y'\] in"):
        number(x + y, {x: Integer(1)})
    half = x + Rational(1, 2)
    for expression in (1 / x, sqrt(x + 2), Iverson(Divides(z, half)), LeastCommonMultiple(half, z)):
        with pytest.raises(ValueError, match="no rational value"):
            number(expression, {x: Integer(0), z: Integer(3)})
    assert number(sqrt(x), {x: Integer(4)}) == 2
    assert number(x, {x: Fraction(1, 3)}) == Rational(1, 3)
