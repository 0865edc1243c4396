"""A Llama with low-rank adapters under FSDP2 that really trains one step, and what a rank keeps of it."""

from __future__ import annotations

from typing import Any

import torch
from oracles.hugging_face.huggingface import Shape, causal_lm, token_ids
from oracles.instruments.storages import storages_in
from torch import Tensor, nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class Adapted(nn.Module):
    """A frozen linear layer and two matrices beside it, as PEFT's ``lora.Linear`` has them."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base
        self.first = nn.Linear(base.in_features, rank, bias=False, dtype=base.weight.dtype)
        self.second = nn.Linear(rank, base.out_features, bias=False, dtype=base.weight.dtype)

    def forward(self, hidden: Tensor) -> Tensor:
        """Add both, the adapter scaled."""
        return self.base(hidden) + self.second(self.first(hidden)) * 0.5


def run(rank: int, shape: Shape) -> dict[str, int]:
    """Train one step of the adapters with AdamW; return bytes of parameters, gradients and moments, and elements.

    ``fp32`` shards are cast to bf16 when they are gathered, frozen ones too, as accelerate prepares a model for mixed
    precision.
    """
    fp32 = bool(shape["fp32"])
    model: Any = causal_lm("llama", shape, "sdpa", dtype=torch.float32 if fp32 else torch.bfloat16)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16) if fp32 else MixedPrecisionPolicy()
    model.requires_grad_(False)
    for layer in model.model.layers:
        for part in (layer.self_attn, layer.mlp):
            for name in PROJECTIONS:
                if hasattr(part, name):
                    setattr(part, name, Adapted(getattr(part, name), shape["rl"]))
    elements = {trained: sum(one.numel() for one in model.parameters() if one.requires_grad is trained)
                for trained in (True, False)}
    for layer in model.model.layers:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    trained = [one for one in model.parameters() if one.requires_grad]
    optimizer = torch.optim.AdamW(trained)
    ids = token_ids(shape)
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
    states = [state for states in optimizer.state.values() for state in states.values() if state.ndim]
    return {
        "trained": elements[True], "frozen": elements[False],
        "parameters": storages_in([one.to_local() for one in model.parameters()]).bytes(),
        "gradients": storages_in([one.grad.to_local() for one in trained]).bytes(),
        "moments": storages_in([state.to_local() for state in states]).bytes(),
    }


def run_all(rank: int, shapes: list[Shape]) -> list[dict[str, int]]:
    """Run one shape after another on this rank."""
    return [run(rank, shape) for shape in shapes]
