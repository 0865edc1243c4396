"""The Markdown tables: all rows are there, every table is well formed, and the printed formulas compute."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from read_lines import compute

from shardmath.symbolic.accounts import build
from shardmath.symbolic.components import all_components
from shardmath.symbolic.documents.forms import shown
from shardmath.symbolic.documents.formulas import cell, code
from shardmath.symbolic.documents.times import groups
from shardmath.symbolic.documents.worked import EXAMPLE
from shardmath.symbolic.exact import evaluate
from shardmath.symbolic.implementations import IMPLEMENTATIONS, Implementation
from shardmath.symbolic.parallel.legality import fixed_values
from shardmath.symbolic.parameters import BY_LETTER
from shardmath.symbolic.printers.text import letter
from shardmath.symbolic.published import all_published
from shardmath.symbolic.write import GENERATED

pytestmark = pytest.mark.slow

CELL = re.compile(r"(?<!\\)\|")


@pytest.fixture(scope="module")
def text() -> str:
    """Read the stored file, which test_packaging.py derives again."""
    return (GENERATED / "formulas.md").read_text(encoding="utf-8")


def tables(text: str) -> Iterator[tuple[str, list[list[str]]]]:
    """Every table as the last heading, of any level, and its rows of cells, the header first."""
    yield from ((heading, rows) for _, heading, rows in chapters(text))


def chapters(text: str) -> Iterator[tuple[str, str, list[list[str]]]]:
    """As ``tables``, preceded by the last heading of the second level."""
    chapter, heading, rows = "", "", list[list[str]]()
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            rows.append([part.strip() for part in CELL.split(line)[1:-1]])
        elif rows:
            yield chapter, heading, rows
            rows = []
        if line.startswith("#"):
            heading = line.lstrip("# ")
        if line.startswith("## "):
            chapter = heading


def test_tables_are_well_formed(text: str) -> None:
    found = list(tables(text))
    assert len(found) > 30
    for heading, rows in found:
        assert len({len(row) for row in rows}) == 1, heading
        assert all(re.fullmatch(r":?-+:?", part) for part in rows[1]), heading
        assert len(rows) > 2, heading
        for row in rows:
            assert all(part.count("`") % 2 == 0 for part in row), row
    before_tables = re.findall(r"(.*)\n\|.*\n\|[-:|]+\|$", text, re.MULTILINE)
    assert set(before_tables) == {""}


def test_every_parameter(text: str) -> None:
    rows = next(rows for heading, rows in tables(text) if heading == "Letters")
    assert [row[0] for row in rows[2:]] == [code(letter(item.symbol)) for item in BY_LETTER.values()]
    assert [row[1] for row in rows[2:]] == [code(item.name) for item in BY_LETTER.values()]


def test_every_tensor(text: str) -> None:
    of_component = {heading: rows for heading, rows in tables(text) if rows[0][0] == "Tensor"}
    for component in all_components():
        rows = of_component[cell(component.title)][2:]
        assert [row[0] for row in rows] == [code(tensor.name) for tensor in component.tensors]
        assert [row[2] for row in rows] == [cell(tensor.meaning) for tensor in component.tensors]
        assert [row[7] for row in rows] == [cell(tensor.source) for tensor in component.tensors]


def test_every_term_of_every_implementation(text: str) -> None:
    named = [row[0] for _, rows in tables(text) for row in rows[2:] if rows[0][0] == "Term"]
    for item in IMPLEMENTATIONS.values():
        for name in shown(build(item)):
            assert code(name) in named
            named.remove(code(name))
    for group in groups():
        for name in group.terms:
            named.remove(code(name))
    published = [
        code(name) for item in all_published() for name in item.terms.terms if name.startswith(f"{item.name}.")
    ]
    assert sorted(named) == sorted(published)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS.values(), ids=lambda item: item.name)
def test_formulas_of_the_tables_compute_the_exact_values(text: str, implementation: Implementation) -> None:
    """Read the two columns of formulas back from Markdown, for a job with recompute and without."""
    for switches in ({}, {"rcore": 1, "rmlp": 1, "bias": 1, "qkn": 1}, {"rfull": 1, "tied": 1, "b": 2, "w": 2}):
        values = {**EXAMPLE.values(), **switches, **fixed_values(implementation)}
        exact = evaluate(build(implementation).terms.values(), values)
        known: dict[str, Any] = {**values}
        known |= {term.symbol.name: exact[name] for name, term in build(implementation).terms.items()}
        computed = 0
        for row in rows_of(text, implementation):
            name, formulas = row[0].strip("`"), [part.strip("`") for part in row[3:5] if part]
            for formula in formulas:
                assert compute(formula.replace(r"\|", "|"), known) == exact[name], (name, formula)
            computed += len(formulas)
        assert computed >= len(shown(build(implementation)))


def rows_of(text: str, implementation: Implementation) -> Iterator[list[str]]:
    """The rows of terms of one implementation: under its name in components, and under its title."""
    own = f"Terms, {code(implementation.name)}"
    for chapter, heading, rows in chapters(text):
        if rows[0][0] == "Term" and (heading == own or chapter == cell(implementation.title)):
            yield from rows[2:]


def test_cells_are_safe() -> None:
    assert cell("a_b | c*d <e> [f] `g` \\") == "a\\_b \\| c\\*d \\<e\\> \\[f\\] \\`g\\` \\\\"
    assert code("a|b") == "`a\\|b`"
