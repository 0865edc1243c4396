"""docs/validation.md is fresh, has every table, and its plots are those that it shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from validation import report
from validation.discussion import contradiction_counts
from validation.measured import glance
from validation.measured.case import RESERVED
from validation.measured.datasets import DATASETS, cases_of
from validation.measured.estimates import estimate
from validation.measured.metrics import Target, pairs

PAGE = report.PAGE


@pytest.mark.slow
def test_page_is_fresh(capsys: pytest.CaptureFixture[str]) -> None:
    assert report.main(["--check"]) == 0, capsys.readouterr().out


def test_page_has_every_table() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for dataset in DATASETS:
        assert f"## {dataset.title}" in text
        assert f"`tests/data/{dataset.table}`" in text


@pytest.mark.slow
def test_a_table_at_a_glance_counts_its_ranges() -> None:
    """Reserved memory of fullest ranks and memory of processes have ranges; allocated memory has none."""
    by_name = {dataset.name: dataset for dataset in DATASETS}
    peak, reserved = glance.lines(by_name["one_h100"])
    known = pairs(cases_of(by_name["one_h100"]), RESERVED)
    inside = sum(low[1] <= pair.measured.bytes <= high[1] for pair in known
                 for low, high in [estimate(pair.case).ends])  # type: ignore[union-attr]
    assert peak[7] == ""
    assert reserved[7] == f"{inside} of {len(known)}"
    assert 0 < inside < len(known)


def test_every_file_that_is_shown_is_there_and_no_other() -> None:
    shown = set(re.findall(r"\]\((validation/\w+\.(?:svg|csv))\)", PAGE.read_text(encoding="utf-8")))
    stored = {f"validation/{path.name}" for path in (report.DOCS / "validation").glob("*")}
    assert shown == stored


@pytest.mark.slow
def test_contradictions_of_the_other_page() -> None:
    """Of 56 runs that trained and 44 without a result, one of them without a layout; 7 and 12 as on that page."""
    found = list(map(int, re.findall(r"\d+", contradiction_counts())))
    assert found == [99, 7, 12]


def test_a_missed_target_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    met, missed = Target("one", "1 %", "0.5 %", True), Target("two", "1 %", "3 %", False)
    monkeypatch.setattr(report, "targets", lambda: (met,))
    assert report.main(["--targets"]) == 0
    monkeypatch.setattr(report, "targets", lambda: (met, missed))
    assert report.main(["--targets"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "two: asked 1 %, reached 3 %, missed"


def test_a_missing_page_is_stale_and_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(report, "DOCS", tmp_path)
    monkeypatch.setattr(report, "PAGE", tmp_path / "validation.md")
    monkeypatch.setattr(report, "DATASETS", ())
    monkeypatch.setattr(report.timed, "section", lambda: "## Step time")
    monkeypatch.setattr(report.glance, "section", lambda: "## All tables at a glance")
    monkeypatch.setattr(report.reserved, "section", lambda: "## Reserved")
    monkeypatch.setattr(report.outside, "section", lambda: "## Outside")
    monkeypatch.setattr(report.reliability, "section", lambda: "## Probability of running out of memory")
    monkeypatch.setattr(report.least, "section", lambda: "## What a run needs at least")
    for table in (report.least, report.replays, report.uneven):
        monkeypatch.setattr(table, "FILE", tmp_path / table.NAME)
        monkeypatch.setattr(table, "replayed", str)
    monkeypatch.setattr(report, "beside", lambda: {"one.svg": "<svg/>"})
    assert report.main(["--check"]) == 1
    (tmp_path / "validation").mkdir()
    (tmp_path / "validation" / "old.svg").write_text("<svg/>")
    assert report.main([]) == 0
    assert report.main(["--check"]) == 0
    assert [path.name for path in (tmp_path / "validation").iterdir()] == ["one.svg"]
