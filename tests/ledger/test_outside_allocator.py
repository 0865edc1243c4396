"""Measured memory outside of PyTorch's allocator beside the constants of the ledger."""

from __future__ import annotations

from math import floor
from pathlib import Path
from statistics import median

import pytest

from shardmath import explain
from shardmath.catalogue import read
from shardmath.generated.definitions import DEFAULTS
from shardmath.machines.gpu import Gpu
from validation.measured.outside import DRIVER, MIB, TABLE, by_gpu, is_inside, section, sizes_of, table
from validation.measured.reading import rows

PAGE = Path(__file__).resolve().parents[2] / "docs" / "validation.md"


def test_the_page_has_the_section() -> None:
    assert section() in PAGE.read_text(encoding="utf-8")


def test_every_row_names_a_constant_and_a_source() -> None:
    for row in rows(TABLE):
        assert row["component"] in ("context", "nccl", DRIVER)
        assert "#" in row["source"] or row["source"].startswith(("measured here: driver ", "stas00/ml-engineering, "))
        assert {row["name"], *row["sets"].split()} <= {*read("gpus"), ""}


@pytest.mark.parametrize("name", read("gpus"))
def test_the_context_of_a_gpu_is_the_median_of_its_rows(name: str) -> None:
    sizes = sizes_of(name)
    assert Gpu.named(name).context_mib == (floor(median(sizes)) if sizes else None)


def test_an_idle_process_sets_no_context_below_the_usual_one() -> None:
    usual = DEFAULTS["context_bytes"] // MIB
    idle = [int(row["mib"]) for row in rows(TABLE) if row["measured"].startswith("idle") and row["sets"]]
    assert idle == [555, 712]
    assert min(idle) > usual == 400


@pytest.mark.parametrize(("component", "name", "mib", "inside"), [
    ("context", "", 299, False), ("context", "", 300, True), ("context", "", 600, True), ("context", "", 601, False),
    ("context", "h100-80gb", 561, False), ("context", "h100-80gb", 562, True), ("context", "h100-80gb", 1123, True),
    ("nccl", "h100-80gb", 700, True), ("nccl", "", 701, False),
])
def test_ranges_include_their_ends(component: str, name: str, mib: int, inside: bool) -> None:
    assert is_inside({"component": component, "name": name, "mib": str(mib)}) is inside


def test_a_row_outside_of_its_range_is_marked() -> None:
    line = table([row for row in rows(TABLE) if row["mib"] == "3128"]).splitlines()[-1]
    assert line.startswith("| nccl | H100 | 8 | 3128 | 400 (0 to 700) | **no** |")


def test_every_gpu_has_one_line() -> None:
    lines = by_gpu().splitlines()[2:]
    names = [name for line in lines for name in line.split(" | ")[0].strip("| ").split(", ")]
    assert sorted(names) == sorted(read("gpus"))
    assert lines[0].startswith("| a100-40gb, a100-80gb, a100-pcie-80gb, a800-80gb | 501 | 501, 409, 503 | A100 40 GB,")
    assert "mi355x-288gb | 400, as usual | none" in lines[-1]


@pytest.mark.parametrize(("name", "asked", "bytes_of"), [
    ("h100-80gb", {}, 749 * MIB), ("a100-80gb", {}, 501 * MIB), ("rtx-3090-24gb", {}, 400 * MIB),
    ("h100-80gb", {"context_bytes": 7}, 7),
])
def test_a_process_has_the_context_of_its_gpu(name: str, asked: dict[str, int], bytes_of: int) -> None:
    process = explain("llama-3.2-1b", name, seq_length=4096, **asked).process
    assert process.total - process.reserved == bytes_of
    assert process.low["total"] - process.low["reserved"] == bytes_of * 750 // 1000
    assert process.high["total"] - process.high["reserved"] == bytes_of * 1500 // 1000


def test_whole_steps_are_those_of_their_table() -> None:
    text = " ".join(section().split())
    assert "take 1.40 GB outside with FSDP2" in text
    assert "8.31 GB with Megatron-Core on one rank, as much as 18 groups of NCCL" in text
    assert "keeps 839 MiB of 80 GiB, 1.02%" in text
