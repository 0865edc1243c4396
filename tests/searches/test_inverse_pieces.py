"""Pieces of expressions in one symbol against their exact values, and roots against looking at every integer."""

from fractions import Fraction
from math import lcm

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmath.compiler.expressions.graph import Graph, Node, exact
from shardmath.compiler.expressions.source import parse
from shardmath.compiler.inverses.enclosure import enclosed
from shardmath.compiler.inverses.laurent import NoClosedFormError, signs, value
from shardmath.compiler.inverses.legal import LegalValues

COUNTS = st.fractions(-50, 50, max_denominator=7)
NONZERO = st.builds(Fraction, st.integers(1, 50) | st.integers(-50, -1), st.integers(1, 7))


@given(st.dictionaries(st.integers(-2, 2), NONZERO, min_size=1), st.integers(1, 9), st.integers(0, 60))
def test_signs_are_those_of_every_integer(polynomial: dict[int, Fraction], low: int, length: int) -> None:
    if max(polynomial) - min(polynomial) > 2:
        with pytest.raises(NoClosedFormError, match="degree"):
            list(signs(polynomial, low, low + length))
        return
    stretches = list(signs(polynomial, low, low + length))
    assert [first for first, *_ in stretches[1:]] == [last + 1 for _, last, _ in stretches[:-1]]
    assert (stretches[0][0], stretches[-1][1]) == (low, low + length)
    for first, last, sign in stretches:
        for at in range(first, last + 1):
            exactly = sum(count * Fraction(at) ** exponent for exponent, count in polynomial.items())
            assert (exactly > 0) - (exactly < 0) == sign


def expressions() -> st.SearchStrategy[str]:
    """Formulas of x with everything that evaluators have."""
    numbers = st.integers(1, 30).map(str)

    def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        pair = st.tuples(inner, inner)
        return st.one_of(
            pair.map(lambda two: f"({two[0]} + {two[1]})"), pair.map(lambda two: f"({two[0]} - {two[1]})"),
            st.tuples(inner, numbers).map(lambda two: f"{two[0]}*{two[1]}"),
            st.tuples(inner, numbers).map(lambda two: f"{two[0]}/{two[1]}"),
            st.tuples(numbers, inner).map(lambda two: f"{two[0]}/x + {two[1]}"),
            st.tuples(inner, numbers).map(lambda two: f"ceil_div({two[0]}, {two[1]})"),
            st.tuples(inner, numbers).map(lambda two: f"{two[1]}*ceil_div({two[0]}, {two[1]})"),
            st.tuples(inner, numbers).map(lambda two: f"floor_div({two[0]}, {two[1]})"),
            st.tuples(inner, numbers).map(lambda two: f"lcm(x, {two[1]})*ceil_div({two[0]}, lcm(x, {two[1]}))"),
            pair.map(lambda two: f"max({two[0]}, {two[1]})"), pair.map(lambda two: f"min({two[0]}, {two[1]})"),
            st.tuples(inner, inner, inner, st.sampled_from(("<=", "<", "==", "!=")), st.sampled_from(("and", "or")))
            .map(lambda five: f"({five[0]} if {five[1]} {five[3]} {five[2]} {five[4]} x > 5 else {five[2]})"),
        )

    return st.recursive(st.one_of(numbers, st.just("x"), st.just("(40 - x)"), st.just("60/x")), larger, max_leaves=7)


@pytest.mark.slow
@given(expressions(), st.integers(1, 20), st.integers(0, 80))
def test_an_expression_is_between_its_bounds(text: str, low: int, length: int) -> None:
    graph = Graph()
    node = parse(text, graph, graph.name)
    try:
        pieces = enclosed(graph, node, "x", low, low + length)
    except NoClosedFormError:
        return
    assert (pieces[0].first, pieces[-1].last) == (low, low + length)
    for piece in pieces:
        for at in range(piece.first, piece.last + 1):
            try:
                (found,) = exact([node], {"x": at})
            except (ZeroDivisionError, ValueError):
                continue
            assert value(piece.low, at) <= found <= value(piece.high, at), (piece, at)


def test_what_has_no_rounding_is_exact() -> None:
    graph = Graph()
    node = parse("max(3*x + 100, x*x/2, 300) + (7 if x > 12 else 0) + min(60/x, 6)", graph, graph.name)
    pieces = enclosed(graph, node, "x", 1, 1000)
    assert all(piece.is_exact for piece in pieces)
    assert [(piece.last, dict(piece.low)) for piece in pieces] == [
        (10, {0: 306}), (12, {0: 300, -1: 60}), (24, {0: 307, -1: 60}), (1000, {2: Fraction(1, 2), 0: 7, -1: 60})]


@pytest.mark.parametrize("text", [
    "3*(x*ceil_div(1000, x) + 5) - 2*x*ceil_div(1000, x) - x*ceil_div(1000, x)",
    "max(x*ceil_div(1000, x) - x*ceil_div(1000, x), 2)",
])
def test_roundings_that_cancel_leave_no_bounds_apart(text: str) -> None:
    graph = Graph()
    (piece,) = enclosed(graph, parse(text, graph, graph.name), "x", 1, 10**9)
    assert piece.is_exact
    assert piece.low.keys() <= {0}


@pytest.mark.parametrize(("text", "why"), [
    ("1/(x + 1)", "by a sum"), ("x*x*x - 5", "degree 3"), ("y + x", "no value"),
])
def test_what_has_no_closed_form_says_why(text: str, why: str) -> None:
    graph = Graph()
    node = graph.extreme("max", [parse(text, graph, graph.name), graph.number(3)])
    with pytest.raises(NoClosedFormError, match=why):
        enclosed(graph, node, "x", 1, 9)


def conditions(graph: Graph) -> list[tuple[Node, ...]]:
    texts = (("x % 6 == 0", "x*3 % 4 == 0"), ("120 % x == 0", "x % 2 == 0"), ("90 % (3*x) == 0",), ("x <= 17",),
             ("x*5/3 % 2 == 0", "x <= 40 and x % 9 == 0"), ("x % 4 == 0 or x % 7 == 0",), ("x % 2 == 1", "x % 3 == 1"))
    return [tuple(parse(text, graph, graph.name) for text in group) for group in texts]


@pytest.mark.parametrize("number", range(7))
@pytest.mark.parametrize("unit", [1, 4])
def test_the_next_legal_value_is_that_of_looking_at_each(number: int, unit: int) -> None:
    graph = Graph()
    needed = conditions(graph)[number]
    legal = LegalValues(needed, "x", unit)
    meets = [at for at in range(1, 200) if at % unit == 0 and all(exact(needed, {"x": at}))]
    assert legal.step % unit == 0
    assert all(at % legal.step == 0 for at in meets)
    for start in range(1, 60):
        assert legal.next(start, 199) == next((at for at in meets if at >= start), None)
        assert legal.next(start, 1) == next((at for at in meets[::-1] if at <= start), None)
    assert lcm(unit, legal.step) == legal.step


@pytest.mark.parametrize("text", ["60/(x + 1)", "lcm(x, 6)*ceil_div(100, lcm(x, 6))", "x*x*x*x - 9/(7 - x)"])
@pytest.mark.parametrize("at", [1, 4, 9])
def test_on_a_single_integer_everything_is_a_number(text: str, at: int) -> None:
    graph = Graph()
    node = parse(text, graph, graph.name)
    (piece,) = enclosed(graph, node, "x", at, at)
    assert piece.is_exact
    assert value(piece.low, at) == exact([node], {"x": at})[0]
