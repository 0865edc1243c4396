"""Printed Python source and one-line formulas compute what exact substitution gives, node by node."""

import math
import re
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from read_lines import by_symbol, compute
from sympy import (
    Add,
    And,
    Eq,
    Expr,
    Float,
    Ge,
    Gt,
    Integer,
    Le,
    Lt,
    Mul,
    Ne,
    Not,
    Or,
    Pow,
    Rational,
    Symbol,
    preorder_traversal,
)
from sympy.logic.boolalg import Boolean, BooleanFalse, BooleanTrue

from shardmath.symbolic import derive
from shardmath.symbolic.functions import CeilDiv, Divides, Iverson, LeastCommonMultiple, Max, Min
from shardmath.symbolic.parameters import symbols
from shardmath.symbolic.printers.order import in_reading_order, in_sympy_order
from shardmath.symbolic.printers.python import PythonPrinter, identifier
from shardmath.symbolic.printers.text import LinePrinter
from shardmath.symbolic.terms import product, total

s, b, h, a, k, d, f, v, L, A, K = symbols("s b h a k d f v L A K")
t, c, p, r, D, ts, kt, nr, shards = symbols("t c p r D ts kt nr shards")
sp, rfull, rcore, bias, w, tied = symbols("sp rfull rcore bias w tied")
TERM = Symbol("stage.weight", nonnegative=True)

SIZES = (s, h, t, c, a)
CONDITIONS: tuple[Boolean, ...] = (
    Eq(s, h), Ne(s, h), Lt(s, h), Le(s, h), Gt(s, h), Ge(s, h), Eq(s, h + t - 1), Divides(t, h), Divides(c * t, s + 1),
    And(Ge(s, 2), Divides(t, h)), Or(Lt(c, 2), Divides(2 * c, s)), Not(Divides(t, h)),
    And(Or(Eq(s, 1), Eq(h, 1)), Or(Eq(t, 2), Ge(c, 3))), Or(And(Eq(s, 1), Eq(h, 1)), Not(And(Ge(t, 2), Divides(c, h)))),
)
NODES: tuple[Expr, ...] = (
    Integer(0), Integer(-7), s, -s, s + h, s - h, -s - h, 2 - s, s * h, -2 * s * h, s / t, -s / t, s / (t * c),
    s / (t + c), (s + h) / t, Rational(3, 2) * s, Rational(-3, 4) * s / t, 1 / t, -1 / t, 2 / (t * c), s**2, s**3, s**5,
    1 / s**2, h / s**3, (s + 1)**2, (s - h)**4, 1 / (s + h)**2, s - h / t, s - (h - t), s * (h - t), s / (h / t + 1),
    (s + h) * (t - c) / (t + c), -(s + h), Rational(1, 6) * s * (h + Rational(1, 2) * t),
    CeilDiv(s, t), CeilDiv(s * h, t * c), CeilDiv(s / t + h, c), t * CeilDiv(s, t), CeilDiv(CeilDiv(s, t), c) - 1,
    LeastCommonMultiple(s * t, Integer(128)), LeastCommonMultiple(s, h) / s, CeilDiv(s, LeastCommonMultiple(t, c)) * h,
    Max(s, h), Max(s / t, Integer(1)), Min(s, h / t), Min(Max(s, h), t + c, 3 * a), 2 * Max(s, h) - Min(s, h),
    Iverson(Eq(s, h)) * t, 1 - Iverson(Gt(s, h)), (1 - Iverson(Le(s, h))) * s / t, -Iverson(Ne(s, t)), s**2 / Max(t, c),
    product(Integer(2), s, 1 / t, Integer(3), h), total(h, s, -t), product(s, total(h, -t), Iverson(Ge(s, c))),
    Mul(Rational(21, 20), total(s, h / 2), evaluate=False), Add(s, Mul(-1, h, evaluate=False), evaluate=False),
)


@cache
def helpers() -> dict[str, Any]:
    """The functions that generated evaluators define, from their own template."""
    path = Path(derive.__file__).resolve().parents[1] / "templates" / "_helpers.py.jinja"
    known: dict[str, Any] = {"math": math}
    exec(path.read_text(), known)
    return known


def run(source: str, values: dict[Symbol, int]) -> Any:
    return eval(source, dict(helpers()), {identifier(one): Fraction(value) for one, value in values.items()})


def substituted(expression: Expr, values: dict[Symbol, int]) -> Expr:
    return expression.xreplace({one: Integer(value) for one, value in values.items()}).doit()


def random_sizes(smallest: int = 1) -> st.SearchStrategy[dict[Symbol, int]]:
    return st.fixed_dictionaries({one: st.integers(smallest, 30) for one in SIZES})


@pytest.mark.slow
@pytest.mark.parametrize("node", NODES, ids=str)
@given(values=random_sizes())
def test_python_computes_what_substitution_gives(node: Expr, values: dict[Symbol, int]) -> None:
    expected = substituted(node, values)
    assert expected.is_Rational
    assert Fraction(run(PythonPrinter().doprint(node), values)) == Fraction(int(expected.p), int(expected.q))


@pytest.mark.slow
@pytest.mark.parametrize("condition", CONDITIONS, ids=str)
@given(values=random_sizes())
def test_python_conditions(condition: Boolean, values: dict[Symbol, int]) -> None:
    expected = substituted(condition, values)
    assert isinstance(expected, BooleanTrue | BooleanFalse)
    assert run(PythonPrinter().doprint(condition), values) is bool(expected)
    as_number = run(PythonPrinter().doprint(3 * Iverson(condition)), values)
    assert as_number == 3 * bool(expected)


TREES: st.SearchStrategy[Expr] = st.recursive(
    st.sampled_from(SIZES) | st.integers(-4, 4).map(Integer),
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: Add(*parts)),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: Mul(*parts)),
        st.tuples(inner, st.integers(1, 5), st.sampled_from(SIZES)).map(lambda x: x[0] * Rational(1, x[1]) / x[2]),
        st.tuples(inner, st.sampled_from(SIZES)).map(lambda x: CeilDiv(x[0], x[1])),
        st.tuples(inner, inner).map(lambda x: Max(*x)), st.tuples(inner, inner).map(lambda x: Min(*x)),
        st.tuples(inner, st.integers(2, 3)).map(lambda x: x[0] ** x[1]), st.sampled_from(CONDITIONS).map(Iverson),
    ),
    max_leaves=10,
)


def holds_a_fraction_alone(expression: Expr) -> bool:
    """Whether a rational number stands outside of a product, or beside brackets only, which Python source refuses."""
    if isinstance(expression, Mul) and all(isinstance(x, Iverson) or x.is_Rational for x in expression.args):
        return not Mul(*(x for x in expression.args if x.is_Rational)).is_Integer
    parts = expression.args if not isinstance(expression, Mul) else [x for x in expression.args if not x.is_Rational]
    return (expression.is_Rational and not expression.is_Integer) or any(
        holds_a_fraction_alone(part) for part in parts if isinstance(part, Expr)
    )


@given(tree=TREES, values=random_sizes())
def test_random_trees_in_python_and_on_a_line(tree: Expr, values: dict[Symbol, int]) -> None:
    expected = substituted(tree, values)
    assert expected.is_Rational
    exact = Fraction(int(expected.p), int(expected.q))
    if not holds_a_fraction_alone(tree):
        assert Fraction(run(PythonPrinter().doprint(tree), values)) == exact
    assert compute(LinePrinter().doprint(tree), by_symbol(values)) == exact
    assert substituted(in_reading_order(tree), values) == expected


@given(tree=TREES)
def test_sums_in_python_stand_in_sympys_order(tree: Expr) -> None:
    for part in preorder_traversal(tree):
        if isinstance(part, Add):
            assert in_sympy_order(part) == part.as_ordered_terms()


def test_python_source_reads_well() -> None:
    printed = {
        2 * s * b * h / (t * c): "2*micro_batch_size*hidden_size*seq_length/(context_parallel*tensor_parallel)",
        -s / 2: "-seq_length/2", h**2: "hidden_size*hidden_size",
        CeilDiv(s, t): "ceil_div(seq_length, tensor_parallel)",
        Iverson(Eq(r, p - 1)): "(1 if (pipeline_rank == pipeline_parallel - 1) else 0)", TERM: "stage_weight",
        Divides(2 * c, s): "(seq_length % (2*context_parallel) == 0)",
    }
    tokens = re.compile(r"\w+|\S")
    for expression, expected in printed.items():
        found = PythonPrinter().doprint(expression)
        assert sorted(tokens.findall(found)) == sorted(tokens.findall(expected))


@pytest.mark.parametrize(
    "expression",
    [Rational(1, 2), s + Rational(1, 2), Max(s / t, Rational(1, 2)), Iverson(Eq(s, t)) / 3], ids=str,
)
def test_python_refuses_a_fraction_that_would_be_a_float(expression: Expr) -> None:
    with pytest.raises(ValueError, match="float"):
        PythonPrinter().doprint(expression)


def test_python_refuses_roots() -> None:
    with pytest.raises(ValueError, match="rational function"):
        PythonPrinter().doprint(Pow(s, Rational(1, 2)))


@pytest.mark.parametrize("expression", [Float("0.5"), s * Float("0.8"), Le(s, Float("1.5") * h)], ids=str)
def test_python_refuses_floating_point(expression: Expr) -> None:
    with pytest.raises(ValueError, match="floating point"):
        PythonPrinter().doprint(expression)
