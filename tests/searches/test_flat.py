"""The evaluator of columns: its plan in fractions, its source run by Python, its quotients to the last bit."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from interpreted import interpreted
from numba import njit
from oracles.extent import FULL
from searches.test_nests_random import Drawn

from shardmath.compiler.expressions import ops
from shardmath.compiler.expressions.graph import Graph, Node, exact, ordered
from shardmath.compiler.expressions.source import parse
from shardmath.compiler.flat.choices import with_choices
from shardmath.compiler.flat.factors import factored
from shardmath.compiler.flat.plan import Flat, Plan, planned
from shardmath.compiler.flat.quotients import BELOW
from shardmath.compiler.printers.nodes import PYTHON
from shardmath.files.rendering import rendered
from shardmath.generated import megatron_kernel
from shardmath.symbolic.compiled import derive_inverse
from shardmath.symbolic.documents.kernel import lines
from shardmath.symbolic.implementations import IMPLEMENTATIONS
from shardmath.symbolic.parameters import PARAMETERS, Kind
from shardmath.symbolic.write import GENERATED

SWITCHES = ("u", "w")
MEMORY = "limit"
#: What a reciprocal is multiplied with to be rounded up with.
TOO_SMALL = float(BELOW)
#: Roundings that a reciprocal may have, as many as its docstring says.
ROUNDINGS = 8


def problem(draw: Any) -> tuple[Flat, Plan, list[str], list[dict[str, int]]]:
    """A random evaluator, its plan, its columns and rows."""
    drawn = Drawn(draw)
    graph = drawn.graph
    columns = [symbol for axis in drawn.axes for symbol in axis.values]
    ends = graph.name("u"), graph.name("w")
    switched = graph.add([drawn.peak, graph.mul([ends[0], drawn.quantity(1)]), graph.mul(
        [graph.number(3), graph.add([graph.number(1), graph.mul([graph.number(-1), ends[1]])]), drawn.quantity(1)])])
    rules = [condition for _, condition in drawn.conditions]
    rules.insert(0, graph.binary(ops.EQ, graph.name(columns[0]), graph.number(draw(st.integers(1, 12))))
                 if draw(st.booleans()) else graph.truth(True))
    flat = Flat(graph, tuple(rules), (graph.binary(ops.LE, drawn.peak, graph.name(MEMORY)),), (switched, drawn.peak))
    rows = [
        {**{name: draw(st.integers(1, 12)) for name in columns}, **{name: draw(st.integers(0, 1)) for name in SWITCHES},
         MEMORY: drawn.fixed[MEMORY]} for _ in range(4)
    ]
    varying = draw(st.sets(st.sampled_from([*columns, *SWITCHES]), min_size=1))
    chosen = [name for name in (*columns, *SWITCHES) if name in varying]
    return flat, planned(flat, chosen, SWITCHES, {}), chosen, rows


def values(flat: Flat, row: dict[str, int]) -> tuple[int, list[Fraction | bool]]:
    """The number of the first broken rule, or 0 with verdicts and outputs."""
    for number, rule in enumerate(flat.rules, 1):
        if exact([rule], row) != [True]:
            return number, []
    return 0, exact([*flat.verdicts, *flat.outputs], row)


@pytest.mark.slow
@settings(max_examples=400 if FULL else 80)
@given(st.data())
def test_a_plan_computes_what_was_written(data: st.DataObject) -> None:
    flat, plan, _, rows = problem(data.draw)
    for row in rows:
        assert values(plan.flat, row) == values(flat, row)


@pytest.mark.slow
@settings(max_examples=150 if FULL else 40)
@given(st.data())
def test_the_source_of_a_plan_computes_it(data: st.DataObject) -> None:
    flat, plan, columns, rows = problem(data.draw)
    scalars = [name for name in rows[0] if name not in columns]
    rows = [row | {name: rows[0][name] for name in scalars} for row in rows]
    source = rendered("kernel.py", {
        "title": "Random", "scalars": scalars, "columns": columns, "outputs": ["one", "other"], **lines(plan, PYTHON),
    })
    module = interpreted(source)
    rule, verdict, out = np.zeros(4, np.int8), np.zeros(4, np.int8), np.zeros((2, 4))
    given_columns = (np.array([row[name] for row in rows], np.float64) for name in columns)
    with np.errstate(all="ignore"):
        module.evaluate(0, 4, *(float(rows[0][name]) for name in scalars), *given_columns, rule, verdict, out)
    for place, row in enumerate(rows):
        broken, found = values(flat, row)
        assert rule[place] == broken
        if broken:
            assert (verdict[place], *out[:, place]) == (-1, 0, 0)
        else:
            assert [verdict[place] == 0, *map(Fraction, out[:, place])] == found


def test_a_switch_leaves_the_shorter_sum() -> None:
    graph = Graph()

    def rewritten(text: str) -> str:
        node = parse(text, graph, graph.name)
        return repr(with_choices(graph, [node], {"on"})[node])

    def same(text: str) -> str:
        return repr(parse(text, graph, graph.name))

    assert rewritten("1 + on*(t - 1)") == same("1 if on == 0 else t")
    assert rewritten("n - on*n") == same("n if on == 0 else 0")
    assert rewritten("3*on*(1 if a == b else 0)*n") == repr(graph.select(
        graph.logic("and", [graph.negation(parse("on == 0", graph, graph.name)), parse("a == b", graph, graph.name)]),
        parse("3*n", graph, graph.name), graph.number(0)))
    assert rewritten("(x + on*(n - x))/(1 + on*(n - 1))") == same("x if on == 0 else 1")


@pytest.mark.slow
@given(st.data())
def test_products_are_multiplied_once(data: st.DataObject) -> None:
    graph, names = Graph(), "stuvxy"
    draw = data.draw
    products = [graph.mul([graph.name(name) for name in draw(st.lists(st.sampled_from(names), min_size=1, max_size=4))])
                for _ in range(draw(st.integers(1, 6)))]
    total = graph.add(graph.mul([graph.number(draw(st.integers(1, 3))), one]) for one in products)
    new = factored(graph, [total], lambda node: node.op != ops.NUMBER)[total]
    row = {name: draw(st.integers(0, 50)) for name in names}
    assert exact([new], row) == exact([total], row)
    assert _multiplications(new) <= _multiplications(total)


def _multiplications(root: Node) -> int:
    return sum(len(node.args) - 1 for node in ordered([root]) if node.op == ops.MUL)


@pytest.mark.slow
@settings(max_examples=200 if FULL else 60)
@given(st.data())
def test_nothing_multiplies_what_a_quotient_was_rounded_to(data: st.DataObject) -> None:
    """Where a sum of multiples of quotients is whole, it is so in floats, whole or not as each of them may be."""
    draw, graph = data.draw, Graph()
    few, by = st.integers(1, 12), draw(st.sampled_from(("n", "2 + n", "n*u")))
    text = f"{draw(few)}*({by})*(x - y/z)"
    text += draw(st.sampled_from(("", f" + {draw(few)}*{by}*(y/z)", f" - {draw(few)}*(x - {draw(few)}*y/z)")))
    total = parse(text, graph, graph.name)
    flat = Flat(graph, (graph.truth(True),), (graph.binary(ops.LE, total, graph.name(MEMORY)),), (total,))
    columns = draw(st.sampled_from((["x", "y", "z"], ["z"], ["n", "y"])))
    plan, names = planned(flat, columns, SWITCHES, {}), ["n", "x", "y", "z", "u", MEMORY]
    scalars = [name for name in names if name not in columns]
    module = interpreted(rendered("kernel.py", {
        "title": "Random", "scalars": scalars, "columns": columns, "outputs": ["total"], **lines(plan, PYTHON),
    }))
    row = {name: draw(st.integers(0, 1) if name == "u" else st.integers(1, 1000)) for name in names}
    out = np.zeros((1, 1))
    module.evaluate(0, 1, *(float(row[name]) for name in scalars), *(np.array([float(row[name])]) for name in columns),
                    np.zeros(1, np.int8), np.zeros(1, np.int8), out)
    (wanted,) = exact([total], row)
    assert int(out[0, 0]) == int(wanted), text
    if Fraction(wanted).denominator == 1:
        assert out[0, 0] == wanted


def test_generated_evaluators_divide_once_by_each_divisor() -> None:
    sizes = [parameter.name for parameter in PARAMETERS if parameter.kind is Kind.LAYOUT]
    for implementation in IMPLEMENTATIONS.values():
        kernel, plain = ((GENERATED / f"{implementation.name}{part}.py").read_text(encoding="utf-8")
                         for part in ("_kernel", ""))
        inverse = derive_inverse(implementation, plain, "micro_batch_size", ("global_batch_size",), sizes)
        for text, most in ((kernel, 6), (inverse, 7)):  # an inverse divides by what is in flight, too
            divisions = re.findall(r"/\S+", text.partition("    for row in ")[2])
            assert len(divisions) == len(set(divisions)) <= most, implementation.name


@njit(error_model="numpy")
def _all_of(over, under, reciprocal, out):  # type: ignore[no-untyped-def]
    for place in range(len(over)):
        found = megatron_kernel.quotient(over[place], under[place], reciprocal[place])
        near = np.rint(over[place] * reciprocal[place])
        out[0, place], out[1, place], out[2, place] = found, np.ceil(found), np.floor(found)
        out[3, place] = megatron_kernel.whole(found)
        out[4, place] = near * under[place] == over[place]
        out[5, place] = megatron_kernel.rounded_up(over[place], TOO_SMALL * reciprocal[place])


def check(over: np.ndarray[Any, Any], under: np.ndarray[Any, Any], off: np.ndarray[Any, Any]) -> None:
    """Divide integers with reciprocals that are off by so many roundings; all must be exact."""
    reciprocal = 1.0 / under
    reciprocal *= 1 + off * 2.0**-52  # half a last place, or a whole one
    out = np.empty((6, len(over)))
    _all_of(over.astype(np.float64), under.astype(np.float64), reciprocal, out)
    floor, rest = np.divmod(over, under)
    whole = rest == 0
    assert np.array_equal(out[0][whole], floor[whole].astype(np.float64))
    assert np.array_equal(out[1], (floor + ~whole).astype(np.float64))
    assert np.array_equal(out[2], floor.astype(np.float64))
    assert np.array_equal(out[3] == 1, whole)
    small = floor < 2**48
    assert np.array_equal(out[4][small] == 1, whole[small])
    small = over < 2**48
    assert np.array_equal(out[5][small], (floor + ~whole)[small].astype(np.float64))


@pytest.mark.slow
def test_small_quotients_are_exact() -> None:
    over = np.arange(0, 4000)
    for under in range(1, 600):
        for off in (0, -4, 4):
            check(over, np.full_like(over, under), np.full(len(over), off))


@pytest.mark.slow
@pytest.mark.parametrize("bits", [8, 20, 32, 47])
def test_large_quotients_are_exact(bits: int) -> None:
    generator = np.random.default_rng(bits)
    count = 200_000
    under = generator.integers(1, 2**bits, count)
    off = generator.integers(-ROUNDINGS // 2, ROUNDINGS // 2 + 1, count)
    largest = 2**49 // under
    floor = generator.integers(0, largest + 1)
    for rest in (np.zeros_like(under), np.ones_like(under), under - 1, generator.integers(0, under)):
        check(floor * under + rest % under, under, off)
    for most in (largest, 2**48 // under):
        edges = np.maximum(most - generator.integers(0, 3, count), 0)
        for more in (-1, 0, 1):
            check(np.maximum(edges * under + more, 0), under, off)


def test_powers_of_two_and_common_factors() -> None:
    @njit(error_model="numpy")
    def both(number: float, power: float) -> tuple[float, float]:
        return megatron_kernel.common(number, power), megatron_kernel.reciprocal_of_power(power)

    for exponent in range(31):
        power = 2.0**exponent
        for number in (1, 3, 6, 12, 128, 384, 2**30, 2**40 + 2**7, 3 * 2**20):
            assert both(float(number), power) == (np.gcd(number, int(power)), 1 / power)
