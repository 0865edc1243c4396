"""Steps of Megatron-Core's local layers, and of Transformers under FSDP2, that were measured on one H100.

``validation/programs/megatron_on_gpu.py`` is the program, on a H100 80GB HBM3 with driver 580.159.04, PyTorch 2.11 with
CUDA 13.0, megatron-core 0.16.1 and Transformers 5.17.
"""

from __future__ import annotations

from typing import Any

import pytest

from shardmath import explain
from validation.measured.case import PEAK, Case
from validation.measured.metrics import pairs
from validation.measured.reading import rows
from validation.measured.replays import replay_of, replays
from validation.measured.sets.one_h100 import EXPERTS, FLASH, FSDP2, TABLE, UNFUSED, read

pytestmark = pytest.mark.slow

ROWS, CASES = rows(TABLE), read()
#: Roles that are there between two steps.
PERSISTENT = ("weight", "gradient", "optimizer", "buffer")


def account(case: Case) -> Any:
    assert case.model is not None
    return explain(case.model, case.gpu, **case.arguments)


def is_in_the_optimizer(row: dict[str, str]) -> bool:
    """Say whether the first step, which makes the moments, has the whole peak, and tokens no part in it."""
    step = int(row["steady_bytes"]) + 4 * int(row["parameters"])
    return all(abs(step - int(row[peak])) < 2**21 for peak in ("first_allocated_bytes", "allocated_bytes"))


def test_models_have_the_parameters_of_the_runs() -> None:
    for row, case in zip(ROWS, CASES, strict=True):
        assert account(case).parameters.total == int(row["parameters"]), case.id


def test_peaks() -> None:
    ends = {FLASH: (-0.001, 0.012), UNFUSED: (-0.012, 0), EXPERTS: (-0.0007, 0), FSDP2: (-0.0001, 0)}
    known = pairs(CASES, PEAK)
    assert len(known) == 15
    for pair in known:
        low, high = ends[pair.case.group]
        assert low < pair.error < high, pair.case.id
    assert sum(abs(pair.error) < 0.0002 for pair in known) == 12


def test_between_steps_nothing_is_missing() -> None:
    """The ledger has states and workspaces; recomputed experts keep inputs."""
    for row, case in zip(ROWS, CASES, strict=True):
        missing = int(row["steady_bytes"]) - sum(account(case).ranks[0].by_role[role] for role in PERSISTENT)
        kept = 128 * 2**20 if case.group == EXPERTS and case.arguments["recompute"] == "full" else 0
        assert 0 <= missing - kept < 2**22, case.id


def test_peaks_in_an_optimizer_of_lists() -> None:
    """Without Apex the step is PyTorch's AdamW of lists, with a fp32 copy of every matrix more than the fused one."""
    known = [(row, case) for row, case in zip(ROWS, CASES, strict=True)
             if case.group == FLASH and is_in_the_optimizer(row)]
    assert len(known) == 3
    for row, case in known:
        explanation = account(case)
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


def test_dense_steps_are_replayed_as_the_stored_file_says() -> None:
    """Those without experts; the gradients of unfused attention's scores have no rows."""
    stored = {case.id: replay for case in CASES if (replay := replay_of(case)) is not None}
    assert {*stored} == {case.id for case in CASES if case.group != EXPERTS}
    ends = {FLASH: (-0.01, 0.02), UNFUSED: (-0.04, 0), FSDP2: (-0.001, 0.001)}
    for row, case in zip(ROWS, CASES, strict=True):
        if case.id in stored:
            reserved, allocated = stored[case.id]
            assert reserved == replays()[case.id]
            assert allocated == account(case).peak_bytes
            low, high = ends[case.group]
            assert low < reserved / int(row["reserved_bytes"]) - 1 < high, case.id
