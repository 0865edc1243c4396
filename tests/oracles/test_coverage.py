"""The tables of docs/coverage.md are what the reader, the implementations and the oracles make of families and rows."""

from __future__ import annotations

import os
from pathlib import Path

from oracles import coverage, row_counts

PAGE = Path(__file__).resolve().parents[2] / "docs" / "coverage.md"
BEGIN, END = "<!-- written by `make coverage` -->", "<!-- end -->"


def test_the_oracles_of_rows_are_current() -> None:
    """With UPDATE_DOCUMENTS=1 in the environment, write catalogue/oracles.toml instead of comparing it."""
    made = row_counts.written()
    if os.environ.get("UPDATE_DOCUMENTS"):
        row_counts.FILE.write_text(made, encoding="utf-8")
    else:
        assert row_counts.FILE.read_text(encoding="utf-8") == made, "run: make coverage"


def test_oracles_name_the_terms_that_they_compare() -> None:
    for every in row_counts.oracles().values():
        for oracle in every:
            assert set(oracle.terms) <= row_counts.named(oracle.module), oracle.file


def test_the_page_is_current() -> None:
    """With UPDATE_DOCUMENTS=1 in the environment, write the tables instead of comparing them."""
    text = PAGE.read_text()
    before, rest = text.split(f"{BEGIN}\n")
    stood, after = rest.split(f"\n{END}")
    made = coverage.tables()
    if os.environ.get("UPDATE_DOCUMENTS"):
        PAGE.write_text(f"{before}{BEGIN}\n{made}\n{END}{after}")
    else:
        assert stood == made, "run: make coverage"
