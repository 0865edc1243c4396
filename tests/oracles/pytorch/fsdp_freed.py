"""A Llama whose parameters are updated in the backward pass, alone or under FSDP2: bytes of gradients alive at once."""

from __future__ import annotations

from typing import Any

import torch
from oracles.hugging_face.huggingface import Shape, causal_lm, token_ids
from oracles.instruments.storages import storages_in
from oracles.pytorch.sharded_steps import shard_outside
from torch.distributed.fsdp import fully_shard


def run(shape: Shape, shared: bool, is_accelerates: bool = False) -> dict[str, int]:
    """Train one step; return the most bytes of gradients at an update in the layers and at one outside of them.

    ``is_accelerates``: with units as Accelerate makes them outside of the layers.
    """
    model: Any = causal_lm("llama", shape, "sdpa", dtype=torch.float32)
    if shared:
        for layer in model.model.layers:
            fully_shard(layer)
        shard_outside(model, model.model.norm, {}, is_accelerates)
    optimizers = {one: torch.optim.AdamW([one], fused=True) for one in model.parameters()}
    inner, most = {*model.model.layers.parameters()}, {"layers": 0, "ends": 0}

    def update(parameter: Any) -> None:
        gradients = [one.grad.to_local() if shared else one.grad for one in optimizers if one.grad is not None]
        place = "layers" if parameter in inner else "ends"
        most[place] = max(most[place], storages_in(gradients).bytes())
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for one in optimizers:
        one.register_post_accumulate_grad_hook(update)
    ids = token_ids(shape)
    model(input_ids=ids, labels=ids).loss.backward()
    assert all(one.grad is None for one in optimizers)
    return most


def run_all(rank: int, shapes: list[Shape]) -> list[list[dict[str, int]]]:
    """Run one shape after another on this rank, sharded: with one unit outside of the layers, and with Accelerate's."""
    return [[run(shape, True, is_accelerates) for is_accelerates in (False, True)] for shape in shapes]
