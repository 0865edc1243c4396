"""A toy pipeline whose stages FSDP2 shards, as each rank of a real group makes it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from oracles.pipelines.pipeline_run import CLASSES, TOKENS, WIDTH, Layer, stages_of
from torch import nn
from torch.distributed import pipelining as api
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining.schedules import PipelineScheduleSingle


class ShardedPipeline(NamedTuple):
    """The chunks of a rank, its stages, its place among them, and what runs a step."""

    parts: list[Any]
    of_rank: list[api.PipelineStage]
    place: int
    step: Callable[[], Any]


def sharded_pipeline(schedule: str, stages: int, micro_batches: int, chunks: int, layers: int) -> ShardedPipeline:
    """Return the pipeline of this rank; the other ranks of a stage share out its parameters."""
    mesh = init_device_mesh("cpu", (stages, dist.get_world_size() // stages), mesh_dim_names=("pp", "dp"))
    place = mesh.get_local_rank("pp")
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    parts: list[Any] = []
    for _ in range(chunks):
        part = nn.Sequential(*(Layer() for _ in range(layers)))
        for layer in part:
            fully_shard(layer, mesh=mesh["dp"], mp_policy=policy, reshard_after_forward=False)
        parts.append(fully_shard(part, mesh=mesh["dp"], mp_policy=policy))
    of_rank = [
        api.PipelineStage(part, stage, stages * chunks, torch.device("cpu"), group=mesh.get_group("pp"))
        for stage, part in zip(stages_of(schedule, stages, place, chunks), parts, strict=True)
    ]
    single = issubclass(CLASSES[schedule], PipelineScheduleSingle)
    runner = CLASSES[schedule](
        of_rank[0] if single else of_rank, micro_batches, loss_fn=lambda out, _: out.float().sum(), scale_grads=False,
    )
    whole = torch.zeros(micro_batches * TOKENS, WIDTH, dtype=torch.bfloat16, requires_grad=True)
    inputs = (whole,) if any(stage.is_first for stage in of_rank) else ()
    target = {"target": whole} if any(stage.is_last for stage in of_rank) else {}
    return ShardedPipeline(parts, of_rank, place, partial(runner.step, *inputs, **target))
