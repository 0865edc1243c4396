"""The order in which steps with adapters of PEFT allocate: how many tensors the last passes make, and a digest.

Inputs of the first layer need a gradient, as with recompute. The passes are those of the second step's last
micro-batch, behind the tables of RoPE.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import pytest
import torch
from oracles.hugging_face.transformers_steps import recorded
from oracles.libraries.lora import TARGETS
from oracles.pytorch.allocation_orders import InPlace, described, least, order
from torch import nn

TABLE = "lora_orders"


def has(row: Mapping[str, str]) -> bool:
    """True for every row."""
    return True


def count(row: Mapping[str, str]) -> dict[str, Any]:
    """Train two steps of AdamW, with or without DistributedDataParallel as Transformers' trainer makes it."""
    peft, targets = import_module("peft"), list(TARGETS[row["adapters"]])  # tensors of the package are not recorded
    recorders: list[InPlace] = []
    starts: list[int] = []

    def adapted(model: Any) -> Any:
        model.enable_input_require_grads()
        model.model.rotary_emb.register_forward_hook(lambda *arguments: starts.append(len(recorders[0].events)))
        lora = peft.LoraConfig(r=int(row["rl"]), target_modules=targets, lora_dropout=0.0)
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)
        with pytest.MonkeyPatch.context() as patched:  # a module cannot move fake tensors, nor needs it here
            patched.setattr(nn.Module, "to", lambda module, *arguments, **options: module)
            model = peft.get_peft_model(model, lora, autocast_adapter_dtype=False)
        torch.set_default_dtype(before)
        return model

    def recorder(are_fake: bool) -> InPlace:
        recorders.append(InPlace(are_fake))
        return recorders[0]

    family, shape, run = described(row)
    record = recorded(family, shape, **run, is_shared=row["data_parallel"] == "ddp", adapted=adapted, kind=recorder)
    made, digest = order(record.events[starts[-1]:], least(shape))
    return {"made": made, "order": digest}
