"""nanotron: exact against allocations counted from its own modules, never above what published runs reserved."""

from __future__ import annotations

import csv
from pathlib import Path
from statistics import median

import pytest

import shardmath
from validation.measured.case import GIB
from validation.measured.sets import nanotron

with (Path(__file__).parents[1] / "data" / "nanotron_counted.csv").open(newline="") as table:
    COUNTED = list(csv.DictReader(table))
#: Offsets of sequences, counters of AdamW's steps and buffers of point-to-point metadata, which are no rows.
SMALL = 100_000
#: Of cuBLAS, which the counting program had none of: one for each thread that multiplies, on Hopper.
WORKSPACES = "thread_workspace"
STATIC = ("weight", "gradient", "optimizer", "buffer")
LAYOUT = ("tensor_parallel", "pipeline_parallel", "data_parallel", "micro_batch_size", "global_batch_size",
          "distributed_optimizer")
#: A pipeline of more ranks than the model has blocks.
TOO_MANY_RANKS = "line 1316"


def _explain(row: dict[str, str]) -> shardmath.Explanation:
    model, ranks = nanotron.model(row["model"]), int(row["pp"])
    layout = {"pipeline_layout": nanotron.stage_layers(model, ranks)} if ranks > 1 else {}
    return shardmath.explain(
        model, nanotron.GPU, implementation="nanotron", seq_length=nanotron.SEQ_LENGTH, vocab_multiple=1,
        micro_batch_size=int(row["mbs"]), global_batch_size=int(row["mbs"]) * int(row["grad_acc"]) * int(row["dp"]),
        tensor_parallel=int(row["tp"]), pipeline_parallel=ranks, data_parallel=int(row["dp"]),
        distributed_optimizer=row["zero"] == "1", gradients="fp32",
        sequence_parallel=row["mode"] == "reduce_scatter" and row["tp"] != "1", **layout,
    )


@pytest.mark.slow
@pytest.mark.parametrize("row", COUNTED, ids=lambda row: "-".join(list(row.values())[:8]))
def test_first_rank_as_counted(row: dict[str, str]) -> None:
    """Allocated bytes of the first rank, between steps and at the peak of the passes."""
    assert int(row["first_rank_layers"]) == nanotron.stage_layers(nanotron.model(row["model"]), int(row["pp"]))[0]
    first = _explain(row).ranks[0]
    workspaces = sum(line.bytes for line in first.lines if line.component == WORKSPACES)
    static = sum(line.bytes for line in first.lines if line.role in STATIC) - workspaces
    assert workspaces == 2 * 32 * 2**20
    assert 0 <= int(row["persistent"]) - static < SMALL
    moment = max(size for name, size in first.moments.items() if name != "optimizer_step")
    passes = static + first.by_role["input"] + moment
    assert 0 <= int(row["peak"]) - passes < SMALL


@pytest.mark.slow
def test_allocated_is_below_reserved() -> None:
    """The published numbers are reserved memory, which what is allocated cannot exceed."""
    errors, above = [], []
    for case in nanotron.read():
        if case.measured and case.model:
            total = shardmath.explain(case.model, case.gpu, **case.arguments).ranks[0].total
            errors.append(total / case.measured[0].bytes - 1)
            above += [case.id] if errors[-1] > 0 else []
    assert (len(errors), above) == (1127, [TOO_MANY_RANKS])
    assert -0.25 < median(errors) < -0.1


def test_published_runs_are_what_the_allocator_reserves() -> None:
    """Counted allocations, replayed through the caching allocator's rules, give the published numbers."""
    published = {
        (case.model.name, *(case.arguments[name] for name in LAYOUT)): case.measured[0].bytes
        for case in nanotron.read() if case.measured and case.model
    }
    errors = []
    for row in COUNTED:
        t, p, data, micro, steps = (int(row[name]) for name in ("tp", "pp", "dp", "mbs", "grad_acc"))
        key = (f"nanotron {row['model']}", t, p, data, micro, micro * steps * data, row["zero"] == "1")
        if key in published:
            errors.append(int(row["reserved_replayed"]) / published[key] - 1)
            assert int(row["peak"]) < published[key] - GIB / 4
    assert len(errors) >= 9
    assert median(abs(error) for error in errors) < 0.01
