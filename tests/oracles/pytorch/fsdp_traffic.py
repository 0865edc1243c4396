"""Traffic of FSDP2 and of a pipeline of it in real processes: the programs of each process."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from oracles.hugging_face.huggingface import Shape, causal_lm, token_ids
from oracles.instruments.copied import Copied
from oracles.instruments.sent import Sent, operations
from oracles.pipelines.sharded_pipeline import sharded_pipeline
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

#: Which units free their parameters after the forward pass: the layers, and embedding, norm and head.
FREED: dict[str, tuple[bool, bool]] = {"always": (True, True), "default": (True, False), "never": (False, False)}


def run(rank: int, shape: Shape, reshard: str, micro_batches: int, replicas: int = 1) -> dict[str, Any]:
    """Train one step of several micro-batches as torchtitan does without a pipeline: bytes and calls by pass.

    With ``replicas`` the ranks are a mesh: so many copies, each shared out over its row (HSDP). ``copied`` has the
    bytes that copies and sums move in memory.
    """
    sizes = (replicas, dist.get_world_size() // replicas)
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=("replicate", "shard"))
    mesh = mesh if replicas > 1 else mesh["shard"]
    model: Any = causal_lm("llama", shape, "sdpa", dtype=torch.float32)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    layers, ends = FREED[reshard]
    fully_shard(model.model.embed_tokens, mesh=mesh, mp_policy=policy, reshard_after_forward=layers)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=layers)
    fully_shard([model.model.norm, model.lm_head], mesh=mesh, mp_policy=policy, reshard_after_forward=ends)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    forward, backward, copied = Sent(), Sent(), Copied(model.parameters())
    for _ in range(micro_batches):
        with forward, copied:
            loss = model(input_ids=token_ids(shape), labels=token_ids(shape)).loss
        with backward, copied:
            loss.backward()
    return {"forward": _by_operation(forward), "backward": _by_operation(backward), "copied": dict(copied.bytes)}


def run_pipeline(rank: int, schedule: str, stages: int, micro_batches: int, chunks: int, layers: int) -> dict[str, Any]:
    """Train one step of a pipeline of FSDP2 stages: calls and bytes among data-parallel ranks, and messages."""
    _, _, place, step = sharded_pipeline(schedule, stages, micro_batches, chunks, layers)
    step()  # the first step asks for shapes, too
    sent = Sent()
    with sent:
        step()
    return {**_by_operation(sent), "place": place}


def _by_operation(sent: Sent) -> dict[str, list[int]]:
    """Calls and bytes that they make whole, by operation."""
    return {
        operation: [count, sum(call.bytes for call in sent.calls if call.operation == operation)]
        for operation, count in operations(sent.calls).items()
    }


def run_all(rank: int, cases: list[list[Any]]) -> list[dict[str, Any]]:
    """Run one case after another on this rank."""
    return [run(rank, *case) for case in cases]


def run_pipelines(rank: int, cases: list[list[Any]]) -> list[dict[str, Any]]:
    """Run one pipeline after another on this rank."""
    return [run_pipeline(rank, *case) for case in cases]
