"""The plain evaluators against exact symbolic values: every term, rule and name of every set."""

import inspect
import re
from collections.abc import Mapping
from fractions import Fraction
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from options import with_option
from oracles.extent import FULL
from random_layouts import batches, by_letter, legal_rows

from shardmath.compiler.evaluators import find
from shardmath.symbolic.accounts import build
from shardmath.symbolic.choices import ARCHITECTURE, AXES
from shardmath.symbolic.exact import evaluate, holds
from shardmath.symbolic.implementations import IMPLEMENTATIONS, Implementation
from shardmath.symbolic.parallel.legality import rules_for
from shardmath.symbolic.parallel.uncounted import refuse_impossible
from shardmath.symbolic.parameters import BY_LETTER, symbol
from shardmath.symbolic.plain import derive_memory
from shardmath.symbolic.printers.python import identifier
from shardmath.symbolic.published import all_published
from shardmath.symbolic.terms import TermSet
from shardmath.symbolic.verdict import LIMITS

MEGATRON = IMPLEMENTATIONS["megatron"]
#: Module, terms and the implementation whose layouts are drawn, by name.
STORED: dict[str, tuple[TermSet, Implementation]] = {
    **{name: (build(item), item) for name, item in IMPLEMENTATIONS.items()},
    **{item.name: (item.terms, MEGATRON) for item in all_published()},
}
#: Choices that are refused with Megatron's other kernels, or in dense layers, and words of the refusal.
UNCOUNTED = {("precision", "fp32"): "precision = fp32", ("optimizer_kernel", "foreach"): "optimizer_kernel = fused",
             ("expert_passes", "combined"): "layers = dense", ("module_offload", "expert_fc1"): "layers = dense",
             ("attention", "flex"): "no bounds"}
#: Every kernel that Megatron's evaluator does not have, one at a time.
OTHERS = [
    with_option(MEGATRON, axis, option)
    for axis in AXES for option in MEGATRON.options(axis.name)
    if option != MEGATRON.choices[axis.name] and axis.name not in ARCHITECTURE and (axis.name, option) not in UNCOUNTED
]
#: A component's share of sharded states, and what padding adds to all of them: a shard cuts through tensors.
SHARE = re.compile(r"stage\.\w+\.\w*(weight|gradient|optimizer)")
EVERY_MODULE = pytest.mark.parametrize("name", STORED)
EVERY_IMPLEMENTATION = pytest.mark.parametrize("name", IMPLEMENTATIONS)


def stored(name: str) -> Any:
    return import_module(f"shardmath.generated.{name}")


def check_terms(module: Any, terms: TermSet, row: dict[str, int]) -> None:
    """Compare all terms of one configuration, legal or not; shards of no rank at all have no size."""
    if row["data_parallel"] * row["context_parallel"] % row["data_parallel_replicas"]:
        return
    found = module.terms(**{name: Fraction(row[name]) for name in module.INPUTS})
    exact = evaluate(terms.terms.values(), by_letter(row))
    assert found.keys() == exact.keys()
    for name, value in found.items():
        assert isinstance(value, int | Fraction), name
        assert value == Fraction(int(exact[name].p), int(exact[name].q)), (name, row)


@pytest.mark.slow
@EVERY_MODULE
@settings(max_examples=30 if FULL else 8)
@given(st.data())
def test_every_term_is_exact(name: str, data: st.DataObject) -> None:
    terms, implementation = STORED[name]
    for row in data.draw(batches(implementation, count=3)).rows():
        rank = data.draw(st.integers(0, row["pipeline_parallel"] - 1))
        chunks = data.draw(st.integers(1, 4))
        others = undrawn(stored(name), row, data)
        check_terms(stored(name), terms, {**row, **others, "pipeline_rank": rank, "virtual_pipeline": chunks})


@pytest.mark.parametrize(("axis", "option"), UNCOUNTED)
def test_what_is_left_out_below_is_refused(axis: str, option: str) -> None:
    with pytest.raises(ValueError, match=f"not counted yet: .*{UNCOUNTED[axis, option]}"):
        refuse_impossible(MEGATRON.with_choices(**{axis: option}).choices)


@pytest.mark.slow
@pytest.mark.parametrize("implementation", OTHERS, ids=lambda implementation: implementation.name)
@settings(max_examples=5 if FULL else 3)
@given(st.data())
def test_every_term_is_exact_with_other_kernels(implementation: Implementation, data: st.DataObject) -> None:
    module = derived(implementation)
    for row in data.draw(batches(MEGATRON, count=4)).rows():
        check_terms(module, build(implementation), {**row, **undrawn(module, row, data)})


def undrawn(module: Any, row: Mapping[str, int], data: st.DataObject) -> dict[str, int]:
    """Draw the inputs that layouts have no columns for: numbers of published sets, and stages of an explicit list."""
    return {name: data.draw(st.integers(1, 10**12)) for name in module.INPUTS if name not in row}


def derived(implementation: Implementation) -> Any:
    """The module that is derived on first use, or was for another test."""
    return find(implementation.name.partition("_")[0], implementation.choices).terms


@pytest.mark.slow
@EVERY_IMPLEMENTATION
@settings(max_examples=15 if FULL else 8)
@given(st.data())
def test_every_rule_is_the_condition_in_exact_numbers(name: str, data: st.DataObject) -> None:
    module, implementation = stored(name), IMPLEMENTATIONS[name]
    terms = build(implementation)
    asked = {one for rule in rules_for(implementation) for one in rule.condition.free_symbols}
    for_rules = terms.closure([name for name, term in terms.terms.items() if term.symbol in asked])
    for row in data.draw(batches(implementation)).rows():
        values = by_letter(row)
        found = evaluate(for_rules, values)
        known = {symbol(letter): value for letter, value in values.items()}
        known |= {term.symbol: found[term.name] for term in for_rules}
        exact = tuple(holds(rule.condition, known) for rule in rules_for(implementation))
        assert module.rules_met(**{name: row[name] for name in module.INPUTS}) == exact, row


@EVERY_MODULE
def test_module_names_what_the_terms_name(name: str) -> None:
    terms, module = STORED[name][0].terms, stored(name)
    assert {key: (term.unit, term.meaning) for key, term in terms.items()} == module.TERMS
    assert list(module.TERMS) == list(terms)
    for function in (module.terms, module.rules_met):
        assert tuple(inspect.signature(function).parameters) == module.INPUTS


@EVERY_IMPLEMENTATION
def test_module_has_the_rules_in_their_order(name: str) -> None:
    rules = rules_for(IMPLEMENTATIONS[name])
    assert [(rule.name, BY_LETTER[rule.field].name, rule.text) for rule in rules] == list(stored(name).RULES)


@EVERY_IMPLEMENTATION
def test_kernel_takes_the_inputs_of_the_rules_the_peak_and_its_limits(name: str) -> None:
    module, kernel = stored(name), stored(f"{name}_kernel")
    taken = {*kernel.SCALARS, *kernel.COLUMNS}
    terms, rules = build(IMPLEMENTATIONS[name]), rules_for(IMPLEMENTATIONS[name])
    by_symbol = {term.symbol: term.name for term in terms.terms.values()}
    asked = {one for rule in rules for one in rule.condition.free_symbols}
    needed = terms.closure(["peak", *LIMITS, *(by_symbol[one] for one in asked & by_symbol.keys())])
    letters = {one.name for one in asked.union(*(term.expression.free_symbols for term in needed)) - by_symbol.keys()}
    assert taken == {BY_LETTER[letter].name for letter in letters - {"r"}}
    assert taken <= {*module.INPUTS}
    assert len(taken) == len(kernel.SCALARS) + len(kernel.COLUMNS)


@pytest.mark.slow
@pytest.mark.parametrize("implementation", [*IMPLEMENTATIONS.values(), MEGATRON.with_choices(layers="experts")],
                         ids=lambda implementation: implementation.name)
def test_no_variable_of_a_term_is_called_like_an_input(implementation: Implementation) -> None:
    module = derived(implementation)
    variables = [identifier(term.symbol) for term in build(implementation).terms.values()]
    assert set(variables) & set(module.INPUTS) == set()
    assert len(set(variables)) == len(variables)


@pytest.mark.slow
@EVERY_IMPLEMENTATION
@settings(max_examples=40 if FULL else 15)
@given(st.data())
def test_no_count_of_bytes_or_elements_is_a_fraction(name: str, data: st.DataObject) -> None:
    module = stored(name)
    row = data.draw(legal_rows(IMPLEMENTATIONS[name], module))
    found = module.terms(**{name: Fraction(row[name]) for name in module.INPUTS})
    fractions = [term for term, value in found.items() if Fraction(value).denominator > 1 and not SHARE.fullmatch(term)]
    assert fractions == []


@pytest.mark.slow
@settings(max_examples=60 if FULL else 25)
@given(st.data())
def test_nanotron_keeps_states_of_the_first_slice_of_every_parameter(data: st.DataObject) -> None:
    """As ``_partition_parameters`` of nanotron cuts them: the first ranks have one element more than the last."""
    module = stored("nanotron")
    row = data.draw(legal_rows(IMPLEMENTATIONS["nanotron"], module))
    found = module.terms(**{name: Fraction(row[name]) for name in module.INPUTS})
    h, t, d, r = (row[name] for name in ("hidden_size", "tensor_parallel", "head_dim", "pipeline_rank"))
    q, k, f = (row["num_attention_heads"] * d // t, row["num_kv_heads"] * d // t, row["ffn_hidden_size"] // t)
    last, both = row["pipeline_parallel"] - 1, row["tied_embeddings"]
    matrix = h * int(found["padded_vocab_size"]) // t
    layer = [(q + 2 * k) * h, q * h, 2 * f * h, f * h, h, h]
    layer += [q + 2 * k] * row["qkv_bias"] + [d, d] * row["qk_norm"]
    sizes = layer * (row["num_layers"] // row["pipeline_parallel"]) + [matrix] * (r == 0) + [h] * (r == last)
    sizes += [matrix] * (r == last and not (both and last == 0))
    ranks = row["data_parallel"] * row["context_parallel"] // row["data_parallel_replicas"]
    slices = [-(-size // ranks) for size in sizes] if row["distributed_optimizer"] else sizes
    assert (found["stage.parameters"], found["stage.optimizer"]) == (sum(sizes), 12 * sum(slices))


def test_terms_name_their_parts() -> None:
    """Interleaved stages of unequal experts once had terms of 100,000 characters: a place put in often."""
    implementation = MEGATRON.with_choices(balance="loss", layers="experts", schedule="interleaved", stages="uneven")
    lines = derive_memory(implementation).splitlines()
    assert max(len(line) for line in lines if line.startswith("    ") and " = " in line) < 2500
