"""The ledger as a whole: what every row cites and names, and that its sums add up on every legal layout."""

from collections.abc import Callable, Iterator
from itertools import product
from math import lcm
from typing import Any

import pytest
from counted import DEFAULTS
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.extent import FULL
from sympy import Integer

from shardmath.symbolic.accounts import build, components_of, kept_rows
from shardmath.symbolic.accounts.aggregates import aggregates_of
from shardmath.symbolic.accounts.stage import STATE_ROLES
from shardmath.symbolic.accounts.units import COUNTED_ROLES
from shardmath.symbolic.choices import BY_NAME
from shardmath.symbolic.components import all_components
from shardmath.symbolic.dimensions import DIMENSIONS
from shardmath.symbolic.exact import evaluate, holds, number
from shardmath.symbolic.implementations import HUGGINGFACE, MEGATRON, Implementation
from shardmath.symbolic.ledger import (
    IN_LAYER,
    SITES,
    Component,
    Held,
    Lifetime,
    Place,
    Role,
    saved,
    transient,
)
from shardmath.symbolic.parallel.data import PRECISIONS, states
from shardmath.symbolic.parallel.derived import published
from shardmath.symbolic.parallel.legality import fixed_values, rules_for
from shardmath.symbolic.parameters import symbol
from shardmath.symbolic.recompute import MODES, REGIONS
from shardmath.symbolic.sources import BY_KEY

OPTIMIZERS = BY_NAME["optimizer"].options
ROWS = [(component, tensor) for component in all_components() for tensor in component.tensors]
EVERY_COMPONENT = pytest.mark.parametrize("component", all_components(), ids=lambda component: component.name)


@EVERY_COMPONENT
def test_rows_name_only_what_exists(component: Component) -> None:
    for tensor in component.tensors:
        assert tensor.source in BY_KEY, tensor
        assert tensor.meaning, tensor
        assert set(tensor.shape) <= set(DIMENSIONS), tensor
        assert set(tensor.sites) <= set(SITES), tensor
        assert not tensor.checkpoint or tensor.checkpoint in {region.name for region in REGIONS}, tensor
        for name, options in tensor.options.items():
            assert set(options) <= set(BY_NAME[name].options), tensor


@EVERY_COMPONENT
def test_lifetimes_go_with_role_and_place(component: Component) -> None:
    for tensor in component.tensors:
        persistent = tensor.lifetime is Lifetime.PERSISTENT
        assert (tensor.role is Role.WEIGHT) == persistent == (tensor.bytes == 0), tensor
        assert tensor.role is not Role.TRANSIENT or tensor.lifetime is Lifetime.SITE, tensor
        if component.place in (*IN_LAYER, Place.FIRST) and tensor.role in (Role.ACTIVATION, Role.INPUT):
            assert tensor.lifetime is Lifetime.IN_FLIGHT, tensor
        if component.place is Place.LAST:
            assert tensor.lifetime is not Lifetime.IN_FLIGHT, tensor


def test_rows_of_one_storage_are_the_same_memory() -> None:
    found: dict[str, set[Any]] = {}
    for component, tensor in ROWS:
        if tensor.storage:
            memory = (component.place in IN_LAYER, tensor.shape, tensor.bytes, tensor.lifetime)
            found.setdefault(tensor.storage, set()).add(memory)
    assert found
    assert {storage for storage, memories in found.items() if len(memories) > 1} == set()


def test_regions_drop_modules_that_exist() -> None:
    modules = {tensor.module for component, tensor in ROWS if component.place in IN_LAYER}
    assert {module for region in REGIONS for module in region.modules} <= modules


def test_states_of_a_parameter_cite_a_source() -> None:
    assert set(PRECISIONS) == set(BY_NAME["precision"].options)
    kept = [
        states({**MEGATRON.choices, "precision": name, "optimizer": other, "data_parallel": kind})
        for name in PRECISIONS for other in OPTIMIZERS for kind in BY_NAME["data_parallel"].options
    ]
    assert {state.source for all_of_one in kept for state in all_of_one} <= set(BY_KEY)


def test_a_row_without_source_or_with_an_impossible_moment_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown source"):
        saved("x", "loss", (), 4, "hearsay", "nobody knows")
    with pytest.raises(ValueError, match="sites"):
        transient("x", "loss", (), 4, "pytorch", "at no time", ())
    with pytest.raises(ValueError, match="sites"):
        saved("x", "loss", (), 4, "pytorch", "at a moment, but in flight", sites=("after_forward",))


ATTENTION = [
    MEGATRON.with_choices(norm=norm, attention=attention, value=value)
    for norm, attention, value in product(*map(MEGATRON.options, ("norm", "attention", "value")))
]


@pytest.mark.slow
@pytest.mark.parametrize("implementation", ATTENTION, ids=lambda implementation: implementation.name)
def test_a_storage_is_counted_at_most_once_in_every_mode(implementation: Implementation) -> None:
    for switches, b in product(MODES.values(), (1, 2)):
        on = {symbol(letter): Integer(letter in switches) for letter in ("rfull", "rcore", "rmlp")}
        on[symbol("b")] = Integer(b)
        kept = [
            row.tensor.storage for row in kept_rows(implementation)
            if row.tensor.storage and row.expression.xreplace(on).doit() != 0
        ]
        assert len(kept) == len(set(kept)), (switches, b)


@st.composite
def configurations(draw: st.DrawFn, implementation: Implementation) -> dict[str, int]:
    """Draw legal values of all parameters; t may exceed k."""
    fixed = fixed_values(implementation)

    def pick(letter: str, *options: int) -> int:
        return fixed[letter] if letter in fixed else draw(st.sampled_from(options))

    def count(most: int) -> int:
        return draw(st.integers(1, most))

    t, c, p = pick("t", 1, 2, 4, 8), pick("c", 1, 2, 4), pick("p", 1, 2, 3, 4)
    k = pick("k", *(heads for heads in (1, 2, 4) if t % heads == 0), t * count(3))
    modes = [{letter: int(letter in on) for letter in ("rfull", "rcore", "rmlp")} for on in MODES.values()]
    mode = draw(st.sampled_from([
        mode for mode in modes if all(fixed.get(letter, on) == on for letter, on in mode.items())
    ]))
    D, b = count(9), count(4)
    return {
        **DEFAULTS, **mode, **{letter: pick(letter, 0, 1) for letter in ("zero1", "tied", "bias", "qkn")},
        "h": count(300), "k": k, "a": lcm(k, t) * count(3), "d": 8 * count(4), "f": t * count(90),
        "L": p * count(3), "u": count(999), "s": 2 * c * t * count(5), "g": pick("g", 1, 128),
        "w": pick("w", 2, 4), "t": t, "c": c, "p": p, "sp": pick("sp", 0, *([1] if t > 1 else [])), "D": D,
        "b": b, "B": b * D * count(9), "N": t * c * p * D, "n": 8,
    }


CASES = st.sampled_from([
    MEGATRON, MEGATRON.with_choices(peak="saved"),
    MEGATRON.with_choices(norm="torch", attention="unfused", rope="unfused", loss="gathered"),
    HUGGINGFACE, HUGGINGFACE.with_choices(precision="autocast"),
]).flatmap(lambda implementation: st.tuples(st.just(implementation), configurations(implementation)))
Case = tuple[Implementation, dict[str, int]]


@pytest.mark.slow
@settings(max_examples=100 if FULL else 6)
@given(CASES)
def test_components_add_up_to_roles_and_roles_to_the_peak(case: Case) -> None:
    implementation, known = case
    terms = build(implementation)
    needed = terms.closure(name for name in terms.terms if name.startswith("stage."))
    totals = []
    for rank in range(known["p"]):
        found = evaluate(needed, {**known, "r": rank})
        assert all(value.is_Integer for name, value in found.items() if name.startswith("local."))
        for role in (*STATE_ROLES, *COUNTED_ROLES):
            names = [*(part.name for part in components_of(implementation)), "padding", "part", "buckets"]
            by_component = sum(found.get(f"stage.{name}.{role.value}", 0) for name in names)
            assert by_component == found[f"stage.{role.value}"]
        static = sum(found[f"stage.{role.value}"] for role in (*STATE_ROLES, Role.INPUT, Role.BUFFER))
        totals.append(static + max(found["stage.activation"], *moments(implementation, found)))
        assert found["stage.total"] == totals[-1]
    assert evaluate(terms.closure(["peak"]), known)["peak"] == max(totals)


def moments(implementation: Implementation, found: dict[str, Any]) -> Iterator[Any]:
    """Activations and transients of every moment, from the components."""
    parts = [part.name for part in (*components_of(implementation), *aggregates_of(implementation))]
    at_end = [part.name for part in components_of(implementation) if part.place is Place.LAST]
    ends = sum(found.get(f"stage.{name}.activation", 0) for name in at_end)
    for name, site in SITES.items():
        transient = sum(found.get(f"stage.{part}.{name}", 0) for part in parts)
        held = {
            Held.ALL: found["stage.activation"], Held.LAYERS: found["stage.activation"] - ends, Held.NOTHING: 0,
            Held.HEAD: found["stage.activation"] - found.get("stage.loss.activation", 0),
        }
        yield held[site.held] + transient if any(f"stage.{part}.{name}" in found for part in parts) else 0


@pytest.mark.slow
@given(CASES)
def test_the_configurations_above_are_legal(case: Case) -> None:
    implementation, known = case
    on = {symbol(letter): Integer(value) for letter, value in known.items()}
    on |= {symbol(letter): published()[letter].xreplace(on) for letter in ("ts", "A", "K")}
    assert [rule for rule in rules_for(implementation) if not holds(rule.condition, on)] == []


def test_with_more_ranks_than_heads_each_keeps_one_head_and_its_share_of_the_weights() -> None:
    names = ("attention.parameters", "attention.saved")
    terms = build(MEGATRON).closure(names)
    known = {**DEFAULTS, "s": 16, "h": 64, "a": 16, "k": 2, "d": 8, "f": 64, "u": 512}
    two, eight = (evaluate(terms, {**known, "t": t}) for t in (2, 8))
    assert two["attention.parameters"] == 4 * eight["attention.parameters"]
    # q and the output, log-sum-exp, and the input, which is whole without sequence parallelism; then k and v.
    saved_by_queries = {t: 16 * (4 * 16 // t * 8 + 4 * 16 // t + 2 * 64) for t in (2, 8)}
    assert two["attention.saved"] - saved_by_queries[2] == 16 * 4 * 8
    assert eight["attention.saved"] - saved_by_queries[8] == 16 * 4 * 8


#: Choices with states that follow from the shapes of parameters, and bytes of such a state for a matrix m x n.
BY_SHAPE: dict[str, tuple[dict[str, str], dict[str, Callable[[int, int], int]]]] = {
    "adafactor": ({"optimizer": "adafactor"}, {"statistics": lambda m, n: 4 * (m + n), "rms": lambda m, n: 4}),
    "adafactor_torch": ({"optimizer": "adafactor_torch"}, {"statistics": lambda m, n: 2 * (m + n)}),
    "adamw_8bit": ({"optimizer": "adamw_8bit"}, {
        "codes": lambda m, n: 2 * m * n, "scales": lambda m, n: 8 * -(-m * n // 256)}),
    "muon": ({"optimizer": "muon"}, {"momentum": lambda m, n: 2 * m * n}),
    "nf4": ({"adapters": "all_linear", "base_weights": "nf4"}, {
        "frozen_nf4_codes": lambda m, n: -(-m * n // 2), "frozen_nf4_scales": lambda m, n: -(-m * n // 64),
        "frozen_nf4_scales_of_scales": lambda m, n: 4 * -((-m * n // 64) // 256)}),
}


@pytest.mark.parametrize("name", BY_SHAPE)
def test_rows_of_a_term_are_in_its_unit_and_add_up_to_it(name: str) -> None:
    choices, of_matrices = BY_SHAPE[name]
    implementation = HUGGINGFACE.with_choices(**choices)
    terms, fixed = build(implementation), fixed_values(implementation)
    h, a, k, d = 384, 6, 2, 64
    known = {**DEFAULTS, **fixed, "h": h, "a": a, "k": k, "d": d, "f": 1000, "u": 999, "L": 2, "s": 64, "r": 0, "p": 1,
             "c": 1, "t": 1, "D": 1, "N": 1, "n": 1, "b": 1, "B": 1, "g": 1, "w": 2, "rfull": 0, "rcore": 0, "rmlp": 0,
             "tied": 0, "bias": 0, "qkn": 0}
    counted = [term for term in terms.terms.values() if term.rows and term.unit == "bytes"]
    values = evaluate(terms.closure(term.name for term in counted), known)
    on = {**{symbol(letter): Integer(value) for letter, value in known.items()},
          **{terms[term].symbol: value for term, value in values.items()}}
    for term in counted:
        assert sum(number(row.expression, on) for row in term.rows) == values[term.name], term.name
    matrices = {"q.weight": (a * d, h), "k.weight": (k * d, h), "v.weight": (k * d, h), "o_proj.weight": (h, a * d)}
    for state, size in of_matrices.items():
        rows = {row.tensor.name: number(row.expression, on) for row in terms[f"attention.{state}"].rows}
        assert terms[f"attention.{state}"].unit == "bytes"
        assert {tensor: rows[tensor] for tensor in matrices} == {
            tensor: size(*shape) for tensor, shape in matrices.items()}
