"""Sets of published formulas: discovery, structure, and the proven differences from the counted ledger."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from sympy import Add, Float, Integer, Rational

from shardmath.symbolic import published
from shardmath.symbolic.exact import evaluate
from shardmath.symbolic.parameters import BY_LETTER, BY_NAME, PARAMETERS
from shardmath.symbolic.published import Counterpart, Figure, PublishedSet, all_published, memory_estimates
from shardmath.symbolic.published.beside import difference, expanded, ledger_of
from shardmath.symbolic.published.sets import new_terms, schedule_factor
from shardmath.symbolic.sources import BY_KEY
from shardmath.symbolic.systems import SYSTEMS

SETS = {item.name: item for item in all_published()}
ESTIMATES = {item.name: item for item in memory_estimates()}
PAIRS = [(item, pair) for item in all_published() for pair in item.correspondence]
INPUTS = {
    "h": 4096, "a": 32, "k": 8, "d": 128, "f": 14336, "L": 32, "u": 128256, "tied": 0, "bias": 0, "qkn": 0,
    "s": 8192, "B": 1024, "g": 1, "w": 4, "zero1": 1, "t": 2, "c": 2, "p": 4, "D": 4, "b": 1, "sp": 1, "V": 1,
    "rfull": 0, "rcore": 0, "rmlp": 0, "r": 0,
}
FIGURES = [(item, figure) for item in all_published() for figure in item.figures]


def pair_name(value: object) -> str:
    return value.term if isinstance(value, Counterpart) else ""


def test_the_page_lists_every_set() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "published.md").read_text(encoding="utf-8")
    rows = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} >= SETS.keys()
    assert f" {len(SETS)} sets of them are typed" in text


def test_every_file_of_a_source_is_found() -> None:
    files = {path.stem for path in Path(published.__file__).parent.glob("*.py")} - {"__init__", "beside", "sets"}
    assert {name.removesuffix("_norms") for name in SETS} == files


def test_four_sets_estimate_the_memory_of_a_gpu() -> None:
    assert set(ESTIMATES) == {"fujii2024", "fujii2024_norms", "korthikanti2022", "megatron_lm"}


@pytest.mark.parametrize("name", SETS)
class TestSet:
    def test_names_its_terms(self, name: str) -> None:
        derived = {parameter.name for parameter in PARAMETERS if parameter.kind.value == "derived"}
        for term in SETS[name].terms.terms:
            assert term in derived or term.startswith(f"{name}.")

    def test_defines_only_the_letters_that_it_uses(self, name: str) -> None:
        terms = SETS[name].terms
        used = {letter.name for term in terms.terms.values() for letter in term.expression.free_symbols}
        assert {BY_NAME[term].letter for term in terms.terms if term in BY_NAME} <= used

    def test_cites_a_source(self, name: str) -> None:
        assert SETS[name].source in BY_KEY
        assert SETS[name].title
        assert SETS[name].notes

    def test_is_exact(self, name: str) -> None:
        assert not any(term.expression.has(Float) for term in SETS[name].terms.terms.values())

    def test_says_what_every_term_means(self, name: str) -> None:
        assert all(term.meaning and term.unit for term in SETS[name].terms.terms.values())


def test_papers_of_systems_stand_in_the_supplement_beside_them() -> None:
    named = {item.system for item in SETS.values()} - {""}
    assert named == {"tensor_axes", "links", "gpus", "slices", "local_updates", "activation_offload",
                     "optimizer_offload"}
    text = (Path(__file__).resolve().parents[2] / "generated" / "supplement.tex").read_text(encoding="utf-8")
    sections = dict(zip((one.axis.name for one in SYSTEMS), text.split("\\subsection{System: ")[1:], strict=True))
    for item in SETS.values():
        assert item.system in {"", *sections}
        for name, section in sections.items():
            is_there = f"{item.title}~\\cite" in section.split("\\section{")[0]
            assert is_there == (item.system == name), (item.name, name)


@pytest.mark.parametrize("name", ESTIMATES)
class TestEstimate:
    def test_has_activations_and_total_in_bytes(self, name: str) -> None:
        for part in ("activations", "total"):
            assert SETS[name].terms[f"{name}.{part}"].unit == "bytes"

    def test_total_is_the_sum_of_its_parts(self, name: str) -> None:
        terms = SETS[name].terms
        parts = [f"{name}.{part}" for part in ("static", "activations") if f"{name}.{part}" in terms]
        difference = terms[f"{name}.total"].expression - Add(*(terms[part].symbol for part in parts))
        assert difference.expand() == 0

    def test_has_a_value_from_parameters_alone(self, name: str) -> None:
        values = evaluate(SETS[name].terms.terms.values(), INPUTS)
        assert values[f"{name}.total"] > 0


def test_only_the_source_without_weights_has_no_static_term() -> None:
    assert [name for name, item in ESTIMATES.items() if f"{name}.static" not in item.terms] == ["korthikanti2022"]


@pytest.mark.parametrize(("item", "figure"), FIGURES, ids=lambda value: value.term if isinstance(value, Figure) else "")
def test_the_formula_gives_the_number_of_its_source(item: PublishedSet, figure: Figure) -> None:
    """A number that it does not give has a remark that says why."""
    value = evaluate(item.terms.closure([figure.term]), figure.values)[figure.term]
    assert figure.agrees(value) == (not figure.remark), float(value / figure.size)
    assert figure.where
    assert figure.values.keys() <= BY_LETTER.keys()


def test_a_printed_number_is_rounded_or_cut_off() -> None:
    figure = Figure("x.y", {}, "2,218", "GB", 10**9, "table 1")
    assert figure.agrees(Rational(221875, 100) * 10**9)
    assert figure.agrees(Rational(22175, 10) * 10**9)
    assert not figure.agrees(Integer(2219) * 10**9)
    assert not figure.agrees(Integer(2217) * 10**9)


@pytest.mark.parametrize(("item", "pair"), PAIRS, ids=pair_name)
class TestCounterpart:
    def test_exists_on_both_sides(self, item: PublishedSet, pair: Counterpart) -> None:
        assert pair.term in item.terms
        assert pair.ledger
        assert {*pair.ledger, *pair.over, *pair.kept} <= ledger_of(item, pair).terms.keys()

    def test_has_one_unit(self, item: PublishedSet, pair: Counterpart) -> None:
        units = {ledger_of(item, pair)[name].unit for name in pair.ledger}
        assert len(units) == 1
        if pair.scale == 1 and not pair.over:
            assert units == {item.terms[pair.term].unit}

    def test_assumes_parameters(self, item: PublishedSet, pair: Counterpart) -> None:
        for letter, value in pair.values.items():
            assert letter in BY_LETTER
            if value.is_Integer:
                assert value >= BY_LETTER[letter].minimum

    def test_says_why_the_two_differ(self, item: PublishedSet, pair: Counterpart) -> None:
        assert pair.meaning
        assert pair.remark
        if pair.remark.startswith("equal"):
            assert pair.difference == 0

    def test_differs_as_stated(self, item: PublishedSet, pair: Counterpart) -> None:
        if pair.difference is not None:
            assert difference(item.terms, ledger_of(item, pair), pair) == pair.difference.expand()


def test_a_set_refuses_what_it_does_not_have() -> None:
    terms = SETS["megatron_lm"].terms
    with pytest.raises(ValueError, match="unknown source"):
        PublishedSet("megatron_lm", "x", "nobody1999", terms, ())
    with pytest.raises(ValueError, match=r"no term other\.total"):
        PublishedSet("other", "x", "megatron_lm", terms, (), figures=(Figure("other.total", {}, "1", "GB", 1, "x"),))
    with pytest.raises(ValueError, match=r"no term megatron_lm\.nothing"):
        PublishedSet("megatron_lm", "x", "megatron_lm", terms,
                     (Counterpart("megatron_lm.nothing", ("layer.saved",), "x", "x"),))


def test_new_terms_refuse_a_letter_that_is_not_derived() -> None:
    with pytest.raises(KeyError):
        new_terms("x", "h")


def test_expanded_needs_parameters_only() -> None:
    terms = SETS["fujii2024"].terms
    inputs = {parameter.symbol for parameter in PARAMETERS if parameter.kind.value != "derived"}
    assert expanded(terms, ("fujii2024.total",), {}).free_symbols <= inputs


def test_schedule_factor_is_plain_without_interleaving_and_falls_with_more_chunks() -> None:
    factor = schedule_factor(Integer(1))
    p, V = (BY_LETTER[letter].symbol for letter in "pV")
    values = [factor.xreplace({p: Integer(4), V: Integer(chunks)}).doit() for chunks in range(1, 7)]
    assert values[0] == 1
    assert values[1] == 1 + Integer(3) / 8
    assert all(left > right > 1 for left, right in pairwise(values[1:]))
