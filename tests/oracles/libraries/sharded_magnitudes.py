"""Weight-decomposed adapters of PEFT under FSDP2, trained by one step on real ranks: what the first one keeps of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from oracles.hugging_face.huggingface import token_ids
from oracles.instruments.processes import on_first_rank
from oracles.instruments.saved import Saved
from oracles.instruments.storages import storages_in
from oracles.libraries.lora import adapted, sizes
from torch import Tensor
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

TABLE = "sharded_magnitudes"


def has(row: Mapping[str, str]) -> bool:
    """True for every row."""
    return True


def count(row: Mapping[str, str]) -> dict[str, Any]:
    """Start the ranks of a row, and return what its first rank counted."""
    return on_first_rank(train, row)


def train(rank: int, row: dict[str, str]) -> dict[str, int]:
    """Train the adapters by one step of AdamW, each layer and the whole model sharded, as accelerate does.

    With ``mixed`` precision shards are fp32, and cast to bf16 when they are gathered.
    """
    mixed = row["precision"] == "mixed"
    model = adapted(row, torch.float32 if mixed else torch.bfloat16, use_dora=True).train()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16) if mixed else MixedPrecisionPolicy()
    trained = sum(one.numel() for one in model.parameters() if one.requires_grad)
    for layer in model.base_model.model.model.layers:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    adapters = [one for one in model.parameters() if one.requires_grad]
    ids = token_ids(sizes(row))
    with Saved() as saved:
        output = model(input_ids=ids, labels=ids)
    kept = saved.bytes(gathered(model), ids)
    output.loss.backward()
    optimizer = torch.optim.AdamW(adapters)
    optimizer.step()
    moments = [state for states in optimizer.state.values() for state in states.values() if state.ndim]
    return {
        "trained": trained,
        "parameters": storages_in([one.to_local() for one in model.parameters()]).bytes(),
        "gradients": storages_in([one.grad.to_local() for one in adapters]).bytes(),
        "moments": storages_in([state.to_local() for state in moments]).bytes(),
        "saved": kept,
    }


def gathered(model: Any) -> list[Tensor]:
    """Return the gathered parameters of all units; those that were freed behind the forward pass have no bytes."""
    units = [module for module in model.modules() if isinstance(module, FSDPModule)]
    groups = [unit._get_fsdp_state()._fsdp_param_group for unit in units]
    return [parameter.unsharded_param for group in groups if group is not None for parameter in group.fsdp_params]
