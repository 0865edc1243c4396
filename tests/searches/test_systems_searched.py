"""Every system in a search: the best layout has the memory, time and bytes on hosts that ``explain`` gives it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import shardmath
from shardmath.configuration.fields import Layouts, names_of
from shardmath.input.parameters import UNEVEN
from shardmath.search.layout import Layout

pytestmark = pytest.mark.slow
MODEL, GPU = "llama-3.2-1b", "h100-80gb"
MEASURED = Path(__file__).resolve().parents[2] / "docs" / "clusters" / "measured.toml"
JOB = {"num_gpus": 8, "global_batch_size": 32, "recompute": ("none",), "virtual_pipeline": (1,),
       "context_parallel": (1,)}
#: Arguments of a search by system, and whether it keeps something on the host.
SYSTEMS: dict[str, tuple[dict[str, Any], bool]] = {
    "three tensor axes": ({"kernels": {"tensor_axes": "three"}, "tensor_parallel_y": (1, 2)}, False),
    "slices": ({"kernels": {"slices": "tokens"}, "pipeline_parallel": (2,), "sequence_slices": (2, 4),
                "global_batch_size": 4}, False),
    "slices in 1f1b": ({"pipeline_parallel": (2, 4), "sequence_slices": (2,)}, False),
    "streaming fragments": ({"inner_steps": 100, "fragments": 4, "data_parallel_replicas": 2}, False),
    "global parameters": ({"kernels": {"local_updates": "diloco_host"}, "inner_steps": 10, "data_parallel_replicas": 2},
                          True),
    "swapped layers": ({"kernels": {"activation_offload": "karma", "recompute_method": "block"},
                        "cpu_offloading_num_layers": 4}, True),
    "saved tensors": ({"cpu_offloading_num_layers": 4}, True),
    "interleaved optimizer": ({"gpu_update_stride": 2}, True),
    "optimizer": ({"optimizer_offload_percent": 50}, True),
    "ZeRO": ({"implementation": "huggingface", "kernels": {"zero_offload": "parameters"}}, True),
}
_OF_LAYOUT = {*names_of(Layouts), *UNEVEN, "virtual_pipeline", "recompute"} & {*Layout.__annotations__}


def explained(layout: Layout, gpu: object, own: dict[str, Any], gpus: int) -> shardmath.Explanation:
    sizes = {name: value for name, value in asdict(layout).items() if name in _OF_LAYOUT and value is not None}
    sizes["sequence_parallel"] = bool(sizes["sequence_parallel"])
    sizes["kernels"] = {**own.get("kernels", {}), **layout.kernels}
    return shardmath.explain(MODEL, gpu, **{**JOB, **own, **sizes, "num_gpus": gpus})


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_best_layout_is_that_of_explain(name: str) -> None:
    own, on_host = SYSTEMS[name]
    (best, *_) = shardmath.sweep(MODEL, GPU, **{**JOB, **own}, top=1).best
    account = explained(best, GPU, own, 8)
    assert account.time is not None
    assert (account.peak_bytes, account.verdict, account.host_bytes) == (best.peak_bytes, best.verdict, best.host_bytes)
    assert account.time.seconds == pytest.approx(best.step_seconds, rel=1e-12)
    assert (best.host_bytes > 0) is on_host


def test_measured_links() -> None:
    (best, *_) = shardmath.sweep(MODEL, MEASURED, **{**JOB, "num_gpus": 16, "micro_batch_size": (1,)}, top=1).best
    account = explained(best, MEASURED, {}, 16)
    assert account.time is not None
    assert account.peak_bytes == best.peak_bytes
    assert account.time.seconds == pytest.approx(best.placed_seconds, rel=1e-12)
