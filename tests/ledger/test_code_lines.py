"""Every row of the default ledgers leads to a line of its framework, or is among those that are known to have none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import row_lines

import shardmath
from shardmath.catalogue.code import Entry, code_of, codes_of, entries, packages
from shardmath.symbolic.choices import BY_NAME
from shardmath.symbolic.components import all_components
from shardmath.symbolic.documents.formulas import counted_by, made_by
from shardmath.symbolic.implementations import IMPLEMENTATIONS

#: Rows of code that runs on a GPU alone, of which no test has a stand-in, by framework.
UNCOUNTED = {
    "megatron": {"attention.context.of_heads", "attention.context.of_halves", "flex_dispatch.arrived_sorted",
                 "flex_dispatch.gradient_arrived", "hadamard.matrix"},
    "huggingface": {
        "loss.joined_gradients",
        # Liger's LayerNorm of heads
        "attention.q_norm.heads_input", "attention.k_norm.heads_input",
        # behind a loss of torchtune
        *(f"loss.{part}_held_by_caller{units}" for part in ("scored", "whole") for units in ("", "_ends", "_root")),
    },
}
ROWS = {f"{component.name}.{tensor.name}": (component, tensor)
        for component in all_components() for tensor in component.tensors}


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: f"{entry.framework} {entry.name}")
def test_an_entry_is_about_rows_and_options_that_there_are(entry: Entry) -> None:
    assert entry.framework in IMPLEMENTATIONS
    for axis, options in entry.options.items():
        assert set(options) <= set(BY_NAME[axis].options)
    for name in entry.rows:
        alone = Entry(entry.framework, entry.package, entry.file, entry.name, (name,), {})
        assert [row for row in ROWS if alone.matched(row, {}) > 0], f"no row is named {name}"


def test_an_entry_is_somewhere_the_place_of_each_of_its_rows() -> None:
    """No entry is hidden by another: with some options it is the one that counts."""
    for entry in entries():
        first = {axis: options[0] for axis, options in entry.options.items()}
        choices = {**IMPLEMENTATIONS[entry.framework].choices, **first}
        for name in entry.rows:
            code = code_of(entry.framework, choices, name.replace("*", "x"))
            assert code is not None
            assert (code.file, code.name) == (entry.file, entry.name.partition(" > ")[0]), name


def test_addresses_name_a_commit() -> None:
    for key, package in packages().items():
        assert package["repository"].startswith("https://github.com/"), key
        revision = package["revision"]
        assert revision == package["release"] or len(bytes.fromhex(revision)) == 20, key


def test_a_formula_has_the_line_of_each_row() -> None:
    rows = {row.name: row.code for row in shardmath.formula("swiglu.saved").rows}
    assert {name: (code.package, code.name, code.line) for name, code in rows.items() if code} == {
        "swiglu.gate_up.input": ("transformer_engine", "_LayerNormLinear.forward", 476),
        "swiglu.gate": ("megatron_core", "SwiGLUFunction.forward", 166),
        "swiglu.up": ("megatron_core", "SwiGLUFunction.forward", 166),
        "swiglu.down.input": ("transformer_engine", "_Linear.forward", 439),
    }
    eager = shardmath.formula("swiglu.saved", kernels={"swiglu": "unfused"}).rows
    assert {row.code.name for row in eager if row.name in {"swiglu.gate", "swiglu.up"} and row.code} == {"MLP.forward"}


def test_a_formula_has_the_test_that_counts_each_row() -> None:
    root = Path(__file__).resolve().parents[2]
    rows = shardmath.formula("layer.saved").rows + shardmath.formula("loss.saved", "huggingface").rows
    assert all((root / row.oracle).is_file() for row in rows)
    assert {row.oracle for row in shardmath.formula("embedding.embedding_backward").rows} == {
        "tests/ledger/test_peak_rows.py"}


def test_other_kernels_do_not_get_the_line_of_the_usual_ones() -> None:
    row = next(row for row in shardmath.formula("attention.saved", kernels={"attention": "unfused"}).rows
               if row.name == "attention.q")
    assert row.code is None


def test_a_row_of_other_kernels_has_the_lines_of_those_that_it_may_have() -> None:
    unfused = {"swiglu": ("unfused",), "mlp": ("swiglu",)}
    lines = codes_of("megatron", {**unfused, "swiglu": ("fused", "unfused")}, "swiglu.gate")
    assert [line.name for line in lines] == ["SwiGLUFunction.forward", "MLP.forward"]
    assert codes_of("megatron", unfused, "swiglu.gate") == lines[1:]
    assert codes_of("megatron", unfused, "swiglu.silu") == lines[1:]
    assert "swiglu.silu" not in {row.name for row in shardmath.formula("swiglu.saved").rows}


@pytest.mark.slow
@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_rows_of_all_kernels_have_a_line_and_a_test(name: str) -> None:
    """A row comes with the line that makes it and with a test that counts it; some are known to have no test yet."""
    every = row_lines.of_all_kernels(name)
    names = {f"{component.name}.{tensor.name}" for component, tensor in every}
    assert names == set(row_lines.linked(every, made_by, name))
    assert names.difference(row_lines.linked(every, counted_by, name)) == UNCOUNTED.get(name, set())


@pytest.mark.slow
def test_the_page_counts_rows_with_and_without_a_line() -> None:
    """With UPDATE_DOCUMENTS=1 in the environment, write the table instead of comparing it."""
    page = Path(__file__).resolve().parents[2] / "docs" / "coverage.md"
    begin, end = "<!-- rows: written by `make coverage` -->\n", "\n<!-- end of rows -->"
    before, rest = page.read_text(encoding="utf-8").split(begin)
    stood, after = rest.split(end.lstrip("\n"))
    made = row_lines.table()
    if os.environ.get("UPDATE_DOCUMENTS"):
        page.write_text(f"{before}{begin}{made}{end}{after}", encoding="utf-8")
    else:
        assert stood == f"{made}\n", "run: make coverage"
