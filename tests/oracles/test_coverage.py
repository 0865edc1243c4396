"""The tables of docs/coverage.md are what the reader, the implementations and the oracles make of every family."""

from __future__ import annotations

import os
from pathlib import Path

from oracles import coverage

PAGE = Path(__file__).resolve().parents[2] / "docs" / "coverage.md"
BEGIN, END = "<!-- written by `make coverage` -->", "<!-- end -->"


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
