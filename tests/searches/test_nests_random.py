"""Random problems: the generated nest, run by Python, against exact fractions, one configuration after the other."""

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, product
from typing import Any, cast

import numpy as np
import pytest
from brute_force import Row, best, front, histogram
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from interpreted import interpreted

from shardmath.compiler.expressions import ops
from shardmath.compiler.expressions.graph import Graph, Node, exact
from shardmath.compiler.expressions.intervals import Limits
from shardmath.compiler.nesting import nest_source
from shardmath.compiler.nests import order
from shardmath.compiler.nests import problem as posed
from shardmath.compiler.nests.problem import ESTIMATE
from shardmath.search.nests import turns as turns_of_loops
from shardmath.search.nests.answers import Answer, BestAnswer, FrontAnswer, HistogramAnswer
from shardmath.search.nests.columns import ColumnNest
from shardmath.search.nests.compiled import CompiledNest
from shardmath.search.nests.nest import Nest
from shardmath.search.nests.running import Run
from shardmath.search.spaces import Axis, Best, Front, Histogram, Part, Question

pytestmark = pytest.mark.slow

THOROUGH = os.environ.get("ORACLES") == "full"
AMONG = {"fits": 1, "uncertain": 2, "legal": None}
FIXED = ("u", "w", "limit")


@dataclass(frozen=True)
class Source:
    """A random problem, and the source of its nest in several forms."""

    problem: posed.Problem
    limits: Mapping[str, Limits] | None = None

    def __call__(self, **options: bool) -> str:
        return nest_source("random", "", self.problem, {}, limits=self.limits, **options)


#: Makes a nest of its problem or source.
Made = Callable[[Part, Sequence[Question], Source], Nest]


class Drawn:
    """A random problem: its graph, axes with values, and what is asked."""

    def __init__(self, draw: Any) -> None:
        self.draw, self.graph = draw, Graph()
        count = draw(st.integers(1, 5))
        self.axes = []
        for number in range(count):
            size = draw(st.integers(1, 4))
            symbols = [f"a{number}"] + ([f"b{number}"] if draw(st.booleans()) else [])
            values = {
                symbol: tuple(draw(st.lists(st.integers(1, 12), min_size=size, max_size=size))) for symbol in symbols
            }
            self.axes.append(Axis(f"axis{number}", tuple(range(size)), values))
        self.fixed = {name: draw(st.integers(0, 9)) for name in FIXED[:2]} | {"limit": draw(st.integers(0, 400))}
        self.names = [symbol for axis in self.axes for symbol in axis.values] + list(FIXED[:2])
        self.quotients: list[Node] = []
        # Conditions are made of whole numbers alone, whichever of them are broken.
        others = [(f"rule{number}", self.condition(2)) for number in range(draw(st.integers(0, 3)))]
        guards = [self._guarded() for _ in range(draw(st.integers(0, 2)))]
        self.quotients += [quotient for quotient, _ in guards]
        named = [(f"guard{number}", condition) for number, (_, condition) in enumerate(guards)]
        self.conditions = draw(st.permutations(named + others))
        self.peak = self.quantity(3)

    def _guarded(self) -> tuple[Node, Node]:
        """A quotient, and the condition that it is whole."""
        graph = self.graph
        over = graph.mul([self.quantity(1), graph.number(self.draw(st.sampled_from((1, 4, 12))))])
        under = graph.add([self.quantity(0), graph.number(1)])
        return graph.binary(ops.DIV, over, under), graph.binary(ops.DIVIDES, under, over)

    def quantity(self, depth: int) -> Node:
        """A number that is whole wherever all conditions hold, and never negative."""
        graph, draw = self.graph, self.draw
        kind = draw(st.sampled_from("nnnc" + "q" * bool(self.quotients))) if depth == 0 else draw(
            st.sampled_from("++**/\\mMsl"))
        if kind == "n":
            return graph.name(draw(st.sampled_from(self.names)))
        if kind == "c":
            return graph.number(draw(st.integers(0, 5)))
        if kind == "q":
            return draw(st.sampled_from(self.quotients))
        parts = [self.quantity(depth - 1) for _ in range(draw(st.integers(2, 3)) if kind in "+mM" else 2)]
        if kind == "+":
            return graph.add(parts)
        if kind == "*":
            return graph.mul(parts)
        if kind in "mM":
            return graph.extreme(ops.MIN if kind == "m" else ops.MAX, parts)
        if kind == "s":
            return graph.select(self.condition(depth - 1), *parts)
        if kind == "l":
            return graph.binary(ops.LCM, graph.add([graph.name(self.names[0]), graph.number(1)]), graph.number(4))
        divisor = graph.add([parts[1], graph.number(1)])
        return graph.binary(ops.CEIL_DIV if kind == "/" else ops.FLOOR_DIV, parts[0], divisor)

    def condition(self, depth: int) -> Node:
        """A comparison, or several of them."""
        graph, draw = self.graph, self.draw
        if depth and draw(st.booleans()):
            return graph.logic(draw(st.sampled_from(("and", "or"))), [self.condition(depth - 1) for _ in range(2)])
        if draw(st.booleans()):
            return graph.negation(graph.binary(ops.LE, self.quantity(0), self.quantity(0)))
        return graph.binary(draw(st.sampled_from((ops.LE, ops.LT))), self.quantity(1), self.quantity(1))


def question(drawn: Drawn, number: int) -> tuple[Question, posed.Question]:
    """A random question, as a person asks it and as a nest knows it."""
    draw, graph = drawn.draw, drawn.graph
    among = draw(st.sampled_from(tuple(AMONG)))
    estimate = graph.name(ESTIMATE)
    kinds = {"peak": estimate, "key": drawn.quantity(2), "minus": graph.mul([graph.number(-1), drawn.quantity(0)]),
             "more": graph.add([graph.mul([graph.number(2), estimate]), drawn.quantity(1)])}
    texts = draw(st.lists(st.sampled_from(tuple(kinds)), min_size=1, max_size=3, unique=True))
    nodes = tuple(kinds[text] for text in texts)
    kind = draw(st.sampled_from("bfh"))
    name = f"question{number}"
    if kind == "b":
        per = tuple(draw(st.lists(st.sampled_from([axis.name for axis in drawn.axes]), max_size=2, unique=True)))
        count = draw(st.integers(1, 4))
        return Best(name, tuple(texts), count, per, among), posed.Best(name, nodes, per, AMONG[among])
    if kind == "f" and len(texts) > 1:
        return Front(name, tuple(texts), among), posed.Front(name, nodes, AMONG[among])
    edges = tuple(sorted(draw(st.sets(st.integers(-20, 300), min_size=1, max_size=5))))
    return Histogram(name, texts[0], edges, among), posed.Histogram(name, nodes[:1], AMONG[among])


def rows_of(drawn: Drawn, problem: posed.Problem, questions: Sequence[Question], names: Sequence[str]) -> list[Row]:
    """Every configuration, evaluated exactly; ``names`` are the conditions in the order in which they are tried."""
    asked = dict(zip((item.name for item in questions), problem.questions, strict=True))
    tried = [dict(drawn.conditions)[name] for name in names]
    found = []
    for index, places in enumerate(product(*(range(axis.size) for axis in drawn.axes))):
        values = {name: Fraction(value) for name, value in drawn.fixed.items()}
        for axis, place in zip(drawn.axes, places, strict=True):
            values |= {symbol: Fraction(candidates[place]) for symbol, candidates in axis.values.items()}
        labels = {axis.name: place for axis, place in zip(drawn.axes, places, strict=True)}
        broken = next((number for number, node in enumerate(tried) if not exact([node], values)[0]), None)
        if broken is not None:
            found.append(Row(0, index, labels, values, broken))
            continue
        peak = cast(Fraction, exact([drawn.peak], values)[0])
        known = values | {ESTIMATE: peak}
        met = [bool(value) for value in exact(problem.verdicts, known)]
        keys = {
            name: tuple(Fraction(value) for value in exact(item.keys, known)) for name, item in asked.items()
        }
        found.append(Row(0, index, labels, values, None, met.index(True) if any(met) else len(met), peak, keys))
    return found


def compare(found: Answer, rows: Sequence[Row], nest: Nest) -> None:
    """The answer of a nest must be that of the rows."""
    counted = Counter(row.broken for row in rows)
    assert found.broken.tolist() == [counted[number] for number in range(len(nest.conditions))]
    verdicts = Counter(row.verdict for row in rows)
    assert found.verdicts.tolist() == [verdicts[number] for number in range(3)]
    for item, answer in zip(nest.questions, found.questions, strict=True):
        if isinstance(answer, HistogramAnswer):
            assert answer.counts.tolist() == histogram(rows, cast(Histogram, item))
        elif isinstance(answer, FrontAnswer):
            size = int(answer.size[0])
            expected = {row.index: row.keys[item.name] for row in front(rows, cast(Front, item)) if row.keys}
            pairs = zip(answer.numbers[:size].tolist(), answer.keys[:size].tolist(), strict=True)
            assert {number: tuple(keys) for number, keys in pairs} == expected
        else:
            compare_best(answer, cast(Best, item), rows, nest)


def compare_best(answer: BestAnswer, asked: Best, rows: Sequence[Row], nest: Nest) -> None:
    """The best of every group, in order, with their keys."""
    labels = {axis.name: axis.labels for axis in nest.part.axes}
    expected = best(rows, asked)
    for group, values in enumerate(product(*(labels[name] for name in asked.per))):
        members = expected.get(values, [])
        assert answer.numbers[group, : len(members)].tolist() == [row.index for row in members]
        assert [tuple(keys) for keys in answer.keys[group, : len(members)].tolist()] == [
            row.keys[asked.name] for row in members if row.keys is not None
        ]
        assert np.isinf(answer.keys[group, len(members):]).all()


def compare_random(data: st.DataObject, made: Made) -> None:
    """A random problem, in one stretch and in several, whose answers must be those of exact counting."""
    drawn = Drawn(data.draw)
    graph = drawn.graph
    pairs = [question(drawn, number) for number in range(data.draw(st.integers(0, 3)))]
    estimate, limit = graph.name(ESTIMATE), graph.name("limit")
    verdicts = tuple(graph.binary(ops.LE, graph.mul([graph.number(count), estimate]), limit) for count in (2, 1))
    axes = tuple(posed.NestAxis(axis.name, tuple(axis.values), axis.size) for axis in drawn.axes)
    conditions = tuple((name, node) for name, node in drawn.conditions if node.op != ops.TRUTH or not node.value)
    problem = posed.Problem(graph, axes, conditions, drawn.peak, verdicts, tuple(item for _, item in pairs))
    limits = {name: (0 if name in FIXED else 1, None) for name in drawn.names} if data.draw(st.booleans()) else None
    size = int(np.prod([axis.size for axis in drawn.axes]))
    part = Part(cast(Any, None), 0, {}, tuple(drawn.axes), drawn.fixed, {}, (), size)
    nest = made(part, [item for item, _ in pairs], Source(problem, limits))
    rows = rows_of(drawn, problem, nest.questions, _tried(nest, conditions))
    reordered = [Row(row.part, row.index, row.labels, row.values, _place(row.broken, nest, conditions), row.verdict,
                     row.peak, row.keys) for row in rows]
    compare(nest.swept(0, nest.shards, nest.empty()), reordered, nest)
    cuts = sorted(data.draw(st.sets(st.integers(0, nest.shards), max_size=3)) | {0, nest.shards})
    state = Run(nest.empty())
    for start, stop in data.draw(st.permutations(list(pairwise(cuts)))):
        known = state.answer if data.draw(st.booleans()) else nest.empty()
        state.add(start, stop, nest.swept(start, stop, known))
    compare(state.answer, reordered, nest)


@pytest.mark.parametrize("literal", [True, False], ids=["for these sizes", "for all sizes"])
@settings(max_examples=1500 if THOROUGH else 40, phases=(Phase.reuse, Phase.generate))
@given(data=st.data())
def test_a_nest_answers_as_exact_counting(literal: bool, data: st.DataObject) -> None:
    compare_random(data, lambda part, asked, source: _interpreted(part, asked, source(literal=literal)))


@settings(max_examples=1500 if THOROUGH else 60, phases=(Phase.reuse, Phase.generate))
@given(data=st.data())
def test_a_nest_with_a_block_answers_as_exact_counting(data: st.DataObject) -> None:
    """Orders that only large spaces would have: small tables, few shards, and any block that is possible."""
    fewest, size = data.draw(st.sampled_from((1, 4, 32))), data.draw(st.sampled_from((-1, 1)))

    def operations(tried: order.Order, *_: object) -> int:
        return 0 if not tried.block else -1000 * (1 + tried.between) - size * tried.turns

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order, "_SHARDS", 1)
        patch.setattr(order, "MOST_ENTRIES", fewest)
        patch.setattr(order, "_operations", operations)
        compare_random(data, lambda part, asked, source: _interpreted(part, asked, source(literal=True)))


@settings(max_examples=1500 if THOROUGH else 80, phases=(Phase.reuse, Phase.generate))
@given(turns=st.sampled_from((3, 8192)), data=st.data())
def test_a_nest_on_columns_answers_as_exact_counting(turns: int, data: st.DataObject) -> None:
    """With few turns at a time as well, so that every loop is gone through in several pieces."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(turns_of_loops, "_TURNS", turns)
        compare_random(data, lambda part, asked, source: ColumnNest.of_problem(part, asked, source.problem))


def _interpreted(part: Part, asked: Sequence[Question], source: str) -> Nest:
    return CompiledNest(part, asked, interpreted(source), getattr)


def _tried(nest: Nest, conditions: Sequence[tuple[str, Node]]) -> list[str]:
    """Conditions in the order in which the nest tries them."""
    return [conditions[number][0] for number in nest.tried]


def _place(broken: int | None, nest: Nest, conditions: Sequence[tuple[str, Node]]) -> int | None:
    """From the place among the tried conditions to the place among all of them."""
    return None if broken is None else int(nest.tried[broken])
