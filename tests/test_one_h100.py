"""Steps of Megatron-Core's local layers, and of Transformers under FSDP2, that were measured on one H100.

``validation/programs/megatron_on_gpu.py`` is the program, on a H100 80GB HBM3 with driver 580.159.04, PyTorch 2.11 with
CUDA 13.0, megatron-core 0.16.1 and Transformers 5.17. Nothing in the ledger was changed after these runs.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from shardmath import explain

pytestmark = pytest.mark.slow

TABLE = Path(__file__).resolve().parent / "data" / "one_h100.csv"
with TABLE.open(encoding="utf-8", newline="") as file:
    ROWS = tuple(csv.DictReader(file))
#: Of the public models: those of other sizes are in the table, and are not judged here.
MEGATRON = [row for row in ROWS if row["program"] == "megatron-core" and "," not in row["model"]]
#: Without Transformer Engine and Apex weight gradients are products of their own, rotary embeddings those of PyTorch,
#: and the optimizer works on lists of tensors.
LOCAL = {"peak": "megatron_local", "optimizer_kernel": "foreach", "rope": "unfused", "value": "view",
         "weight_gradient": "separate"}


def account(row: dict[str, str]) -> Any:
    sequences = int(row["micro_batch_size"])
    kernels = LOCAL | ({"attention": "unfused", "norm": "torch"} if row["attention"] == "local" else {})
    return explain(
        row["model"], "h100-80gb", implementation="megatron", num_gpus=1, seq_length=int(row["seq_length"]),
        micro_batch_size=sequences, global_batch_size=sequences * int(row["microbatches"]),
        recompute=row["recompute"].replace("selective", "core_attention"), kernels=kernels)


def error_of(row: dict[str, str]) -> float:
    return account(row).peak_bytes / int(row["allocated_bytes"]) - 1


def is_in_the_optimizer(row: dict[str, str]) -> bool:
    """Say whether the first step, which makes the moments, has the whole peak, and tokens no part in it."""
    step = int(row["steady_bytes"]) + 4 * int(row["parameters"])
    return all(abs(step - int(row[peak])) < 2**21 for peak in ("first_allocated_bytes", "allocated_bytes"))


def test_peaks_in_the_passes() -> None:
    errors = [error_of(row) for row in MEGATRON if not is_in_the_optimizer(row)]
    assert len(errors) == 6
    assert all(-0.006 < error < 0.017 for error in errors)
    assert sum(abs(error) < 0.0001 for error in errors) == 3


def test_peaks_in_an_optimizer_of_lists() -> None:
    """Without Apex the step is PyTorch's AdamW of lists, with a fp32 copy of every matrix more than the fused one."""
    rows = [row for row in MEGATRON if is_in_the_optimizer(row)]
    assert [row["recompute"] for row in rows] == ["full", "full"]
    for row in rows:
        explanation = account(row)
        assert explanation.peak.site == "optimizer_step"
        assert 0 < int(row["allocated_bytes"]) - explanation.peak_bytes < 2**22
        roots, = (line["bytes"] for line in explanation.records() if line["component"] == "listed_roots")
        block = int(row["allocated_bytes"]) - int(row["steady_bytes"]) - roots
        assert 0 <= block <= 2**20  # of a block that was not split


def test_communicators_of_one_rank_take_the_most_outside_of_pytorch() -> None:
    """Megatron-Core makes groups of one rank, and NCCL takes memory for each; FSDP2 needs one group."""
    outside = {program: {int(row["outside_bytes"]) for row in ROWS if row["program"] == program}
               for program in ("megatron-core", "fsdp2")}
    assert outside == {"megatron-core": {8_313_962_496, 8_320_253_952}, "fsdp2": {1_395_458_048}}
