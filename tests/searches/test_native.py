"""C that is printed for comparison computes what exact substitution gives."""

from __future__ import annotations

import ctypes
import shutil
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sympy import And, Eq, Expr, Ge, Gt, Integer, Le, Max, Min, Ne, Not, Or, Rational, Symbol

from benchmarks import native
from benchmarks.roofline import CHAINS
from shardmath.compiler.expressions.graph import Graph
from shardmath.compiler.expressions.source import parse
from shardmath.compiler.flat.plan import Flat, planned
from shardmath.compiler.printers.nodes import C
from shardmath.symbolic.documents.kernel import lines
from shardmath.symbolic.functions import CeilDiv, Divides, FloorDiv, Iverson, LeastCommonMultiple
from shardmath.symbolic.parameters import symbols
from shardmath.symbolic.printers.python import PythonPrinter, identifier

pytestmark = pytest.mark.skipif(shutil.which(native.COMPILER) is None, reason="needs gcc")

SIZES = s, h, t, c = symbols("s h t c")
#: Integers, which double precision has to the last bit.
WHOLE: tuple[Expr, ...] = (
    Integer(-7), s - h * t, 2 * s * h - t, s**2, h**3 - s, t**5, (s - h)**4, CeilDiv(s, t), CeilDiv(s * h, t * c),
    t * CeilDiv(s, t) - c, CeilDiv(s + h, LeastCommonMultiple(t, Integer(128))), FloorDiv(s, t), FloorDiv(s * h, t + c),
    LeastCommonMultiple(s * t, Integer(128)), LeastCommonMultiple(s, Integer(1)), Max(s, h), Max(s - h, t, Integer(1)),
    Min(s, h - 3), Min(Max(s, h), t + c, 3 * s), 2 * Max(s, h) - Min(t, c), Iverson(Eq(s, h)) * t,
    1 - Iverson(Gt(s, h)), 3 * Iverson(Ne(s, t)), Iverson(Divides(t, s)), Iverson(Divides(c * t, s * h)),
    Iverson(And(Ge(s, 2), Divides(t, h))), Iverson(Or(Le(s, h), Divides(2 * c, s))), Iverson(Not(Divides(t, h))) * s,
)
#: Fractions, which it has as closely as a few roundings allow.
FRACTIONS: tuple[Expr, ...] = (
    s / t, -s / (t * c), (s + h) / t, 1 / t, 2 / (t * c), Rational(3, 2) * s, Rational(-3, 4) * s / t, h / s**3,
    (s + h) * (t - c) / (t + c), Max(s / t, Integer(1)), s**2 / Max(t, c),
)
SOURCE = """{% include "helpers.c.jinja" %}
void nodes({% for name in sizes %}double {{ name }}, {% endfor %}double *out)
{
{%- for step in before + steps %}
    const __auto_type {{ step.name }} = {{ step.source }};
{%- endfor %}
{%- for size in nodes %}
    out[{{ loop.index0 }}] = {{ size }};
{%- endfor %}
}

void ceilings(int64_t count, double divisor, const double *restrict numbers, double *restrict out)
{
    for (int64_t row = 0; row < count; row++)
        out[row] = ceil(quotient(numbers[row], divisor, 1.0 / divisor));
}
"""


@pytest.fixture(scope="module", params=[native.IEEE, native.FAST], ids=["IEEE", "fast"])
def library(request: pytest.FixtureRequest) -> ctypes.CDLL:
    graph, names = Graph(), [identifier(one) for one in SIZES]
    nodes = tuple(parse(PythonPrinter().doprint(node), graph, graph.name) for node in (*WHOLE, *FRACTIONS))
    data = lines(planned(Flat(graph, (), (), nodes), names, (), {}), C)
    source = native.environment().from_string(SOURCE).render(
        sizes=names, nodes=data["sizes"], before=data["before"], steps=data["steps"])
    return native.build(source, request.param)


@pytest.mark.process
@given(values=st.fixed_dictionaries({one: st.integers(1, 60) for one in SIZES}))
def test_printed_c_computes_what_substitution_gives(library: ctypes.CDLL, values: dict[Symbol, int]) -> None:
    found = (ctypes.c_double * len(WHOLE + FRACTIONS))()
    library.nodes(*(ctypes.c_double(values[one]) for one in SIZES), found)
    for node, number in zip((*WHOLE, *FRACTIONS), found, strict=True):
        value = node.xreplace({one: Integer(size) for one, size in values.items()}).doit()
        exact = Fraction(int(value.p), int(value.q))
        assert number == exact if node in WHOLE else number == pytest.approx(float(exact), rel=1e-14), node


@pytest.mark.slow
def test_ceilings_of_quotients_by_one_divisor_are_exact(library: ctypes.CDLL) -> None:
    numbers = np.arange(20_000.0)
    out = np.empty_like(numbers)
    arrays = tuple(map(np.ctypeslib.as_ctypes, (numbers, out)))
    for divisor in range(1, 200):
        library.ceilings(ctypes.c_int64(len(numbers)), ctypes.c_double(divisor), *arrays)
        assert np.array_equal(out, -(-np.arange(20_000) // divisor))


@pytest.mark.process
@pytest.mark.parametrize("bits", [256, 512])
def test_multiply_adds_are_computed(bits: int) -> None:
    function = native.build(native.render("multiply_add.c", bits=bits, chains=CHAINS), native.IEEE).multiply_add
    function.restype = ctypes.c_double
    chains = [float(chain) for chain in range(CHAINS)]
    for _ in range(3):
        chains = [chain * 3 + 2 for chain in chains]
    assert function(ctypes.c_int64(3), ctypes.c_double(3), ctypes.c_double(2)) == sum(chains) * bits / 64
