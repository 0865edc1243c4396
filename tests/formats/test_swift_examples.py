"""Memory that ms-swift's example scripts state: settings, what is predicted, and its section of docs/validation.md."""

from __future__ import annotations

import re

import pytest

from shardmath.formats.described import read_settings
from shardmath.formats.table import table
from validation.measured.case import PROCESS
from validation.measured.datasets import DATASETS
from validation.measured.estimates import Estimate, estimate
from validation.measured.metrics import Pair, pairs
from validation.measured.reading import rows, whole
from validation.measured.replays import replay_of, replays
from validation.measured.sections import section
from validation.measured.sets import swift_examples
from validation.report import PAGE

ROWS, CASES = rows(swift_examples.TABLE), swift_examples.read()


def test_rows_name_commit_and_figure() -> None:
    assert len({row["id"] for row in ROWS}) == len(ROWS)
    for row in ROWS:
        assert re.fullmatch(r"[0-9a-f]{10}", row["commit"])
        assert row["path"].startswith("examples/")
        assert row["batch"] in (swift_examples.PACKED, "shorter")
        assert bool(row["gib"]) != ("GiB" in row["remark"]), row
        assert (row["batch"] == swift_examples.PACKED) == ("packing=true" in row["settings"].split())


def test_every_setting_is_known() -> None:
    for row, case in zip(ROWS, CASES, strict=True):
        if case.model is not None:
            words = swift_examples.words_of(row["settings"])
            run = read_settings(table(row["format"]), row["id"], words, whole(row["num_gpus"]))
            assert run.unknown == (), row["id"]


def test_release_differs_where_the_table_says_so() -> None:
    """Transformers before 4.54 had PyTorch's AdamW without the fused kernel."""
    for row, case in zip(ROWS, CASES, strict=True):
        if row["release_arguments"] and case.model is not None:
            assert case.arguments["kernels"]["optimizer_kernel"] == "foreach"


def _packed(*groups: str) -> list[Pair]:
    return [pair for pair in pairs(CASES, PROCESS) if pair.case.group in groups]


@pytest.mark.slow
def test_zero_3_with_liger_needs_as_much_for_8k_as_for_16k() -> None:
    liger = [pair for pair in _packed(swift_examples.TRANSFORMERS) if "ZeRO-3, Liger" in pair.case.id]
    assert len(liger) == 5
    assert all(abs(pair.error) < 0.07 for pair in liger)
    assert {pair.site for pair in liger if "8K" in pair.case.id} == {"optimizer_step"}


@pytest.mark.slow
def test_no_packed_row_should_have_run_out_of_memory() -> None:
    full = [said for case in CASES if swift_examples.PACKED in case.traits
            and isinstance(said := estimate(case), Estimate)]
    assert len(full) > 20
    assert "out of memory" not in {said.verdict for said in full}


@pytest.mark.slow
def test_stored_replays_are_those_of_today() -> None:
    case = next(case for case in CASES if case.id == "qwen2.5-7b, TP 4, 32K")
    replay = replay_of(case)
    assert replay is not None
    assert replays()[case.id] == replay[0]


@pytest.mark.slow
def test_section_of_the_page_is_fresh() -> None:
    dataset = next(dataset for dataset in DATASETS if dataset.name == "swift_examples")
    assert section(dataset) in PAGE.read_text(encoding="utf-8")
