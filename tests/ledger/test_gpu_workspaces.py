"""The sizes of cuBLAS workspaces follow the GPU's compute capability, unless the user chose them."""

from __future__ import annotations

from typing import Any

import pytest

from shardmath import explain, sweep
from shardmath.catalogue import read
from shardmath.compiler.evaluators import find
from shardmath.configuration.settings import settings
from shardmath.generated.definitions import LIBRARIES, TORCH_WORKSPACES
from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model

MIB, KIB = 2**20, 2**10
MODEL = Model.named("llama-3.2-1b")
ARCHITECTURES = {
    "v100": "ampere", "a100": "ampere", "a800": "ampere", "l4": "ampere", "l40s": "ampere", "a6000": "ampere",
    "t4": "ampere", "a10": "ampere", "a10g": "ampere", "a40": "ampere", "rtx-3090": "ampere", "rtx-4080": "ampere",
    "rtx-4090": "ampere", "rtx-6000": "ampere", "rtx-5080": "blackwell", "rtx-5090": "blackwell",
    "rtx-pro": "blackwell",
    "h100": "hopper", "h800": "hopper", "h20": "hopper", "gh200": "hopper", "h200": "hopper",
    "b200": "blackwell", "gb200": "blackwell", "b300": "blackwell", "gb300": "blackwell", "mi250x": "hopper",
    "mi300x": "hopper", "mi325x": "hopper", "mi350x": "hopper", "mi355x": "hopper",
}


def sizes(gpu: Gpu, **others: int) -> dict[str, int]:
    values = settings(find("megatron"), MODEL, gpu, seq_length=4096, others=others)
    return {name: values[name] for name in LIBRARIES["hopper"]}


@pytest.mark.parametrize("name", read("gpus"))
def test_every_gpu_of_the_catalogue(name: str) -> None:
    gpu = Gpu.named(name)
    assert bool(gpu.compute_capability) == (not name.startswith("mi"))
    assert sizes(gpu) == LIBRARIES[ARCHITECTURES["-".join(name.split("-")[: 2 if name.startswith("rtx") else 1])]]


def test_what_the_user_chose_stays() -> None:
    assert TORCH_WORKSPACES == {"configured": 32 * MIB, "before 2.12": 8320 * KIB}
    for name, architecture in (("a100-80gb", "ampere"), ("b200-180gb", "blackwell")):
        for size in TORCH_WORKSPACES.values():
            found = sizes(Gpu.named(name), torch_workspace_bytes=size)
            assert found == LIBRARIES[architecture] | {"torch_workspace_bytes": size}


def test_a_gpu_by_its_memory_has_the_usual_ones() -> None:
    assert sizes(Gpu.custom(80)) == LIBRARIES["hopper"]


def test_bytes_of_the_workspaces() -> None:
    """Transformer Engine's, and two of PyTorch's on the stage with the head."""
    engine = {"a100-80gb": 4 * MIB, "h100-80gb": 32 * MIB + KIB, "b200-180gb": 32 * MIB + KIB}
    torch = {"a100-80gb": 8320 * KIB, "h100-80gb": 32 * MIB, "b200-180gb": 32 * MIB}
    for name, size in engine.items():
        lines = explain("llama-3.2-1b", name, seq_length=4096, pipeline_parallel=2).ranks[1].lines
        found = {line.component: line.bytes for line in lines if line.component.endswith("workspace")}
        assert found == {"engine_workspace": size, "head_workspace": 2 * torch[name]}


@pytest.mark.slow
def test_a_sweep_chooses_as_an_explanation_does() -> None:
    question: dict[str, Any] = {"global_batch_size": 4, "seq_length": 4096}
    best = sweep("llama-3.2-1b", "a100-80gb", 4, recompute=["none"], **question).best[0]
    account = explain(
        "llama-3.2-1b", "a100-80gb", num_gpus=4, micro_batch_size=best.micro_batch_size,
        tensor_parallel=best.tensor_parallel, context_parallel=best.context_parallel,
        pipeline_parallel=best.pipeline_parallel, sequence_parallel=bool(best.sequence_parallel), **question,
    )
    assert account.peak.total == best.peak_bytes
