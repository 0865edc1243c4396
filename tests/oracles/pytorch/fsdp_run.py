"""A toy model under FSDP2 that really trains one step, and what a rank keeps of it: the program of each process."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from oracles.hugging_face.huggingface import Shape, causal_lm, token_ids
from oracles.instruments.storages import storages_in
from torch.distributed.fsdp import fully_shard


def run(rank: int, shape: Shape) -> dict[str, int]:
    """Train one step with AdamW; return bytes of parameters, gradients, moments and steps, and elements."""
    model: Any = causal_lm("llama", shape, "sdpa", dtype=torch.float32)
    elements = sum(one.numel() for one in model.parameters())
    for layer in model.model.layers:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    loss = model(input_ids=token_ids(shape), labels=token_ids(shape)).loss
    loss.backward()
    optimizer.step()
    local = [one.to_local() for one in model.parameters()]
    states = [state for states in optimizer.state.values() for state in states.values()]
    return {
        "ranks": dist.get_world_size(),
        "elements": elements,
        "parameters": storages_in(local).bytes(),
        "gradients": storages_in([one.grad.to_local() for one in model.parameters()]).bytes(),
        "moments": storages_in([state.to_local() for state in states if state.ndim]).bytes(),
        "steps": storages_in([state for state in states if not state.ndim]).bytes(),
        "tensors": len(local),
    }


def run_all(rank: int, shapes: list[Shape]) -> list[dict[str, int]]:
    """Run one shape after another on this rank."""
    return [run(rank, shape) for shape in shapes]
