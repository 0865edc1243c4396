"""Three axes of tensor parallelism: who asks for them, which layouts are legal, what is divided by what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shardmath import InputError, explain, sweep

pytestmark = pytest.mark.slow

SPACES = Path(__file__).resolve().parents[2] / "docs" / "spaces"

RUN: dict[str, Any] = {
    "gpu": "h100-80gb", "num_gpus": 64, "global_batch_size": 64, "tensor_parallel": 2, "tensor_parallel_y": 2,
    "tensor_parallel_z": 4, "seq_length": 2048,
}


def explained(**changes: Any) -> Any:
    return explain("llama-3.1-8b", **{**RUN, **changes})


@pytest.mark.parametrize(("changes", "field", "rule", "nearest"), [
    ({"num_gpus": 60}, "num_gpus", "a multiple of tensor_parallel * tensor_parallel_y * tensor_parallel_z", "32 or 64"),
    ({"data_parallel": 2}, "num_gpus", "must equal tensor_parallel * tensor_parallel_y * tensor_parallel_z", "32"),
    ({"tensor_parallel": 3, "num_gpus": 48}, "tensor_parallel", "must divide num_attention_heads", "tensor_parallel 2"),
    ({"tensor_parallel_y": 3, "num_gpus": 48}, "tensor_parallel_y", "must divide hidden_size", "2"),
    ({"tensor_parallel_z": 3, "num_gpus": 48}, "tensor_parallel_z", "must divide hidden_size", "2"),
    ({"global_batch_size": 4}, "tensor_parallel_z", "must divide global_batch_size", "tensor_parallel 8"),
    ({"pipeline_parallel": 2}, "pipeline_parallel", "must be 1", "1"),
    ({"context_parallel": 2}, "context_parallel", "must be 1", "1"),
    ({"sequence_parallel": True}, "sequence_parallel", "must be 0", "0"),
    ({"implementation": "torchtitan"}, "tensor_axes", "must be one of one", "one"),
    ({"kernels": {"peak": "megatron_te"}}, "kernel", "choose peak = saved", ""),
])
def test_refuses_what_axes_cannot_share_out(changes: dict[str, Any], field: str, rule: str, nearest: str) -> None:
    with pytest.raises(InputError) as error:
        explained(**changes)
    assert error.value.field == field
    assert rule in str(error.value)
    assert nearest in str(error.value).partition("nearest legal: ")[2] or not nearest


def test_weights_are_divided_by_all_axes_and_tokens_by_z_alone() -> None:
    axes = dict.fromkeys(("tensor_parallel", "tensor_parallel_y", "tensor_parallel_z"), 1)
    kept = {
        axis: {(line.component, line.role): line.bytes
               for line in explained(**{**axes, axis: 4}, kernels={"tensor_axes": "three"}).ranks[0].lines}
        for axis in axes
    }
    first = kept["tensor_parallel"]
    for axis, sizes in kept.items():
        assert sizes["attention", "weight"] == first["attention", "weight"], axis
        assert sizes["swiglu", "optimizer"] == first["swiglu", "optimizer"], axis
        shared_out = axis != "tensor_parallel_z"
        assert (sizes["head", "weight"] == first["head", "weight"]) == shared_out
        assert (sizes["swiglu", "activation"] == first["swiglu", "activation"]) == (axis == "tensor_parallel")


def test_a_search_tries_all_grids_or_those_that_are_asked_for() -> None:
    job: dict[str, Any] = {"gpu": "h100-80gb", "num_gpus": 16, "global_batch_size": 64, "seq_length": 2048, "top": 1000}
    searched = sweep("llama-3.2-1b", **job, kernels={"tensor_axes": "three"})
    grids = {(best.tensor_parallel, best.tensor_parallel_y, best.tensor_parallel_z, best.data_parallel)
             for best in searched.best}
    assert all(x * y * z * data == 16 for x, y, z, data in grids)
    assert {max(grid[axis] for grid in grids) for axis in (1, 2, 3)} == {16}
    asked = sweep("llama-3.2-1b", **job, tensor_parallel_y=(1, 2), tensor_parallel_z=(4,))
    assert {(best.tensor_parallel_y, best.tensor_parallel_z) for best in asked.best} == {(1, 4), (2, 4)}
    assert asked.best[0] in searched.best


@pytest.mark.parametrize(("sequences", "error"), [(1024, -0.31), (8192, 0.27)])
def test_the_share_of_the_peak_that_the_paper_reports_lies_between_two_batches(sequences: int, error: float) -> None:
    job: dict[str, Any] = {
        "gpu": "a100-80gb", "network": "slingshot-200", "node_size": 4, "num_gpus": 1024, "seq_length": 2048,
        "global_batch_size": sequences, "kernels": {"tensor_axes": "three"}, "overlap_grad_reduce": 1,
        "overlap_param_gather": 1,
    }
    best = sweep(str(SPACES / "gpt-80b.json"), **job, recompute=("full",), top=1).best[0]
    sizes = ("tensor_parallel", "tensor_parallel_y", "tensor_parallel_z", "micro_batch_size")
    time = explain(str(SPACES / "gpt-80b.json"), **job, recompute="full",
                   **{name: getattr(best, name) for name in sizes}).time
    assert time is not None
    assert time.hfu / 0.57 - 1 == pytest.approx(error, abs=0.005)
