"""Measured memory outside of PyTorch's allocator beside the constants of the ledger."""

from __future__ import annotations

from pathlib import Path

import pytest

from validation.measured.outside import TABLE, is_inside, section, table
from validation.measured.reading import rows

PAGE = Path(__file__).resolve().parents[1] / "docs" / "validation.md"


def test_the_page_has_the_section() -> None:
    assert section() in PAGE.read_text(encoding="utf-8")


def test_every_row_names_a_constant_and_an_issue() -> None:
    for row in rows(TABLE):
        assert row["component"] in ("context", "nccl")
        assert "#" in row["source"] or row["source"].startswith("measured here: driver ")


@pytest.mark.parametrize(("component", "mib", "inside"), [
    ("context", 299, False), ("context", 300, True), ("context", 600, True), ("context", 601, False),
    ("nccl", 500, True), ("nccl", 501, False),
])
def test_ranges_include_their_ends(component: str, mib: int, inside: bool) -> None:
    assert is_inside({"component": component, "mib": str(mib)}) is inside


def test_a_row_outside_of_its_range_is_marked() -> None:
    line = table([row for row in rows(TABLE) if row["mib"] == "3128"]).splitlines()[-1]
    assert line.startswith("| nccl | H100 | 8 | 3128 | 400 (0 to 500) | **no** |")
