"""A formula under assumptions equals its term wherever they hold."""

from __future__ import annotations

from random import Random

import pytest
from assumed_points import points
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles.extent import FULL
from sympy import Add, Integer, Mul, Pow, Symbol

import shardmath
from shardmath.errors import InputError
from shardmath.symbolic.algebra.domain import Domain
from shardmath.symbolic.algebra.parts import parts_of
from shardmath.symbolic.exact import number
from shardmath.symbolic.terms import operations

DENSE = "sequence_parallel, recompute=none, p > 1, t > 1, t <= k, not qk_norm, not linear_bias, not qkv_bias"
SMALL = (
    ("megatron", "layer.saved", DENSE),
    ("megatron", "layer.saved", "not sequence_parallel, recompute=full, k <= t, qk_norm, b = 1, 64 <= hidden_size"),
    ("megatron", "step.optimizer", "t = 1, c = 1, p = 1, recompute = none, D > 1"),
    ("fujii2024", "fujii2024.total", "p = 1, recompute=none, sequence_parallel"),
)
#: Totals of a rank, which take seconds each.
TOTALS = (
    ("huggingface", "first.total", "recompute=none, not distributed_optimizer"),
    ("megatron", "last.total", f"{DENSE}, tied_embeddings, w = 2, num_microbatches > pipeline_parallel"),
    ("megatron", "peak", f"{DENSE}, t = 2, p = 4, c = 1, b = 1, m = 8"),
    ("torchtitan", "first.total", "t = 1, c = 1, p = 1, recompute=none, 2 <= D <= 8"),
    ("nanotron", "first.total", "recompute=none, p > 2, t <= k"),
)
USUAL = ("megatron", "first.total", "usual, p > 1, t = 1, zero_stage = 1, recompute = mlp")
MORE = (
    USUAL,
    ("megatron", "first.total", f"{DENSE}, zero_stage=1, w = 4, m >= p, not attention_copies_output"),
    ("megatron", "first.total", "t = 1, c = 1, p = 1, zero_stage = 0, b = 1, 64 <= hidden_size"),
)
CASES = [
    pytest.param(*case, id=" ".join(case), marks=marks)
    for cases, marks in ((SMALL, ()), (TOTALS, [pytest.mark.slow]), (MORE if FULL else (), [pytest.mark.slow]))
    for case in cases
]


@pytest.mark.parametrize(("implementation", "name", "assume"), CASES)
def test_a_formula_equals_its_term_where_the_assumptions_hold(implementation: str, name: str, assume: str) -> None:
    chosen = "megatron" if implementation == "fujii2024" else implementation
    formula = shardmath.formula(name, chosen, assume=assume, expand=True)
    formulas, tried = formula._formulas, 0
    for known in points(formulas, name, Random(0), 25 if FULL else 12):
        expected = known[formulas.terms[name].symbol]
        assert number(formula._form, known) == expected
        if tried < 2:
            assert formula.expr.xreplace(known).doit() == expected
            assert Add(*formula.terms.values()).xreplace(known).doit() == expected
        tried += 1
    assert tried >= 5


TIMES = (("megatron", "step.time", f"{DENSE}, usual"), ("torchtitan", "step.time", "recompute=none, t = 1"))


@pytest.mark.slow
@pytest.mark.parametrize(("implementation", "name", "assume"), [*TIMES, USUAL, TOTALS[0]])
def test_named_parts_are_together_the_formula(implementation: str, name: str, assume: str) -> None:
    """Exact values of parts, put into those after them, end in that of the term; so do functions of numbers."""
    formula = shardmath.formula(name, implementation, assume=assume)
    formulas = formula._formulas
    parts, tried = parts_of(formulas, formulas.terms[name]), 0
    assert [str(part) for part in formula.parts] == [str(part) for part in parts]
    assert all(operations(value) <= 60 for value in parts.values())
    function = formula.lambdify(in_parts=True, modules="mpmath")
    free = set().union(*(value.free_symbols for value in formula.parts.values())) - formula.parts.keys()
    for known in points(formulas, name, Random(1), 4):
        values = {part: value for part, value in known.items() if part not in parts}
        for part, value in parts.items():
            values[part] = number(value, values)
        expected = known[formulas.terms[name].symbol]
        assert values[formulas.terms[name].symbol] == expected
        assert float(function(**{str(part): int(known[part]) for part in free})) == pytest.approx(float(expected))
        tried += 1
    assert tried == 4


def test_an_unexpanded_formula_keeps_the_terms_in_it() -> None:
    formula = shardmath.formula("first.total", assume="p > 1")
    assert {str(part) for part in formula.expr.free_symbols} == {"first.static", "first.moment"}
    assert shardmath.formula("tables.buffer", expand=True).expr == shardmath.formula("tables.buffer").expr


def test_switches_maxima_and_roundings_fall_where_they_are_decided() -> None:
    saved = shardmath.formula("layer.saved", assume=f"{DENSE}, not attention_copies_output", expand=True)
    s, b, h, c, t, A, K, f, a = (saved.symbol(letter) for letter in ["s", "b", "h", "c", "t", "A", "K", "f", "a"])
    assert (saved.expr - 2 * s * b * (4 * h + 2 * A + 2 * K + 3 * f + 2 * a + 4) / (c * t)).expand() == 0
    exact = shardmath.formula("first.weight", assume=f"{DENSE}, zero_stage=1, R = 1, divides(128*c*D, h),"
                              " not tied_embeddings", expand=True)
    assert not {type(node).__name__ for node in exact.expr.atoms(*_functions())}


def _functions() -> tuple[type, ...]:
    from sympy import Function, Piecewise

    return Function, Piecewise


@pytest.mark.parametrize(("assume", "message"), [
    ("sequence_paralel", "nearest legal: sequence_parallel"),
    ("tensor_parallel", "must be a condition: tensor_parallel is no switch"),
    ("recompute=some", "must be none, full, or some of core_attention"),
    ("zero_stage=4", "must be an integer from 0 to 3"),
    ("p > 1, p < 2", "must be met by some legal configuration"),
    ("t = 0", "must be an integer from 1"),
    ("t = 2, t = 4", "must agree with the assumption that it is 2"),
    ("not distributed_optimizer, zero_stage=1", "must agree with"),
    ("t <", "must be a switch"),
    ("t + 1", "must be a switch"),
    ("(t > 1", "must close every bracket"),
    ("zero3", "must be 0 in megatron"),
])
def test_assumptions_that_cannot_be_read_or_met_are_refused(assume: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        shardmath.formula("first.total", assume=assume)
    assert message in str(error.value)


@pytest.mark.parametrize("names", [
    ("tensor_parallel", "num_kv_heads", "sequence_parallel"), ("t", "k", "sp"), ("TP", "num_kv_heads", "σ"),
])
def test_long_names_letters_and_abbreviations_are_the_same(names: tuple[str, str, str]) -> None:
    degree, heads, switch = names
    formula = shardmath.formula("attention.saved", assume=[f"{degree} <= {heads}", switch])
    assert formula.expr == shardmath.formula("attention.saved", assume="t <= k, sp = 1").expr


x, y, z = (Symbol(letter, integer=True, positive=True) for letter in "xyz")
_MONOMIALS = st.tuples(st.integers(-4, 4), st.integers(-1, 2), st.integers(-1, 2), st.integers(0, 1))


@settings(max_examples=150 if FULL else 60)
@example(monomials=[(4, 0, 0, 0), (-1, 1, 0, 0)], least=2, most=4, whole=False)
@given(st.lists(_MONOMIALS, min_size=1, max_size=4), st.integers(1, 3), st.integers(3, 6), st.booleans())
def test_a_sign_that_is_proved_holds_at_every_point(
    monomials: list[tuple[int, int, int, int]], least: int, most: int, whole: bool,
) -> None:
    domain = Domain({x: least}, {x: most}, {z: x} if whole else {}, {y: x + 1})
    expression = Add(*(Mul(count, Pow(x, i), Pow(y, j), Pow(z, k)) for count, i, j, k in monomials))
    positive, nonnegative = domain.is_positive(expression), domain.is_nonnegative(expression)
    for first in range(least, most + 1):
        for second in range(first + 1, first + 5):
            for third in range(1, 13):
                if whole and third % first:
                    continue
                value = expression.xreplace({x: Integer(first), y: Integer(second), z: Integer(third)})
                assert value > 0 or not positive
                assert value >= 0 or not nonnegative


@pytest.mark.parametrize("modules", ["numpy", "mpmath", "jax"])
def test_functions_of_arrays_give_what_the_formula_gives(modules: str) -> None:
    pytest.importorskip(modules)
    formula = shardmath.formula("attention.aligned", assume="not qkv_bias, not qk_norm, not linear_bias", expand=True)
    values = {"hidden_size": 4096, "tensor_parallel": 8, "A": 4096, "kv_size": 1024}
    exact = formula.expr.subs({formula.symbol(name): value for name, value in values.items()})
    assert int(formula.lambdify(modules=modules)(**values)) == exact
    with pytest.raises(InputError, match="must be query_size, "):
        formula.lambdify(modules=modules)(1, 2)
    with pytest.raises(InputError, match="must have every symbol"):
        formula.lambdify(["h"])


def test_pieces_of_a_maximum_are_solved_and_derived_with_their_conditions() -> None:
    moment = shardmath.formula("stage.mlp_gradients.layer_backward", assume="sequence_parallel, t > 1", expand=True)
    s, f = moment.symbols["s"], moment.symbols["f"]
    at = {moment.symbols[letter]: value for letter, value in {"b": 1, "c": 1, "h": 512, "t": 2}.items()}
    for ffn in (64, 512, 700, 4096):
        value = moment.expr.subs({**at, f: ffn, s: 1000})
        here = {**at, f: ffn}
        assert moment.diff("s").subs({**here, s: 1000}) * 1000 == value
        fitting = [piece.value.subs(here) for piece in moment.solve("s", value)
                   if piece.condition.subs({**here, s: 1000}) == True]  # noqa: E712
        assert set(fitting) == {1000}
    assert moment.asymptotics("s").subs({**at, f: 4096, s: 1}) == moment.expr.subs({**at, f: 4096, s: 1})
    with pytest.raises(InputError, match="sum of powers"):
        moment.series("f")


def test_roundings_are_solved_exactly_where_numbers_are_known() -> None:
    assume = "not qkv_bias, not qk_norm, not linear_bias, a = 6, k = 2, d = 4, t = 2"
    aligned = shardmath.formula("attention.aligned", assume=assume, expand=True)
    h = aligned.symbols["h"]
    for size in (1, 3, 64, 100, 1000):
        value = aligned.subs(h=size)
        every = [number for number in range(1, 1200) if aligned.expr.subs(h, number) == value]
        assert sorted({int(piece.value) for piece in aligned.solve("h", value)}) == every


def test_a_rounding_together_with_letters_is_refused_with_the_assumption_that_decides_it() -> None:
    usual = "not qkv_bias, not qk_norm"
    with pytest.raises(InputError, match=r"must not be rounded together with other letters") as refused:
        shardmath.formula("attention.aligned", assume=usual, expand=True).solve("h", 10)
    clause = str(refused.value).split('assume "')[1].removesuffix('"')
    aligned = shardmath.formula("attention.aligned", assume=[usual, clause], expand=True)
    (piece,) = aligned.solve("h", 10.0**7)
    assert aligned.expr.subs(aligned.symbols["h"], piece.value).simplify() == 10**7
    padded = shardmath.formula("first.first_bucket_padded", assume="usual, p > 1", expand=True)
    with pytest.raises(InputError, match=r"; assume numbers for .*K"):
        padded.solve("num_layers", 10**9)


def test_a_maximum_with_cases_is_solved_in_pieces() -> None:
    """Each value with a true condition has the asked peak, also where brackets hold the symbol."""
    peak = shardmath.formula("first.total", assume="usual, recompute=none, p = 1, t = 1, c = 1, zero_stage = 0, h = 64,"
                             " a = 8, k = 8, d = 8, f = 256, L = 2, u = 1024, g = 1, s = 128, w = 4,"
                             " context_bytes = 0, engine_workspace_bytes = 0, torch_workspace_bytes = 0,"
                             " not tied_embeddings", expand=True)
    b = peak.symbols["b"]
    for size in (1, 2, 7):
        value = peak.expr.subs(b, size)
        found = {piece.value for piece in peak.solve("b", value) if piece.condition.subs(b, piece.value) == True}  # noqa: E712
        assert size in found
        assert all(peak.expr.subs(b, other) == value for other in found)


def test_signs_that_need_orders_multiples_and_bounds_are_proved() -> None:
    domain = Domain({x: 2}, {x: 5}, {z: x}, {y: x})
    assert domain.is_nonnegative(y - x)
    assert domain.is_positive(z / x)
    assert domain.is_nonnegative(5 - x)
    assert domain.is_positive(x * y - 2 * y + 1)
    assert domain.is_nonnegative((5 - x) * (x - 2))
    assert not domain.is_nonnegative(z - y)
    assert domain.is_whole(z / x)
    assert not domain.is_whole(y / x)


def test_nothing_is_positive_that_is_zero_at_the_ends_of_bounds() -> None:
    domain = Domain({x: 2, y: 1}, {x: 5, y: 3}, {}, {})
    for zero in (5 - x, x - 2, (5 - x) * (x - 2), 15 - x * y, 8 - x - y, (x - 2) + (3 - y), x * y - 2):
        assert domain.is_nonnegative(zero)
        assert not domain.is_positive(zero)
        assert domain.is_positive(zero + 1)
