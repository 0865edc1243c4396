"""The LaTeX supplement: everything of the ledger is in it, its numbers are the exact ones, and it compiles cleanly."""

import re
from fractions import Fraction
from pathlib import Path

import pytest
from sympy import Integer, Rational, true
from typesetting import NEEDS_LATEX, bodies, refuse_complaints, typeset

from shardmath.catalogue import read
from shardmath.generated import megatron
from shardmath.symbolic.accounts import build
from shardmath.symbolic.accounts.aggregates import AGGREGATES
from shardmath.symbolic.choices import AXES
from shardmath.symbolic.components import all_components
from shardmath.symbolic.dimensions import DIMENSIONS
from shardmath.symbolic.documents.forms import aliases, form_of, shown
from shardmath.symbolic.documents.notation import _SIZE
from shardmath.symbolic.documents.systems import changed_terms, is_alias, terms_of, with_option
from shardmath.symbolic.documents.tensors import LONGEST, details
from shardmath.symbolic.documents.tex import cell, cite, code, digits, escape, fixed_point, gib
from shardmath.symbolic.documents.worked import COMPARISONS, EXAMPLE, Layout, by_rank, verdict
from shardmath.symbolic.implementations import IMPLEMENTATIONS, MEGATRON, Implementation
from shardmath.symbolic.ledger import SITES, Component
from shardmath.symbolic.overheads import OVERHEADS
from shardmath.symbolic.parallel.data import PRECISIONS, states
from shardmath.symbolic.parallel.legality import fixed_values, rules_for
from shardmath.symbolic.parallel.optimizers import OPTIMIZERS
from shardmath.symbolic.parallel.schedules import SCHEDULES
from shardmath.symbolic.parameters import BY_LETTER, PARAMETERS
from shardmath.symbolic.printers.latex import LatexPrinter
from shardmath.symbolic.published import all_published, memory_estimates
from shardmath.symbolic.recompute import MODES, REGIONS
from shardmath.symbolic.sources import SOURCES
from shardmath.symbolic.systems import SYSTEMS
from shardmath.symbolic.systems.system import System
from shardmath.symbolic.terms import operations
from shardmath.symbolic.verdict import RULE_80, VERDICTS
from shardmath.symbolic.write import GENERATED

pytestmark = pytest.mark.slow

#: Beyond this code the font has no letters.
LATIN = 0x180


@pytest.fixture(scope="module")
def text() -> str:
    """Read the stored file, which test_packaging.py derives again."""
    return (GENERATED / "supplement.tex").read_text(encoding="utf-8")


def section(text: str, title: str) -> str:
    """The text from a heading to the next one of the same kind."""
    start = re.search(rf"\\(sub)*section\{{{re.escape(title)}\}}", text)
    assert start is not None, title
    end = re.search(r"\\(sub)*section\{|\\begin\{thebibliography\}", text[start.end():])
    assert end is not None
    return text[start.end():start.end() + end.start()]


def test_every_parameter_with_its_letter_and_least_value(text: str) -> None:
    table = section(text, "Notation")
    for item in PARAMETERS:
        row = rf"${LatexPrinter().doprint(item.symbol)}$ & {code(item.name)} & {escape(item.unit)} & {item.minimum} &"
        assert f"{row} {escape(item.meaning)}" in table


def test_every_dimension_state_region_mode_and_kernel_choice(text: str) -> None:
    for item in DIMENSIONS:
        long = operations(item.size) > LONGEST
        size = cell(item.size, _SIZE) if long else f"${LatexPrinter().doprint(item.size)}$"
        assert f"{code(item.name)} & {size} &" in text
    for name, kept in PRECISIONS.items():
        assert code(name) in text
        assert all(f"{code(state.name)} & {state.role.value} &" in text for state in kept)
    assert all(f"{code(item.name)} & " in section(text, "Recompute") for item in REGIONS)
    assert all(f"{code(name)} (" in section(text, "Recompute") for name in MODES)
    choices = section(text, "Kernel choices")
    for axis in AXES:
        assert code(axis.name) in choices
        assert all(f"& {code(option)} & {escape(said)}" in choices for option, said in axis.options.items())


def test_every_rule_with_its_condition_and_text(text: str) -> None:
    table = section(text, "Legal configurations")
    for implementation in IMPLEMENTATIONS.values():
        for rule in rules_for(implementation):
            row = rf"{code(rule.name)} & ${LatexPrinter().doprint(rule.condition)}$"
            assert rf"{row} & {code(BY_LETTER[rule.field].name)} & {escape(rule.text)} \\" in table


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda item: item.axis.name)
def test_every_option_of_a_system_with_the_terms_that_it_changes(text: str, system: System) -> None:
    part = section(text, f"System: {code(system.axis.name)}, {escape(system.axis.meaning)}")
    unchanged = 0
    for option, meaning in system.axis.options.items():
        if option != system.absent:
            without, chosen = with_option(system, option)
            before, after = (build(item).terms for item in (without, chosen))
            added = [name for name in after.keys() - before.keys() if name.startswith("stage.")]
            assert set(added) <= set(changed_terms(system, option))
            assert rf"\paragraph{{{code(option)}}} {escape(meaning)}." in part
            terms, fixed = terms_of(chosen), fixed_values(chosen)
            shown = [name for name in changed_terms(system, option) if not is_alias(form_of(terms, name, fixed))]
            unchanged += not shown
            assert all(rf"{code(name)} & \form{{" in part for name in shown)
            assert all(f"{code(rule.name)} & " in part for rule in system.rules(chosen.choices)
                       if rule.condition != true)
    assert part.count("No term changes.") == unchanged


@pytest.mark.parametrize("component", all_components(), ids=lambda item: item.name)
def test_every_tensor_of_every_variant(text: str, component: Component) -> None:
    part = section(text, escape(component.title))
    for tensor in component.tensors:
        start = f"{code(tensor.name)} & {tensor.role.value} &"
        row = next(line for line in part.splitlines() if line.startswith(start))
        assert row.endswith(rf"{cite(tensor.source)} \\*")
        assert all(code(site) in row for site in tensor.sites) if tensor.sites else tensor.lifetime.value in row
        assert details(tensor) in part


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS.values(), ids=lambda item: item.name)
def test_every_term_with_its_symbol(text: str, implementation: Implementation) -> None:
    terms = build(implementation)
    printer, same = LatexPrinter(terms.terms.values()), aliases(implementation)
    heads = {line.partition(" =}")[0] for line in text.splitlines()}
    for name in shown(terms):
        term = terms[name]
        if term.symbol in same:
            continue
        assert rf"{code(term.name)} & \form{{\piece{{{printer.doprint(term.symbol)}" in heads


def test_every_published_term_and_its_counterpart(text: str) -> None:
    for item in memory_estimates():
        part = section(text, escape(item.title))
        for term in item.terms.terms.values():
            assert not term.name.startswith(f"{item.name}.") or f"{code(term.name)} & " in part
        for counterpart in item.correspondence:
            assert escape(counterpart.remark) in part
            assert ", ".join(map(code, counterpart.ledger)) in part
            assert f"{code(counterpart.term)} & GiB &" in part or rf"{code(counterpart.term)} & $10^9$ &" in part


def test_every_other_published_set_is_named_and_cited(text: str) -> None:
    others = [item for item in all_published() if not item.estimates_memory]
    assert others
    for item in others:
        assert rf"{escape(item.title)}~{cite(item.source)}" in text


def test_sites_verdicts_and_sources(text: str) -> None:
    assert all(f"{code(name)}, {escape(site.meaning)}" in text for name, site in SITES.items())
    assert all(f"{item.name} & " in section(text, "Verdict") for item in VERDICTS)
    entries = re.findall(r"\\bibitem\{(\w+)\}", text)
    assert entries == [source.key for source in SOURCES]
    cited = {key for keys in re.findall(r"\\cite\{([\w,]+)\}", text) for key in keys.split(",")}
    assert cited == set(entries)


def test_example_is_what_the_generated_evaluator_computes(text: str) -> None:
    part = text[text.index(r"\section{Worked example}"):text.index(r"\section{Published formulas")]
    values = {BY_LETTER[letter].name: Fraction(value) for letter, value in EXAMPLE.values().items()}
    ranks = by_rank(EXAMPLE)
    assert len(ranks) == EXAMPLE.values()["p"]
    for rank, found in enumerate(ranks):
        inputs = {name: value for name, value in (values | {"pipeline_rank": Fraction(rank)}).items()
                  if name in megatron.INPUTS}
        computed = megatron.terms(**inputs)
        assert {name: Fraction(int(value.p), int(value.q)) for name, value in found.items()} == computed
        assert all(megatron.rules_met(**inputs))
        assert f"total ({digits(found['stage.total'])} bytes)}} & {gib(found['stage.total'])}" in part
    for name in ranks[0]:
        if name.startswith("stage."):
            row = " & ".join(digits(found[name]) for found in ranks)
            assert rf"{code(name)} & {row} \\" in part
    peak = max(found["stage.total"] for found in ranks)
    assert ranks[0]["peak"] == peak
    assert f"The peak is ${digits(peak)}$ bytes" in part
    memory = EXAMPLE.values()["M"]
    assert rf"the verdict is \emph{{{verdict(ranks[0], memory)}}}" in part
    assert rf"that of the 80 percent rule \emph{{{verdict(ranks[0], memory, RULE_80)}}}" in part


def test_example_is_the_job_that_is_described() -> None:
    model, values = read("models")["llama-3.1-70b"], EXAMPLE.values()
    for letter, name in (("h", "hidden_size"), ("L", "num_layers"), ("f", "ffn_hidden_size"), ("u", "vocab_size")):
        assert values[letter] == model[name]
    assert [values[letter] for letter in ("N", "t", "p", "c", "D", "b", "s", "B", "sp", "zero1", "rfull")] == [
        512, 8, 4, 1, 16, 1, 8192, 1024, 1, 1, 0,
    ]
    assert values["M"] == 80 * 2**30


@pytest.mark.parametrize("layout", COMPARISONS, ids=lambda item: item.model)
def test_compared_layouts_are_legal(layout: Layout) -> None:
    values = {BY_LETTER[letter].name: Fraction(value) for letter, value in layout.values().items()}
    assert all(megatron.rules_met(**{name: value for name, value in values.items() if name in megatron.INPUTS}))


@pytest.mark.parametrize(("number", "places", "expected"), [
    (Rational(1, 2), 0, "1"), (Rational(1, 3), 3, "0.333"), (Rational(-2, 3), 3, "$-$0.667"), (Integer(0), 1, "0.0"),
    (Rational(-1, 10**6), 3, "0.000"), (Rational(1999, 1000), 2, "2.00"), (Integer(12), 1, "12.0"),
])
def test_decimals_are_rounded_from_exact_numbers(number: Rational, places: int, expected: str) -> None:
    assert fixed_point(number, places) == expected


def test_text_and_digits_are_safe() -> None:
    assert escape("50 % of a_b & {c} #1 $x ^ ~ \\") == (
        r"50 \% of a\_\allowbreak b \& \{c\} \#1 \$x \textasciicircum{} \textasciitilde{} \textbackslash{}"
    )
    assert digits(Integer(12345678)) == r"12\,345\,678"
    assert digits(Integer(-1234)) == r"$-$1\,234"
    assert digits(Rational(1, 3)) == "1/3"
    assert gib(Integer(3 * 2**29)) == "1.500"
    assert escape("1–2 (or --risk)") == "1--2 (or -{}-risk)"
    assert escape("5 s² → café") == r"5 s$^2$ $\to$ café"
    with pytest.raises(ValueError, match="no letter for"):
        escape("φ")


def test_environments_and_braces_are_balanced(text: str) -> None:
    open_now: list[str] = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", text):
        if kind == "begin":
            open_now.append(name)
        else:
            assert open_now.pop() == name
    assert not open_now
    bare = re.sub(r"\\[{}]", "", text)
    assert bare.count("{") == bare.count("}")
    assert max(map(ord, text)) < LATIN
    assert "<<" not in text
    assert "<%" not in text


@pytest.mark.latex
@NEEDS_LATEX
def test_it_compiles_without_warnings(text: str, tmp_path: Path) -> None:
    (tmp_path / "supplement.tex").write_text(text)
    refuse_complaints(typeset(tmp_path, "supplement"))
    assert (tmp_path / "supplement.pdf").read_bytes().startswith(b"%PDF")


def test_no_table_is_without_rows(text: str) -> None:
    assert len(bodies(text)) > 150
    assert [body for body in bodies(text) if r"\\" not in body] == []


def test_only_packages_of_the_base_collections_are_used(text: str) -> None:
    used = {name for names in re.findall(r"\\usepackage(?:\[[^]]*\])?\{([^}]*)\}", text) for name in names.split(",")}
    assert used <= {
        "fontenc", "inputenc", "lmodern", "microtype", "geometry", "amsmath", "amssymb", "array", "booktabs",
        "longtable", "graphicx", "hyperref",
    }


def test_the_counted_implementation_is_named(text: str) -> None:
    for item in IMPLEMENTATIONS.values():
        assert rf"\item {code(item.name)}: {escape(item.title)} ({escape(item.version)})" in text


def test_every_sum_that_lives_at_a_moment(text: str) -> None:
    lines = text.splitlines()
    for item in AGGREGATES:
        moments, start = ", ".join(map(code, item.sites)), f"{code(item.name)} & {escape(item.title)} &"
        rows = [line for line in lines if line.startswith(start)]
        assert any(f"& {moments} &" in row and row.endswith(rf"{cite(item.source)} \\") for row in rows)


def test_every_schedule_and_state(text: str) -> None:
    assert all(rf"\paragraph{{{escape(item.title)}, {code(name)}.}}" in text for name, item in SCHEDULES.items())
    for name in OPTIMIZERS:
        for state in states({**MEGATRON.choices, "optimizer": name}):
            assert f"{code(state.name)} & {state.role.value} &" in text
    assert all(code(BY_LETTER[item.letter].name) in section(text, "Memory of a process") for item in OVERHEADS)
