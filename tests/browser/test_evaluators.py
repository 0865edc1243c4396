"""The evaluators in JavaScript against those in Python: every term and rule of thousands of random configurations."""

from __future__ import annotations

from fractions import Fraction
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.extent import FULL
from random_layouts import batches

from shardmath.commands.page.typesetting import script_of
from shardmath.compiler.evaluators import find
from shardmath.generated.definitions import rule_80, verdict
from shardmath.symbolic.implementations import IMPLEMENTATIONS

#: In a batch of forty layouts some ten are legal.
BATCHES = 400 if FULL else 12
EVALUATE = """([name, rows]) => rows.map((row) => {
  const module = shardmath[name];
  const met = module.rulesMet(row);
  if (met.includes(false)) return [met, null, null];
  const terms = module.terms(row);
  const whole = Object.fromEntries(Object.entries(terms).map(([name, value]) => [name, module.whole(value)]));
  return [met, terms, whole];
})"""


@pytest.fixture(scope="module")
def tab(chromium: Any) -> Any:
    opened = chromium.new_page()
    for name in IMPLEMENTATIONS:
        opened.add_script_tag(content=script_of(find(name)))
    return opened


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_every_term_and_rule_equals_pythons(name: str, tab: Any, record_property: Any) -> None:
    module = import_module(f"shardmath.generated.{name}")
    tried = legal = 0

    @settings(max_examples=BATCHES)
    @given(st.data())
    def compare(data: st.DataObject) -> None:
        nonlocal tried, legal
        batch = data.draw(batches(IMPLEMENTATIONS[name]))
        rows = [{**row, "pipeline_rank": tried % row["pipeline_parallel"]} for row in batch.rows()]
        for row, (met, terms, whole) in zip(rows, tab.evaluate(EVALUATE, [name, rows]), strict=True):
            assert met == list(module.rules_met(**{key: row[key] for key in module.INPUTS})), row
            tried += 1
            if not all(met):
                continue
            legal += 1
            exact = module.terms(**{key: Fraction(row[key]) for key in module.INPUTS})
            assert terms.keys() == exact.keys()
            for term, value in exact.items():
                assert whole[term] == int(value), (term, row)
                # A share that is not whole is a double; a sum of such is off by its own rounding at most.
                assert terms[term] == pytest.approx(float(value), rel=2**-51, abs=0), (term, row)
                assert Fraction(value).denominator != 1 or terms[term] == value, (term, row)

    compare()
    assert legal > BATCHES
    record_property("cases", legal)


def test_the_verdict_changes_at_the_same_byte(tab: Any) -> None:
    memory = 80 * 2**30
    for name, judge, arguments in (("verdict", verdict, (memory * 3 // 5, memory)), ("rule80", rule_80, (memory,))):
        edges = [edge + step for edge in (memory * 3 // 5, memory * 4 // 5, memory) for step in (-1, 0, 1)]
        found = tab.evaluate("([name, edges, limits]) => edges.map((at) => shardmath.megatron[name](at, ...limits))",
                             [name, edges, arguments])
        assert found == [judge(edge, *arguments) for edge in edges]
        assert set(found) == {0, 1, 2}


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_numbers_beyond_doubles_are_refused(name: str, tab: Any) -> None:
    row = {"hidden_size": 2**31, "ffn_hidden_size": 2**31, "num_layers": 2**20, "vocab_size": 2**31}
    assert tab.evaluate("""([name, row]) => {
      const module = shardmath[name];
      const ones = Object.fromEntries(module.INPUTS.map((input) => [input, 1]));
      try { return module.terms({ ...ones, ...row }); } catch (error) { return error.name; }
    }""", [name, row]) == "RangeError"


def test_files_say_what_python_says(tab: Any) -> None:
    for name in IMPLEMENTATIONS:
        module = import_module(f"shardmath.generated.{name}")
        found = tab.evaluate("(name) => [shardmath[name].INPUTS, shardmath[name].TERMS, shardmath[name].RULES]", name)
        assert found == [list(module.INPUTS), {key: list(term) for key, term in module.TERMS.items()},
                         [list(rule) for rule in module.RULES]]


def test_no_script_closes_its_element() -> None:
    for name in IMPLEMENTATIONS:
        assert "</" not in script_of(find(name))
