"""docs/field-reports.md is fresh, and its counts are those of a recount by hand."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from validation import field_reports
from validation.measured.remarks.gaps import FAR

with (Path(__file__).parents[1] / "data" / "field_reports.csv").open(newline="") as table:
    ROWS = list(csv.DictReader(table))


def test_every_report_is_answered_or_says_what_is_missing() -> None:
    assert len(ROWS) == 65
    for row in ROWS:
        assert bool(row["arguments"]) != bool(row["missing"])
        assert row["outcome"] in (("trained", "oom", "estimate") if row["arguments"] else ("",))


@pytest.mark.slow
def test_the_page_is_fresh() -> None:
    page = field_reports.page()
    assert field_reports.PAGE.read_text(encoding="utf-8") == page
    found = field_reports.answered()
    assert len(found) == sum(bool(row["arguments"]) for row in ROWS)
    bold = [item for item in found if item.line[-1].startswith("**")]
    assert [(item.row["outcome"], item.explanation.peak.verdict) for item in bold if item.row["outcome"] == "oom"] == [
        ("oom", "fits")] * sum(item.row["outcome"] == "oom" for item in bold)
    measured = {item.row["report"]: item.predicted / 2**30 / float(item.row["gib"]) - 1 for item in found
                if item.row["quantity"] == "reserved"}
    assert 0 < measured["NVIDIA/Megatron-LM#2772"] < 0.03
    assert abs(measured["pytorch/torchtitan#1207"]) < 0.001
    assert 0 < measured["pytorch/torchtitan#1789"] < 0.12  # shares of saved tensors are those of dense models
    far = [item for item in found if item.error is not None and abs(item.error) > FAR]
    assert len(far) == 6
    for item in far:
        assert f"| {' | '.join(item.gap[2:4])} |" in page
    with pytest.raises(ValueError, match="neither a cause nor another reading"):
        _ = field_reports.Answered({**far[0].row, "cause": "", "tried": ""}, far[0].explanation).gap
    needed = {item.row["report"]: item.predicted for item in found}
    assert needed["NVIDIA/Megatron-LM#525"] / 2**30 > 28.82  # what was allocated when the error came
