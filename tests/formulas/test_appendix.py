"""The LaTeX appendix: at most ten pages, each number and formula on them the ledger's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest
from printed_notations import Notation, notations
from read_formulas import Number, compute
from read_latex import read_latex
from sympy import Rational
from typesetting import NEEDS_LATEX, bodies, formulas_in, pages, refuse_complaints, typeset

from shardmath.symbolic.documents import beside, differences, display, figure, matrix, moments, variants
from shardmath.symbolic.documents import numbers as worked
from shardmath.symbolic.documents.case import OFF, Case
from shardmath.symbolic.documents.dense import DENSE, LAYER, PARAMETERS
from shardmath.symbolic.documents.tex import cite, digits, escape, fixed_point, gib
from shardmath.symbolic.documents.worked import STAGED, Layout, by_rank
from shardmath.symbolic.exact import evaluate
from shardmath.symbolic.implementations import IMPLEMENTATIONS, MEGATRON
from shardmath.symbolic.parameters import PARAMETERS as LETTERS
from shardmath.symbolic.published.beside import ledger_of
from shardmath.symbolic.terms import TermSet
from shardmath.symbolic.write import GENERATED

pytestmark = pytest.mark.slow

#: Pages of the appendix at most.
LIMIT = 10


@pytest.fixture(scope="module")
def text() -> str:
    """Read the stored file, which test_packaging.py derives again."""
    return (GENERATED / "appendix.tex").read_text(encoding="utf-8")


def rows(text: str, label: str, table: int = 0) -> list[list[str]]:
    """The cells of a table of a section, row by row."""
    part = text[text.index(rf"\label{{app:{label}}}"):]
    part = part[:part.find(r"\section") if r"\section" in part else len(part)]
    lines = re.split(r"\\\\\*?", bodies(part)[table].replace("\n", " "))
    return [[cell.strip() for cell in re.sub(r"\\addlinespace\[[^]]*\]", "", line).split(" & ")]
            for line in lines if " & " in line]


@cache
def reader(terms: TermSet, published: str = "") -> Notation:
    return notations(terms.terms.values(), published)[2]


def values_of(terms: TermSet, values: Mapping[str, int]) -> dict[str, Number]:
    """The exact values of all letters and terms, by the name of the symbol."""
    known = {letter: Fraction(value) for letter, value in values.items()}
    for name, value in evaluate(terms.terms.values(), values).items():
        known[str(terms[name].symbol.name)] = Fraction(int(value.p), int(value.q))
    return known


@cache
def at(layout: Layout) -> dict[str, Number]:
    return values_of(DENSE.terms, layout.values())


def read(case: Case, text: str, known: Mapping[str, Number]) -> Fraction:
    """The value of a printed formula."""
    return Fraction(compute(reader(case.terms).read(text), known))


def form(cell: str) -> str:
    """The one formula of a cell."""
    (only,) = formulas_in(cell)
    return only


def test_it_has_contents_references_and_no_empty_table(text: str) -> None:
    assert r"\tableofcontents" in text
    assert len(bodies(text)) > 7
    assert [body for body in bodies(text) if r"\\" not in body] == []
    cited = {key for keys in re.findall(r"\\cite\{([\w,]+)\}", text) for key in keys.split(",")}
    assert sorted(re.findall(r"\\bibitem\{(\w+)\}", text)) == sorted(cited)
    labels = re.findall(r"\\label\{([^}]*)\}", text)
    assert len(labels) == len({*labels})
    assert {*re.findall(r"\\ref\{([^}]*)\}", text)} <= {*labels}


def test_the_readme_has_the_formula_of_the_first_page(text: str) -> None:
    readme = " ".join((Path(__file__).resolve().parents[2] / "README.md").read_text(encoding="utf-8").split())
    shown = re.search(r"\\begin\{aligned\}(.*?)\\end\{aligned\}", text, re.DOTALL)
    assert shown is not None
    assert " ".join(shown[1].split()) in readme
    first, second, third = (row[-1] for row in rows(text, "dense", 0))
    operations = sum(int(number) for number in re.findall(r"at its peak, (\d+) operations", text))
    assert (f"These {operations} operations are within {first} % of the whole ledger for Llama-3.1-8B,"
            f" {second} % for 70B and {third} % for 405B.") in readme


@pytest.mark.parametrize("number", range(len(STAGED)), ids=lambda number: STAGED[number].title)
def test_the_formula_with_what_it_leaves_out_is_the_ledger(text: str, number: int) -> None:
    layout, known = STAGED[number], dict(at(STAGED[number]))
    display = dict(re.findall(r"^(\S+) &= (.*?)(?: \\\\)?$", text, re.MULTILINE))
    names = [reader(DENSE.terms).read(symbol).sign[1:] for symbol in display]
    assert names == ["first.total", PARAMETERS, LAYER]
    total, *parts = display.values()
    for name, formula in zip(names[1:], parts, strict=True):
        assert read(DENSE, formula, known) == known[name]
    short = read(DENSE, total, known)
    missing = [read(DENSE, form(row[1]), known) for row in rows(text, "dense", 1)]
    assert short + sum(missing) == known["first.total"]
    assert [row[2 + number] for row in rows(text, "dense", 1)] == [gib(Rational(size)) for size in missing]
    exact = Rational(known["first.total"])
    title, _, *printed = rows(text, "dense", 0)[number]
    assert title == escape(layout.title)
    error = 100 * (exact - Rational(short)) / exact
    assert printed == [digits(exact), gib(exact), gib(Rational(short)), fixed_point(error, 2)]
    assert 0 < error < 2
    assert known["first.total"] == known["peak"]


def test_the_matrix_is_the_ledger(text: str) -> None:
    """Sum the rows of a component, divided as the row says: they are its term."""
    head = text[text.index(r"\label{app:matrix}"):]
    columns = re.search(r"Component & (.*?) \\\\ \\midrule", head)
    assert columns is not None
    assert columns[1] == "Kind & Without parallelism & TP & SP & CP & EP & ETP & PP & DP/ZeRO"
    layouts = {id(DENSE): at(STAGED[1])}
    layouts[id(matrix.EXPERTS)] = values_of_experts()
    sums: dict[tuple[int, str], Fraction] = {}
    title = ""
    for item, (name, kind, size, *cells, pipeline, states) in zip(matrix.divided(), rows(text, "matrix"), strict=True):
        title = name or title
        assert title == escape(item.component.title)
        known = layouts[id(item.case)]
        value = read(item.case, form(size), known)
        for cell in filter(None, cells):
            value /= read(item.case, cell.strip("$"), known)
        suffix = "saved" if kind == "saved" else "expert_parameters" if item.expert else "parameters"
        key = (id(item.case), f"{item.component.name}.{suffix}")
        sums[key] = sums.get(key, Fraction(0)) + value
        assert pipeline in ("$p$", "first", "last")
        shards = "expert_optimizer_shards" if item.expert else "optimizer_shards"
        symbol = item.case.terms[shards].symbol.name
        assert not states or read(item.case, states.strip("$"), known) == known[symbol]
        assert bool(states) == (kind != "saved")
    for (case, name), value in sums.items():
        assert value == layouts[case][name], name
    assert len(sums) > 20


@cache
def values_of_experts() -> dict[str, Number]:
    values = {**variants.LAYOUT.values(), **dict.fromkeys(OFF, 0)}
    names = [name for name in matrix.EXPERTS.terms.terms
             if name.endswith((".parameters", ".saved", "shards")) and not name.startswith(("stage", "model"))]
    terms = matrix.EXPERTS.terms
    known = {letter: Fraction(value) for letter, value in values.items()}
    for term in terms.closure([*names, "experts.expert_parameters"]):
        value = evaluate(terms.closure([term.name]), values)[term.name]
        known[str(term.symbol.name)] = Fraction(int(value.p), int(value.q))
    return known


def test_every_moment_is_the_ledgers(text: str) -> None:
    known, seen = at(STAGED[1]), 0
    table = {row[0]: row for row in rows(text, "moments")}
    for item in (name for name in known if name.startswith("first.") and name.endswith(".all")):
        site = item.split(".")[1]
        _, first, first_gib, last, last_gib = table[escape(moments.SITES[site].meaning)]
        for rank, cell, size in (("first", first, first_gib), ("last", last, last_gib)):
            if cell != "--":
                seen += 1
                value = known[f"{rank}.{site}.all"]
                assert read(DENSE, form(cell), known) == value, (rank, site)
                assert size == gib(Rational(value))
            else:
                assert known[f"{rank}.{site}.all"] == known[f"{rank}.inner_activations"]
    assert seen > 10


def test_every_line_of_the_step_time_is_the_ledgers(text: str) -> None:
    case = display.TIMED
    machine = {item.letter: 3 + 2 * place for place, item in enumerate(LETTERS) if item.kind.value == "machine"}
    values = {**machine, **STAGED[2].values(), **dict.fromkeys(("ot", "og", "ow", "st", "ord"), 0), "dom": 8, "r": 5,
              "w": 4, "Wx": 10**3, "en": 700, "ex": 600}
    known = values_of(case.terms, values)
    assert known["pipeline.borders"] > 0
    part = text[text.index(r"\label{app:display}"):text.index(r"\label{app:differences}")]
    formulas = [formula for line in part.splitlines() if line.startswith(r"\form{") for formula in formulas_in(line)]
    names = []
    for line in formulas:
        symbol, _, right = line.partition(" = ")
        (name,) = reader(case.terms).read(symbol).names()
        names.append(name)
        assert read(case, right, known) == known[name], name
    assert names == [str(case.terms[name].symbol.name) for name in display.NAMES]


def test_what_frameworks_add_is_what_their_ledgers_have_more(text: str) -> None:
    table = {row[0]: row[1:] for row in rows(text, "differences")}
    frameworks = [item for item in IMPLEMENTATIONS.values() if item is not MEGATRON]
    values = {**STAGED[1].values(), **differences.VALUES, **dict.fromkeys(OFF, 0), "m": 3, "w": 4}
    values["B"] = 3 * values["D"]
    sizes = {item.name: _saved(differences.case_of(item), values) for item in IMPLEMENTATIONS.values()}
    titles = {name: title for own in sizes.values() for name, (title, _) in own.items()}
    for name, title in titles.items():
        base, *others = (sizes[item.name].get(name, ("", Fraction(0)))[1] for item in (MEGATRON, *frameworks))
        printed = table.get(escape(title))
        if printed is None:
            assert {*others} == {base}, name
            continue
        known = {letter: Fraction(value) for letter, value in values.items()} | {"v": Fraction(128256), "A": Fraction(
            values["a"] * values["d"]), "K": Fraction(values["k"] * values["d"])}
        assert read(DENSE, form(printed[0]), known) == base
        for cell, size in zip(printed[1:], others, strict=True):
            assert (Fraction(0) if cell == "--" else read(DENSE, form(cell), known)) == size - base, (name, cell)
    assert len([title for title in titles.values() if escape(title) in table]) > 4


def _saved(case: Case, values: Mapping[str, int]) -> dict[str, tuple[str, Fraction]]:
    """Bytes that the components of an implementation save, by name, evaluated without simplification."""
    names = [name for name in case.terms.terms if name.endswith(".saved") and "layer" not in name]
    found = evaluate(case.terms.closure(names), {**values, "g": 1})
    return {
        name: (case.terms[name].rows[0].component.title, Fraction(int(found[name].p), int(found[name].q)))
        for name in names
    }


def test_experts_and_latent_attention_are_the_ledgers(text: str) -> None:
    known = values_of_experts()
    for name, row in zip(variants.forms(), rows(text, "variants"), strict=True):
        symbol, _, right = form(row[0]).partition(" = ")
        term = matrix.EXPERTS.terms[name]
        assert reader(matrix.EXPERTS.terms).read(symbol).sign == f".{term.symbol.name}"
        value = known[str(term.symbol.name)]
        assert read(matrix.EXPERTS, right, known) == value, name
        assert row[1:] == [digits(Rational(value)), gib(Rational(value)) if term.unit == "bytes" else ""]


def test_every_number_of_the_example_computes_what_it_says(text: str) -> None:
    part = text[text.index(r"\label{app:numbers}"):text.index(r"\label{app:beside}")]
    results = []
    for line in part.splitlines():
        numbers = [formula for formula in formulas_in(line) if formula.startswith("= ")]
        if numbers:
            found = re.search(r"\$=\$ ([\d\\,]+) (bytes|elements)", line)
            assert found is not None
            results.append(Fraction(found[1].replace(r"\,", "")))
            assert compute(read_latex(numbers[0].removeprefix("= ")), {}) == results[-1]
    layer, parameters, short, *missing = results
    known = at(worked.LAYOUT)
    assert (layer, parameters) == (known[LAYER], known[PARAMETERS])
    assert short + sum(missing) == known["first.total"]
    assert f"In all {digits(Rational(known['first.total']))} bytes" in part
    for rank, row in zip(by_rank(worked.LAYOUT), rows(text, "numbers"), strict=True):
        assert row[2:-1] == [gib(rank[f"stage.{kind}"]) for kind in worked.KINDS]


def test_every_published_difference_is_the_declared_one(text: str) -> None:
    printed = rows(text, "beside")
    pairs = [(item, pair) for item in beside.all_published() for pair in beside.chosen(item)]
    assert len(printed) == len(pairs) > 10
    assert {item.name for item, _ in pairs} == {item.name for item in beside.all_published()}
    for (item, pair), (meaning, difference, reason) in zip(pairs, printed, strict=True):
        assert meaning == escape(pair.meaning)
        assert reason == escape(pair.remark)
        assert cite(item.source) in text
        assert pair.difference is not None
        terms = (*ledger_of(item, pair).terms.values(), *item.terms.terms.values())
        notation = notations({term.symbol: term for term in terms}.values(), item.name)[2]
        tree = notation.read(form(difference))
        for step in (3, 7):
            values = {part: Rational(step * place + 11) for place, part in enumerate(sorted(
                pair.difference.free_symbols, key=str))}
            expected = pair.difference.xreplace(values)
            known = {str(part.name): Fraction(int(value.p), int(value.q)) for part, value in values.items()}
            known |= {letter: known[left] * known[right] for letter, left, right in (("A", "a", "d"), ("K", "k", "d"))
                      if {left, right} <= known.keys()}
            assert compute(tree, known) == Fraction(int(expected.p), int(expected.q)), pair.term


def test_the_figure_has_the_passes_of_a_step(text: str) -> None:
    ends = (0, figure.SHOWN.values()["p"] - 1)
    bars = re.findall(r"\\rule\{[\d.]+mm\}\{([\d.]+)mm\}", text)
    heights = [Fraction(bar) for bar in bars]
    each = [sum(heights[place:place + 3]) for place in range(0, len(heights), 3)]
    ranks = by_rank(figure.SHOWN)
    for rank in ends:
        found = figure.passes(figure.SHOWN, rank)
        assert max(item.total for item in found) == ranks[rank]["stage.total"]
        assert [item.name for item in found].count("F") == ranks[rank]["num_microbatches"]
        drawn, each = each[:len(found)], each[len(found):]
        scale = [height / Fraction(int(item.total.p), int(item.total.q)) for height, item in zip(
            drawn, found, strict=True)]
        assert max(scale) / min(scale) < Fraction(1003, 1000)
    assert each == []


@pytest.mark.latex
@NEEDS_LATEX
def test_it_compiles_to_at_most_ten_pages(text: str, tmp_path: Path) -> None:
    (tmp_path / "appendix.tex").write_text(text)
    log = typeset(tmp_path, "appendix")
    refuse_complaints(log)
    assert pages(log) <= LIMIT
