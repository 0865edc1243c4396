"""Measured memory outside of PyTorch's allocator beside the constants of the ledger."""

from __future__ import annotations

from pathlib import Path

import pytest

from validation.measured.outside import DRIVER, MIB, TABLE, by_generation, context_of, is_inside, section, table
from validation.measured.reading import rows

PAGE = Path(__file__).resolve().parents[1] / "docs" / "validation.md"


def test_the_page_has_the_section() -> None:
    assert section() in PAGE.read_text(encoding="utf-8")


def test_every_row_names_a_constant_and_an_issue() -> None:
    for row in rows(TABLE):
        assert row["component"] in ("context", "nccl", DRIVER)
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


def test_a_generation_that_was_not_measured_says_so() -> None:
    assert (context_of("Hopper"), context_of("Ampere"), context_of("Blackwell")) == (749 * MIB, None, None)
    lines = by_generation().splitlines()[2:]
    assert lines[0] == "| Blackwell | RTX PRO 6000, RTX 5090 | 555 to 595 | not measured | not measured |"
    assert lines[1] == "| Hopper | H100 | 619 to 767 | 390 to 3128 | 749 |"
    assert [line.split(" | ")[-1] for line in lines] == ["not measured |", "749 |", "not measured |"]


def test_whole_steps_are_those_of_their_table() -> None:
    text = " ".join(section().split())
    assert "take 1.40 GB outside with FSDP2" in text
    assert "8.31 GB with Megatron-Core on one rank, as much as 18 groups of NCCL" in text
    assert "keeps 839 MiB of 80 GiB, 1.02%" in text
