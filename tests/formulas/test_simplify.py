"""Simplification: every named rule keeps the value and saves operations; sums stay in the order as written."""

from functools import cache
from itertools import pairwise
from itertools import product as every
from operator import add, mul

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.extent import FULL
from random_layouts import by_letter, legal_rows
from sympy import Add, Eq, Expr, Gt, Integer, Mul, Piecewise, Pow, Rational, Symbol, count_ops, preorder_traversal

from shardmath.compiler.evaluators import find
from shardmath.symbolic.accounts import build
from shardmath.symbolic.exact import evaluate, number
from shardmath.symbolic.functions import CeilDiv, Iverson, LeastCommonMultiple, Max, Min
from shardmath.symbolic.implementations import IMPLEMENTATIONS
from shardmath.symbolic.parallel.legality import fixed_values
from shardmath.symbolic.parameters import symbol, symbols
from shardmath.symbolic.simplify import (
    COMPUTING_RULES,
    RULES,
    Rule,
    Step,
    computed,
    derivation,
    name_products,
    simplify,
    spelled_out,
)
from shardmath.symbolic.terms import in_place, is_zero_or_one, product, reduce_switches, switch_factors, total

pytestmark = pytest.mark.slow

s, b, h, a, k, d, f, v, A, K, kt = symbols("s b h a k d f v A K kt")
t, c, p, r, D, L = symbols("t c p r D L")
sp, rfull, rcore, rmlp, tied, zero1 = symbols("sp rfull rcore rmlp tied zero1")
ONE_STAGE = Iverson(Eq(p, 1))
SYNTHETIC: tuple[Expr, ...] = (
    Integer(0),
    product(Integer(2), s, b, h, Integer(3)),
    total(product(Integer(2), h), product(h, Integer(3)), h, -s),
    (1 - rcore) ** 3 * rcore * s,
    product(rcore, rcore, ONE_STAGE, ONE_STAGE, a, d),
    total(product(rcore, s, b), product(1 - rcore, s, b)),
    total(product(rcore, s, h), product(1 - rcore, s, f), product(Integer(-1), rcore, rmlp, s, f)),
    (1 - rfull) * (1 - rcore * rmlp) * (2 * a * d * s + 4 * k * d * s),
    a**2 * d**2 + k * d / t + a * d * k,
    product(s, b, Max(k / t, Integer(1)), d) * Max(k / t, Integer(1)) + Max(h, 2 * s) - Min(h, s),
    total(s * h / t, s * f / t, Rational(1, 3) * s * h),
    CeilDiv(a * d * h, Integer(64)) * 64 + zero1 * (CeilDiv(h, LeastCommonMultiple(D * c, Integer(128))) - h),
    (1 - tied * ONE_STAGE) ** 2 * v * h / (1 + zero1 * (D * c - 1)),
    Iverson(r > 0) * sp + sp**2 - Iverson(r > 0) ** 2 * sp,
)
MANY = (Iverson(Gt(s, 2)), Iverson(Gt(t, 2)), ONE_STAGE)
EVERY_IMPLEMENTATION = pytest.mark.parametrize("name", IMPLEMENTATIONS)
EVERY_RULE = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
Values = dict[Symbol, Expr]


@st.composite
def legal_points(draw: st.DrawFn, name: str) -> Values:
    """Draw a legal layout; give the exact values of all parameters and terms, by symbol."""
    implementation = IMPLEMENTATIONS[name]
    values = by_letter(draw(legal_rows(implementation, find(name).terms)))
    terms = build(implementation).terms.values()
    known = evaluate(terms, values)
    inputs = {symbol(letter): Integer(value) for letter, value in values.items()}
    return inputs | {term.symbol: known[term.name] for term in terms}


@cache
def written(name: str) -> dict[str, tuple[Expr, Expr]]:
    """Give the forms of every term: as written, and with local sizes spelled out."""
    terms, fixed = build(IMPLEMENTATIONS[name]), fixed_values(IMPLEMENTATIONS[name])
    return {
        one: (term.expression, spelled_out(terms, term.expression, fixed)) for one, term in terms.terms.items()
    }


@cache
def derivations(name: str) -> dict[str, tuple[Step, ...]]:
    terms, fixed = build(IMPLEMENTATIONS[name]), fixed_values(IMPLEMENTATIONS[name])
    return {one: derivation(terms, one, fixed) for one in terms.terms}


@cache
def compiled(name: str) -> dict[str, Expr]:
    terms = build(IMPLEMENTATIONS[name])
    return {one: computed(terms, one) for one in terms.terms}


@cache
def applied(rule: Rule, expression: Expr) -> Expr:
    return rule.apply(expression)


@EVERY_IMPLEMENTATION
@settings(max_examples=15 if FULL else 5)
@given(st.data())
def test_a_rule_keeps_the_value_of_every_term(name: str, data: st.DataObject) -> None:
    """One point serves all rules: what costs is to compute the terms there."""
    known = data.draw(legal_points(name))
    for one, forms in written(name).items():
        exact = known[build(IMPLEMENTATIONS[name])[one].symbol]
        for form in forms:
            assert number(form, known) == exact, (one, form)
            for rule in RULES:
                other = applied(rule, form)
                assert other is form or number(other, known) == exact, (rule.name, one, form)


@EVERY_RULE
@settings(max_examples=15 if FULL else 5)
@given(legal_points("megatron"))
def test_a_rule_keeps_the_value_of_other_expressions(rule: Rule, known: Values) -> None:
    for expression in SYNTHETIC:
        assert number(expression, known) == number(applied(rule, expression), known), expression


@pytest.mark.parametrize(
    ("rule", "before", "after"),
    [("add like products", total(product(Integer(2), h), product(h, Integer(3)), h), "6*h"),
     ("merge switches", 2 * s * b - 2 * rcore * s * b + s * h, "2*b*s*(1 - rcore) + h*s"),
     ("merge switches", rcore**2 * s * b + (1 - rcore) * s * b, "b*s"),
     ("name products", a * d * Max(k / t, Integer(1)) + k * d * h, "A*kt + K*h"),
     ("add like products", product(Integer(2), total(h, product(Integer(2), s), s)), "2*(h + 3*s)"),
     ("factor common", s * b * h / t + s * b * f / t, "b*s*(f + h)/t"),
     ("factor common", s * b * h + s * b * f + 2 * h * f + 2 * f, "b*s*(f + h) + 2*f*(h + 1)"),
     ("factor common", h * (2 + sp) / t + f * (2 + sp + rcore) + rcore, "rcore*(f + 1) + (f + h/t)*(sp + 2)"),
     ("factor common", (1 - rcore) * (h + s) + rcore * (h + s) + f, "f + h + s"),
     ("factor common", h - h / t, "h - h/t"),
     ("factor common", h / t - s / t, "(h - s)/t"),
     ("share in maxima", Max(2 * s * b / t, 4 * s * h / t), "2*s*Max(b, 2*h)/t"),
     ("share in maxima", Max(s + b + t, s + h, s + f), "s + Max(f, h, b + t)"),
     ("share in maxima", (1 - sp) * s + sp * Max(s - b, s / t), "s - sp*Min(b, s - s/t)"),
     ("write cases", h * Iverson(Gt(s, 2)) * (1 - Iverson(Eq(t, 3))), "h*Iverson((s > 2) & Ne(t, 3))"),
     ("write cases", h * MANY[0] * MANY[1] * (1 - MANY[2]), "Piecewise((h, (s > 2) & (t > 2) & Ne(p, 1)), (0, True))"),
     ("write cases", h * (1 - MANY[0]) + (s + 1) * MANY[0], "Piecewise((s + 1, s > 2), (h, True))"),
     ("write cases", h + MANY[0] * (s - h), "Piecewise((s, s > 2), (h, True))"),
     ("write cases", h * (1 + MANY[0]) + MANY[1] * s, "h*(Iverson(s > 2) + 1) + s*Iverson(t > 2)"),
     ("factor common", CeilDiv(a * h + d * h, t) * s + s, "s*(CeilDiv(h*(a + d), t) + 1)")],
)
def test_a_rule_does_what_it_says(rule: str, before: Expr, after: str) -> None:
    assert str({one.name: one for one in RULES}[rule].apply(before)) == after


@EVERY_IMPLEMENTATION
@settings(max_examples=15 if FULL else 5)
@given(st.data())
def test_every_form_of_a_derivation_and_the_compiled_form_agree(name: str, data: st.DataObject) -> None:
    terms, known = build(IMPLEMENTATIONS[name]), data.draw(legal_points(name))
    for one, steps in derivations(name).items():
        forms = (*(step.expression for step in steps), compiled(name)[one])
        assert {number(form, known) for form in forms} == {known[terms[one].symbol]}, one


def check_costs(steps: tuple[Step, ...]) -> None:
    """Look at the recorded counts of a derivation, and at the order of its rules."""
    canonical = {rule.name: rule.canonical for rule in RULES}
    assert steps[0].rule == "as written"
    assert [rule.name for rule in RULES if rule.name in {step.rule for step in steps}] == [
        step.rule for step in steps[1:]
    ]
    for step in steps:
        assert step.operations == count_ops(step.expression) + sum(
            len(part.args) - 1 for part in preorder_traversal(step.expression) if isinstance(part, Piecewise)
        )
    for before, after in pairwise(steps):
        assert after.operations < before.operations + canonical[after.rule]


@EVERY_IMPLEMENTATION
def test_no_step_costs_operations(name: str) -> None:
    for one, steps in derivations(name).items():
        check_costs(steps)
        assert steps[0].expression == written(name)[one][1]


def test_no_step_costs_operations_in_other_expressions() -> None:
    for expression in SYNTHETIC:
        check_costs(simplify(expression))


def test_the_derivations_use_every_rule() -> None:
    used = {step.rule for name in IMPLEMENTATIONS for steps in derivations(name).values() for step in steps}
    assert used == {"as written", *(rule.name for rule in RULES)}


@EVERY_IMPLEMENTATION
def test_the_compiled_form_brings_no_new_names(name: str) -> None:
    terms = build(IMPLEMENTATIONS[name])
    for one, term in terms.terms.items():
        assert compiled(name)[one].free_symbols <= term.expression.free_symbols, one
    assert name_products not in [rule.apply for rule in COMPUTING_RULES]


@EVERY_IMPLEMENTATION
def test_no_derivation_is_circular(name: str) -> None:
    terms = build(IMPLEMENTATIONS[name])
    for one, steps in derivations(name).items():
        assert all(terms[one].symbol not in step.expression.free_symbols for step in steps)


@pytest.mark.parametrize(
    ("after", "canonical", "taken"),
    [(s * b, False, True), (s * b + 1, False, False), (s * b + 1, True, True), (s * b + h + 1, True, False),
     (s * b + h, True, False), (A, False, False), (Integer(5), True, True)],
)
def test_a_step_is_taken_only_if_it_saves_or_is_canonical(after: Expr, canonical: bool, taken: bool) -> None:
    rule = Rule("test", "for a test", lambda _: after, canonical)
    steps = simplify(s * b + h, (rule,), defines=A)
    assert [step.expression for step in steps] == [s * b + h, *([after] if taken else [])]


SWITCHES = (sp, rcore, rmlp, tied)
POLYNOMIALS = st.recursive(
    st.sampled_from((*SWITCHES, ONE_STAGE, Integer(1), Integer(2))),
    lambda inner: st.one_of(
        st.builds(lambda one: 1 - one, inner), st.builds(add, inner, inner), st.builds(mul, inner, inner),
        st.builds(pow, inner, st.integers(1, 3)),
    ),
    max_leaves=6,
)


@given(POLYNOMIALS)
def test_reduced_switches_agree_on_all_assignments(expression: Expr) -> None:
    reduced = reduce_switches(expression)
    assert reduced == Mul(*switch_factors(expression))
    for *bits, stages in every(*((0, 1) for _ in SWITCHES), (1, 2)):
        known = {**dict(zip(SWITCHES, map(Integer, bits), strict=True)), p: Integer(stages)}
        assert number(reduced, known) == number(expression, known), (bits, stages)
    assert not any(is_zero_or_one(power.base) for power in reduced.expand().atoms(Pow))


@pytest.mark.parametrize("x", [sp, ONE_STAGE], ids=str)
def test_switches_reduce_to_products_of_x_and_1_minus_x(x: Expr) -> None:
    assert reduce_switches(x**3) == x
    assert reduce_switches((1 - x) ** 2) == 1 - x
    assert reduce_switches(x * (1 - x)) == 0
    assert reduce_switches(1 - (1 - x) * (1 - rcore)) == x + rcore - x * rcore
    factors = switch_factors((1 - x) ** 2 * (1 - rcore) * rmlp**2)
    assert {factor for factor in factors if not factor.is_Number} == {1 - x, 1 - rcore, rmlp}


ORDERED = st.lists(st.sampled_from((s, b, h, f, t)), min_size=2, max_size=5, unique=True)
IMAGES = st.sampled_from((A, Integer(0), Integer(1), Integer(3), s * h, s + h))


@given(ORDERED, st.dictionaries(st.sampled_from((s, b, h, f)), IMAGES))
def test_in_place_keeps_the_order(letters: list[Symbol], values: Values) -> None:
    images = [values.get(letter, letter) for letter in letters]
    summands = [image for image in images if image != 0]
    assert in_place(Add(*letters, evaluate=False), values) == total(*summands)
    found = in_place(Add(*letters, evaluate=False), values)
    assert (found.args if len(summands) > 1 else (found,)) == tuple(summands or [Integer(0)])
    factors = [part for image in images for part in Mul.make_args(image) if part != 1]
    found = in_place(Mul(*letters, evaluate=False), values)
    if 0 in factors:
        assert found == 0
    else:
        assert (found.args if len(factors) > 1 else (found,)) == tuple(factors or [Integer(1)])


def test_in_place_reaches_into_sums_and_products_as_written() -> None:
    expression = total(product(h, s, total(f, b)), Max(h, s), product(t, h))
    found = in_place(expression, {s: K, f: Integer(0)})
    assert found.args[0].args == (h, K, b)
    assert found.args[1:] == (Max(h, K), found.args[2])
    assert found.args[2].args == (t, h)
