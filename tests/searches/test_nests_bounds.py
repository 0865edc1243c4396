"""Bounds of formulas hold for every value in between, and formulas that would fill memory are refused."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmath.compiler.expressions.bounds import bounds, degree
from shardmath.compiler.expressions.graph import Graph, Node, exact
from shardmath.compiler.expressions.source import FormulaError, parse

NAMES = "abc"
_LEAVES = st.sampled_from([*NAMES, "0", "1", "2", "7"])
_CONDITION = "{0} <= {1}"


def _larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    patterns = ("({0} + {1})", "({0} - {1})", "({0} * {1})", "({0} / {1})", "ceil_div({0}, {1})", "({0} // {1})",
                "max({0}, {1})", "min({0}, {1})", f"({{0}} if {_CONDITION} else {{1}})", "(-{0})", "({0} ** 2)")
    return st.builds(lambda pattern, left, right: pattern.format(left, right), st.sampled_from(patterns), inner, inner)


FORMULAS = st.recursive(_LEAVES, _larger, max_leaves=8)
ENDS = st.tuples(st.integers(-6, 12), st.integers(0, 5)).map(lambda pair: (pair[0], pair[0] + pair[1]))


def _read(text: str) -> Node:
    graph = Graph()
    return parse(text, graph, graph.name)


@pytest.mark.slow
@given(FORMULAS, st.fixed_dictionaries(dict.fromkeys(NAMES, ENDS)), st.data())
def test_values_lie_within_bounds(text: str, ends: dict[str, tuple[int, int]], data: st.DataObject) -> None:
    node = _read(text)
    within = bounds([node], ends).get(node)
    for _ in range(5):
        values = {name: data.draw(st.integers(*pair)) for name, pair in ends.items()}
        if within is not None:
            assert within[0] <= Fraction(exact([node], values)[0]) <= within[1]


@given(st.sampled_from(("a + b", "a * b", "a - b", "a / b", "max(a, b)", "min(a, b)", "ceil_div(a, b)", "a // b")),
       st.fixed_dictionaries({"a": ENDS, "b": st.tuples(st.integers(1, 5), st.integers(0, 5)).map(
           lambda pair: (pair[0], sum(pair)))}))
def test_bounds_of_one_operation_are_met(text: str, ends: dict[str, tuple[int, int]]) -> None:
    node = _read(text)
    corners = [Fraction(exact([node], {"a": a, "b": b})[0]) for a in ends["a"] for b in ends["b"]]
    assert bounds([node], ends)[node] == (min(corners), max(corners))


def test_least_common_multiples() -> None:
    node = _read("lcm(a, 8)")
    low, high = bounds([node], {"a": (3, 12)})[node]
    values = [Fraction(exact([node], {"a": a})[0]) for a in range(3, 13)]
    assert low <= min(values) <= max(values) <= high
    assert node not in bounds([node], {"a": (0, 12)})


def test_what_depends_on_an_unknown_name_has_no_bounds() -> None:
    graph = Graph()
    known, unknown = (parse(text, graph, graph.name) for text in ("a * 2", "a * x"))
    found = bounds([known, unknown], {"a": (1, 3)})
    assert found[known] == (2, 6)
    assert unknown not in found


@pytest.mark.parametrize(("text", "highest"), [
    ("3", 0), ("a", 1), ("a + b", 1), ("a * b", 2), ("a**3 + b", 3), ("(a**2 + 1)**3", 6), ("a / b**2", 3), ("x", 5),
    ("max(x, a) * a", 6), ("a if x < 2 else b", 5),
])
def test_degrees(text: str, highest: int) -> None:
    assert degree(_read(text), {"x": 5}) == highest


@pytest.mark.parametrize("text", [
    "(" * 400 + "a" + "**8+1)" * 300, "(" * 15 + "9**8" + ")**8" * 15, "((2**(4*16))**(4*16))**(4*16)", "2**64**64",
    "2**65", "a**9", "2**-1", "2**a", "2**(1/2)", "(a**8)**9",
])
def test_powers_are_bounded(text: str) -> None:
    with pytest.raises(FormulaError):
        _read(text)


@pytest.mark.parametrize(("text", "value"), [("2**40", 2**40), ("4 * 2**20", 2**22), ("(3**8)**8", 3**64), ("3**2", 9)])
def test_powers_of_numbers_are_numbers(text: str, value: int) -> None:
    assert exact([_read(text)], {}) == [value]
