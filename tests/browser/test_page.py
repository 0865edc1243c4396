"""The page in Chromium: its numbers are those of the commands, and its link, keys and buttons do what they say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from browser_answers import ACCOUNTS, beyond_doubles, compare_times, explained, link_of
from browser_cases import states, written_link
from oracles.extent import FULL, SEED

import shardmath
from shardmath.commands.page import page
from shardmath.generated.definitions import ROLES, VERDICTS
from shardmath.reports.tables import chance

STATES = 2000 if FULL else 100


def test_accounts_are_those_of_explain(opened: Callable[..., Any], record_property: Any) -> None:
    drawn = states(Random(SEED), STATES)
    found = opened().evaluate(ACCOUNTS, [link_of(state) for state in drawn])
    legal, verdicts = 0, set()
    for state, (broken, accounts, time, outlook) in zip(drawn, found, strict=True):
        expected = explained(state)
        if beyond_doubles(broken, expected):
            continue
        assert (broken is None) == (expected is not None), (state, broken)
        if expected is None:
            continue
        legal += 1
        for account, rank in zip(accounts, expected.ranks, strict=True):
            for name in ("rank", "total", "site", "verdict"):
                assert account[name] == getattr(rank, name), (name, state)
            assert account["rule"] == rank.rule_80, state
            assert account["byRole"] == dict(rank.by_role), state
            lines = sorted(rank.lines, key=lambda line: ROLES.index(line.role))
            assert [(line["term"], line["component"], line["role"]) for line in account["lines"]] == [
                (line.term, line.component, line.role) for line in lines
            ]
            assert [line["bytes"] for line in account["lines"]] == [float(line.bytes) for line in lines]
        compare_times(time, expected, state)
        assert outlook == pytest.approx(expected.run_out_probability, rel=1e-9), state
        verdicts.add(expected.verdict)
    assert legal > STATES // 8
    assert verdicts == {name for name, _ in VERDICTS}
    record_property("cases", legal)


def test_what_is_chosen_stays_in_the_link(opened: Callable[..., Any]) -> None:
    tab = opened("#model=llama-3.1-8b")
    tab.select_option("select[data-name=gpu]", "a100-40gb")
    tab.fill("#number-num_gpus", "16")
    tab.fill("#number-tensor_parallel", "4")
    tab.fill("#number-pipeline_parallel", "2")
    tab.click("[data-rank='1']")
    tab.wait_for_selector("html[data-ready]")
    expected = shardmath.explain("llama-3.1-8b", "a100-40gb", tensor_parallel=4, pipeline_parallel=2, num_gpus=16,
                                 global_batch_size=1024)
    headline = tab.inner_text("#headline")
    assert f"{expected.peak.total / 2**30:.2f} GiB" in headline
    assert f"{expected.time.seconds:.0f} s" in headline
    assert expected.peak.verdict in headline
    likely = f"The process runs out of memory with a probability of {chance(expected.run_out_probability)}."
    assert f"{likely} By the 80 % rule: {expected.rule_80}." in headline
    again = opened(written_link(tab))
    for part in ("#headline", "#lines", "#spent", "#map"):
        assert again.text_content(part) == tab.text_content(part), part
    assert "rank 1" in (again.text_content("#account-rank") or "")


def test_probabilities_are_written_as_in_the_terminal(opened: Callable[..., Any]) -> None:
    probabilities = [0, 0.0004, 0.001, 0.0099, 0.047, 0.5, 0.999, 0.9995, 1]
    assert opened().evaluate("(all) => all.map(chance)", probabilities) == [*map(chance, probabilities)]


def test_a_link_that_says_nonsense_says_so(opened: Callable[..., Any]) -> None:
    tab = opened("#model=gpt-9&num_gpus=1e3&tensor_parallel=-8&recompute=<img src=x onerror=alert(1)>&colour=red")
    said = tab.inner_text("#notice").splitlines()
    assert said[0] == "Ignored in the link:"
    for part in ("num_gpus = 1e3: must be an integer from 1 to 2147483648; nearest legal: 1000",
                 "tensor_parallel = -8: must be an integer from 1 to 2147483648; nearest legal: 1",
                 "colour = 'red': must be a parameter of this page"):
        assert part in said
    for start in ("model = 'gpt-9': must be a model of the catalogue", "recompute = '<img src=x"):
        assert [line for line in said if line.startswith(start) and "nearest legal: " in line], start
    assert tab.locator("img").count() == 0
    assert tab.input_value("select[data-name=model]") == "llama-3.1-70b"


def test_a_layout_that_breaks_a_rule_is_no_layout(opened: Callable[..., Any]) -> None:
    tab = opened("#model=llama-3.1-70b&pipeline_parallel=3&num_gpus=48&global_batch_size=1152")
    assert "not a layout" in tab.inner_text("#headline")
    assert "pipeline_parallel = 3: must divide the layers" in tab.inner_text("#headline")
    marked = tab.locator("[aria-invalid]")
    assert marked.evaluate_all("fields => fields.map((field) => field.id)") == ["number-pipeline_parallel"]
    tab.fill("#number-pipeline_parallel", "2")
    tab.wait_for_selector("html[data-ready]")
    assert marked.count() == 0
    tab.fill("#number-pipeline_parallel", "3")
    tab.wait_for_selector("html[data-ready]")
    assert not tab.is_visible("#stages")


def test_sizes_beyond_exact_numbers_are_refused(opened: Callable[..., Any]) -> None:
    tab = opened("#model=llama-3.1-70b&hidden_size=2147483648&ffn_hidden_size=2147483648&num_layers=131072")
    assert "beyond 2^53" in tab.inner_text("#headline")


def test_a_number_out_of_range_is_not_taken_over(opened: Callable[..., Any]) -> None:
    tab = opened()
    before = tab.inner_text("#headline")
    tab.fill("#number-num_gpus", "0")
    assert "num_gpus = 0: must be an integer from 1 to" in tab.inner_text("#notice")
    assert tab.inner_text("#headline") == before


def test_sizes_of_the_map_divide_the_number_of_gpus(opened: Callable[..., Any]) -> None:
    """Unless that is an axis; stages may differ in layers, so sizes need not divide these."""
    tab = opened("#num_gpus=96&global_batch_size=96&tensor_parallel=4&pipeline_parallel=5")
    rows = tab.locator("#map tbody th").all_inner_texts()
    assert rows == ["1", "2", "3", "4", "5", "6", "8", "12", "16", "24", "32", "48"]  # the chosen one too
    tab = opened("#num_gpus=96&across=num_gpus&down=pipeline_parallel")
    assert {"5", "20"} < {*tab.locator("#map tbody th").all_inner_texts()}


def test_everything_works_by_keyboard(opened: Callable[..., Any]) -> None:
    tab = opened()
    tab.focus("[data-slider=tensor_parallel]")
    tab.keyboard.press("ArrowLeft")
    assert tab.input_value("#number-tensor_parallel") == "4"
    tab.focus("[data-rank='2']")
    tab.keyboard.press("Enter")
    assert tab.get_attribute("[data-rank='2']", "aria-pressed") == "true"
    assert tab.evaluate("document.activeElement.dataset.rank") == "2"
    tab.focus("#map [aria-selected=true]")
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("ArrowUp")
    tab.keyboard.press("Enter")
    assert tab.input_value("#number-tensor_parallel") == "8"
    assert tab.input_value("#number-pipeline_parallel") == "2"
    assert tab.locator("#map [tabindex='0']").count() == 1
    tab.wait_for_selector("#best[aria-busy='false'] [data-best='0']")
    tab.focus("[data-list=choices][data-best='0']")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("[data-list=choices][data-best='0'][aria-pressed=true]")
    row = tab.inner_text("tr.chosen")
    assert tab.inner_text("#tile-memory [data-term='stage.total']") in row
    tab.focus("[data-term='stage.attention.weight']")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#drawer[open]")
    assert tab.evaluate("document.activeElement.id") == "formula-title"
    assert tab.inner_text("#formula-title") == "stage.attention.weight"
    tab.keyboard.press("Escape")
    assert not tab.is_visible("#drawer")


def test_every_formula_is_typeset(opened: Callable[..., Any]) -> None:
    tab = opened()
    tab.evaluate("loadFormulas()")
    tab.evaluate("document.getElementById('drawer').showModal()")
    for name in ("megatron", "torchtitan"):
        tab.select_option("select[data-name=implementation]", name)
        tab.wait_for_selector("html[data-ready]")
        broken = tab.evaluate("""() => Object.keys(DATA.formulas[evaluatorName(state)]).filter((term) => {
          if (!formulaOf(evaluatorName(state), term).form.length) return false;
          shownTerm = term;
          showFormula();
          const found = document.querySelectorAll("#formula math");
          const names = new Set([...document.querySelectorAll("#formula math *")].map((node) => node.localName));
          const wrong = [...document.querySelectorAll("#formula mfrac, #formula msub, #formula msup")]
            .some((node) => node.children.length !== 2);
          return wrong || !found.length || found[0].getBoundingClientRect().width < 5 || names.has("merror");
        })""")
        assert broken == []


def test_saved_tensors_of_waiting_microbatches_are_drawn_as_such(opened: Callable[..., Any]) -> None:
    """At the backward pass of the embedding, where nothing else of them is left."""
    for link in ("", "#implementation=nanotron"):
        kept, sizes = opened(link).evaluate("""() => {
          const [evaluator, known] = [shardmath[evaluatorName(state)], DATA.evaluators[evaluatorName(state)]];
          const { numbers } = accountOf(state, valuesOf(state), 0);
          return [linesAt(evaluator, known, numbers, "embedding_backward").byRole, numbers];
        }""")
        names = ("waiting_activations", "others_in_flight")
        waiting = sum(sizes.get(f"stage.{name}.embedding_backward", 0) for name in names)
        assert 2**33 < kept["activation"] == waiting
        assert 0 < kept["transient"] == sizes["stage.embedding_backward"] - waiting


def test_a_formula_names_its_parameters(opened: Callable[..., Any]) -> None:
    tab = opened("#tensor_parallel=4&recompute=mlp")
    tab.evaluate("openFormula('swiglu.saved')")
    tab.wait_for_selector("#drawer[open]")
    named = tab.evaluate("""() => Object.fromEntries([...document.querySelectorAll("#formula dl > div")].map((row) =>
      [row.querySelector("dt").lastChild.textContent.trim(), row.querySelector("dd").textContent]))""")
    sizes = {"sequence_shards", "context_parallel", "ffn_hidden_size", "hidden_size", "micro_batch_size", "seq_length"}
    assert {*named} == {*sizes, "recompute_mlp", "tensor_parallel"}
    assert named["tensor_parallel"].endswith(": 4 ranks")
    assert named["recompute_mlp"].endswith(": yes")


def test_a_named_model_is_added_first_and_its_name_is_only_text(opened: Callable[..., Any], tmp_path: Path) -> None:
    folder = tmp_path / "</script><img src=x onerror=alert(1)>"
    folder.mkdir(parents=True)
    config = {
        "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000, "max_position_embeddings": 64,
        "hidden_act": "silu",
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    path = tmp_path / "page.html"
    path.write_text(page([folder / "config.json"], only=True), encoding="utf-8")
    tab = opened(path=path)
    assert "img src=x onerror" in tab.input_value("select[data-name=model]")
    assert tab.locator("img").count() == 0
