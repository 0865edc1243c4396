"""Steps of PEFT's adapters in Transformers on tensors without memory: peaks of the whole step and of its backward pass.

Inputs of the first layer need a gradient, as with recompute.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import pytest
from oracles.family_steps import recorded
from oracles.libraries.lora import TARGETS
from torch import nn

TABLE = "lora_steps"


def has(row: Mapping[str, str]) -> bool:
    """True for every row."""
    return True


def count(row: Mapping[str, str]) -> dict[str, int]:
    """Train two steps of AdamW, with or without DistributedDataParallel as Transformers' trainer makes it.

    Its map of used parameters is on the host too, which is a CPU here, and left out.
    """
    peft, targets = import_module("peft"), list(TARGETS[row["adapters"]])  # tensors of the package are not recorded

    trained: list[Any] = []

    def adapted(model: Any) -> Any:
        model.enable_input_require_grads()
        lora = peft.LoraConfig(r=int(row["rl"]), target_modules=targets, lora_dropout=0.0)
        with pytest.MonkeyPatch.context() as patched:  # a module cannot move fake tensors, nor needs it here
            patched.setattr(nn.Module, "to", lambda module, *arguments, **options: module)
            model = peft.get_peft_model(model, lora, autocast_adapter_dtype=False)
        trained.extend(one for one in model.parameters() if one.requires_grad)
        return model

    config = {"model_type": row["family"], **json.loads(row["config"])}
    sizes = {name: int(row[name]) for name in ("sequence", "batch", "microbatches")}
    record = recorded(config, **sizes, full=row["recompute"] == "full", attention=row["attention"],
                      is_shared=row["data_parallel"] == "ddp", adapted=adapted)
    map_on_host = 4 * len(trained) if (row["data_parallel"], row["recompute"]) == ("ddp", "none") else 0
    return {name: size - map_on_host for name, size in (
        ("peak", record.peak), ("norm", record.norm), ("layers", record.layers))}
