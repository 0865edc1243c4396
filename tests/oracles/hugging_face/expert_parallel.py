"""Models of Transformers whose experts lie on several ranks: the program of each process."""

from __future__ import annotations

from random import Random
from typing import Any

import torch
import torch.distributed as dist
from oracles.hugging_face import huggingface_experts as families
from oracles.hugging_face.huggingface import Shape, token_ids
from oracles.instruments.live import Live
from oracles.instruments.processes import let_go
from oracles.instruments.storages import storages_in
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from transformers.distributed.configuration_utils import DistributedConfig
from transformers.distributed.expert_parallel import AllToAllEP, apply_expert_parallelism
from transformers.distributed.utils import TransformersDeviceMesh

MAKERS = {"mixtral": families.mixtral, "qwen": families.qwen, "dots": families.dots}


def made(family: str, seed: int, shape: Shape) -> tuple[Any, Shape]:
    """Make the same model on every rank; ``divided``: the scores of chosen experts are divided by their sum."""
    torch.manual_seed(seed)
    model, shape = MAKERS[family](Random(seed), shape)
    model = model.to(torch.bfloat16).train()
    model.config._experts_implementation = "grouped_mm"
    return model, shape | {"divided": int(family != "qwen" or model.config.norm_topk_prob)}


def alive(rank: int, family: str, seed: int, shape: Shape, shared: int, checkpointing: bool) -> dict[str, Any]:
    """Share out the experts over all ranks, of which ``shared`` have one batch; return bytes after a forward pass.

    Transformers' own functions lay out the experts; FSDP2, which gathers what it shares out, stays away. ``empty``
    says that some layer's experts got no token on this rank.
    """
    model, shape = made(family, seed, shape)
    ranks = dist.get_world_size()
    dense = init_device_mesh("cpu", (ranks // shared, shared), mesh_dim_names=("fsdp", "tp"))
    experts = init_device_mesh("cpu", (ranks,), mesh_dim_names=("ep",))
    apply_expert_parallelism(model, experts["ep"], dense["tp"], model._expand_parallel_plan(dict(model.ep_plan)))
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    received: list[int] = []
    send = AllToAllEP._dispatch_tokens

    def watched(self: AllToAllEP, *arguments: Any) -> Any:
        sent = send(self, *arguments)
        received.append(len(sent[0]))
        return sent

    AllToAllEP._dispatch_tokens = watched
    torch.manual_seed(seed + rank // shared)
    ids = token_ids(shape)
    local = [_local(each) for each in model.parameters()]
    with Live(model, ids, local) as live:
        output = model(input_ids=ids, labels=ids)
    let_go()
    AllToAllEP._dispatch_tokens = send
    assert output.loss is not None
    return {"kept": live.now, "empty": 0 in received, "parameters": sum(each.numel() for each in local), "shape": shape}


def sharded(rank: int, family: str, seed: int, shape: Shape, expert_ranks: int) -> dict[str, Any]:
    """Lay out a model as ``from_pretrained`` does with a ``DistributedConfig``; return bytes of the rank's weights."""
    model, shape = made(family, seed, shape)
    ranks = dist.get_world_size()
    asked = DistributedConfig(fsdp_size=ranks, ep_size=expert_ranks)
    dense = init_device_mesh("cpu", (1, 1, ranks, 1), mesh_dim_names=("pp", "dp_replicate", "fsdp", "tp"))
    experts = init_device_mesh("cpu", (1, 1, ranks // expert_ranks, expert_ranks),
                               mesh_dim_names=("pp", "dp_replicate", "efsdp", "ep"))
    model = type(model).maybe_distribute_model(model, asked, TransformersDeviceMesh(dense, experts))
    return {"weights": storages_in([_local(each) for each in model.parameters()]).bytes(), "shape": shape}


def _local(parameter: torch.Tensor) -> torch.Tensor:
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter


def run_all(rank: int, cases: list[list[Any]]) -> list[dict[str, Any]]:
    """Run one case after another on this rank: the name of a function here, and its arguments."""
    return [globals()[name](rank, *arguments) for name, *arguments in cases]
