"""The engine behind ``prove`` against brute force: what it proves holds for all small integers."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.extent import FULL

from shardmath.compiler.expressions import ops
from shardmath.compiler.expressions.graph import Graph, exact
from shardmath.compiler.expressions.source import parse
from shardmath.compiler.proofs.algebra import Algebra
from shardmath.compiler.proofs.goals import Effort, proved
from shardmath.compiler.proofs.uses import case_of

NAMES: Mapping[str, tuple[int, int | None]] = {"x": (1, None), "y": (1, None), "z": (0, None), "on": (0, 1)}
SMALL = {"x": range(1, 7), "y": range(1, 7), "z": range(6), "on": range(2)}


def holds(smaller: str, larger: str, *conditions: str, strict: bool = False) -> bool:
    graph = Graph()
    read = [parse(text, graph, graph.name) for text in (smaller, larger, *conditions)]
    algebra = Algebra(graph, ["on"])
    return proved(case_of(algebra, NAMES, read[:2], read[2:]), algebra, strict=strict)


def holds_on_small(smaller: str, larger: str, *conditions: str, strict: bool = False) -> bool:
    graph = Graph()
    low, high, *kept = (parse(text, graph, graph.name) for text in (smaller, larger, *conditions))
    for point in product(*SMALL.values()):
        values = dict(zip(SMALL, point, strict=True))
        if all(exact(kept, values)):
            left, right = exact([low, high], values)
            if not (left < right if strict else left <= right):
                return False
    return True


@pytest.mark.parametrize(("smaller", "larger", "conditions"), [
    ("x + y", "x * y + 1", ()),
    ("2 * x", "x * y", ("y >= 2",)),
    ("max(x, y)", "x + y", ()),
    ("x", "max(x, y)", ()),
    ("min(x, y)", "x", ()),
    ("max(x * z, y * z)", "max(x * z + 1, y * z + 1)", ()),
    ("ceil_div(x, y)", "ceil_div(x + z, y)", ()),
    ("ceil_div(x, y) * y", "x + y - 1", ()),
    ("x", "ceil_div(x, y) * y", ()),
    ("floor_div(x, y) * y", "x", ()),
    ("lcm(x, 4)", "4 * x", ()),
    ("x / y", "x", ()),
    ("z * on", "z", ()),
    ("x * x if x > 3 else x", "x * x", ()),
    ("y", "x", ("divides(y, x)",)),
    ("x / y * 2 + 1", "3 * (x / y)", ("divides(y, x)",)),
    ("x + 1", "y", ("x < y",)),
    ("4", "x", ("divides(y, x)", "y == 4")),
    ("y", "x * z", ("divides(y, x * z)", "z >= 1")),
    ("x / (1 + on * (y - 1))", "x", ()),
])
def test_what_is_true_is_proved(smaller: str, larger: str, conditions: tuple[str, ...]) -> None:
    assert holds_on_small(smaller, larger, *conditions)
    assert holds(smaller, larger, *conditions)


@pytest.mark.parametrize(("smaller", "larger", "conditions"), [
    ("x * y", "x + y", ()),
    ("x", "y", ()),
    ("max(x, y)", "x", ()),
    ("x", "min(x, y)", ()),
    ("ceil_div(x, y) * y", "x", ()),
    ("lcm(x, 4)", "x + 4", ()),
    ("x", "y", ("divides(y, x)",)),
    ("1", "z", ()),
    ("x / y", "x - 1", ()),
])
def test_what_is_false_is_not_proved(smaller: str, larger: str, conditions: tuple[str, ...]) -> None:
    assert not holds_on_small(smaller, larger, *conditions)
    assert not holds(smaller, larger, *conditions)


def test_a_strict_claim_is_not_proved_by_a_weak_one() -> None:
    assert holds("x", "x + z")
    assert not holds("x", "x + z", strict=True)
    assert holds("x", "x + z + 1", strict=True)


def test_what_contradicts_itself_is_proved() -> None:
    assert holds("2", "1", "x < y", "y < x")


def test_a_bounded_effort_gives_up() -> None:
    graph = Graph()
    low, high = (parse(text, graph, graph.name) for text in ("max(x, y) - z", "x + y"))
    algebra = Algebra(graph, ["on"])
    case = case_of(algebra, NAMES, (low, high), ())
    assert proved(case, algebra)
    assert not proved(case, algebra, effort=Effort(left=0))


FORMULAS = st.recursive(
    st.sampled_from(["x", "y", "z", "on", "1", "2", "3"]),
    lambda inner: st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-", "*"]), inner),
        st.builds("({} / {})".format, inner, st.sampled_from(["x", "y", "2", "(x + y)"])),
        st.builds("{}({}, {})".format, st.sampled_from(["max", "min"]), inner, inner),
        st.builds("{}({}, {})".format, st.sampled_from(["ceil_div", "floor_div"]), inner,
                  st.sampled_from(["x", "y", "3"])),
        st.builds("({} if {} {} {} else {})".format, inner, st.sampled_from("xyz"), st.sampled_from(["<=", "<", "=="]),
                  st.sampled_from(["1", "2", "y"]), inner),
        st.builds("lcm({}, {})".format, st.sampled_from("xy"), st.sampled_from(["2", "3", "y"])),
    ),
    max_leaves=8,
)
CONDITIONS = st.lists(st.sampled_from([
    "divides(y, x)", "divides(2, x)", "divides(y, x * z) and z >= 1", "x <= y", "x < z", "y >= 2", "on == 1", "z != 0",
    "x == y or z == 0", "divides(y, x) or divides(x, y)", "x == 2 * y", "divides(x * y, z) and z >= 1",
]), max_size=3)


@pytest.mark.slow
@settings(max_examples=600 if FULL else 150, deadline=None)
@given(FORMULAS, FORMULAS, CONDITIONS, st.booleans())
def test_nothing_false_is_proved(smaller: str, larger: str, conditions: list[str], strict: bool) -> None:
    if holds(smaller, larger, *conditions, strict=strict):
        assert holds_on_small(smaller, larger, *conditions, strict=strict)


@settings(max_examples=60 if FULL else 25, deadline=None)
@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(1, 3), st.integers(1, 3)), min_size=1, max_size=5))
def test_signs_of_polynomials(parts: list[tuple[int, int, int]]) -> None:
    text = " + ".join(f"({count}) * x**{first} * y**{other}" for count, first, other in parts)
    if holds("0", text):
        assert all(sum(count * x**first * y**other for count, first, other in parts) >= 0
                   for x in range(1, 12) for y in range(1, 12))


def test_switches_are_squared_away() -> None:
    graph = Graph()
    algebra = Algebra(graph, ["on"])
    node = parse("on * on - on", graph, graph.name)
    assert algebra.of(node) == {}
    assert node.op == ops.ADD


