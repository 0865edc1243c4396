"""Steps of PEFT's adapters in Transformers on tensors without memory: peaks of the whole step and of its backward pass.

With FSDP2 also those of the streams that gather and that reduce. Inputs of the first layer need a gradient, as with
recompute. Frozen weights are in bf16, or in 4 bits of bitsandbytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any

import pytest
import torch
from oracles.hugging_face.family_steps import recorded
from oracles.libraries.lora import TARGETS
from oracles.pytorch.sharded_steps import STREAMS
from stream_peaks import peaks_by_stream
from torch import nn

from shardmath.steps.trace import GATHER, REDUCE

TABLE = "lora_steps"
#: FSDP2's ``reshard_after_forward`` by option; without FSDP2 there is none.
RESHARD = {"none": None, "default": None, "always": True, "never": False}


def has(row: Mapping[str, str]) -> bool:
    """True for every row."""
    return True


def count(row: Mapping[str, str]) -> dict[str, int]:
    """Train two steps of AdamW: on one GPU, with DistributedDataParallel as Transformers' trainer makes it, or FSDP2.

    The reducer's map of used parameters is on the host too, which is a CPU here, and left out.
    """
    peft, targets = import_module("peft"), list(TARGETS[row["adapters"]])  # tensors of the package are not recorded

    trained: list[str] = []

    def adapted(model: Any) -> Any:
        model.enable_input_require_grads()
        lora = peft.LoraConfig(r=int(row["rl"]), target_modules=targets, lora_dropout=0.0)
        with pytest.MonkeyPatch.context() as patched:  # a module cannot move fake tensors, nor needs it here
            patched.setattr(nn.Module, "to", lambda module, *arguments, **options: module)
            model = peft.get_peft_model(model, lora, autocast_adapter_dtype=False)
        trained.extend(name for name, one in model.named_parameters() if one.requires_grad)
        return model

    def in_4_bits(model: Any, quantised: type[Any]) -> Any:
        for name, part in list(model.named_modules()):
            if type(part) is nn.Linear and name != "lm_head":
                above, _, own = name.rpartition(".")
                setattr(model.get_submodule(above), own, quantised(part))
        model.is_loaded_in_4bit = True
        return adapted(model)

    config = {"model_type": row["family"], **json.loads(row["config"])}
    sizes = {name: int(row[name]) for name in ("sequence", "batch", "microbatches")}
    record_of = partial(recorded, config, **sizes, full=row["recompute"] == "full", attention=row["attention"],
                        is_shared=row["data_parallel"] == "ddp", ranks=int(row["ranks"]),
                        reshard=RESHARD[row["reshard"]])
    if row["base_weights"] == "nf4":
        with _quantised(torch.bfloat16 if row["data_parallel"] == "fsdp" else torch.uint8) as quantised:
            record = record_of(adapted=partial(in_4_bits, quantised=quantised))
    else:
        record = record_of(adapted=adapted)
    map_on_host = 4 * len(trained) if (row["data_parallel"], row["recompute"]) == ("ddp", "none") else 0
    streams = peaks_by_stream(record.events)
    return {
        **{name: size - map_on_host for name, size in (
            ("peak", record.peak), ("norm", record.norm), ("layers", record.layers))},
        "gathers": streams[STREAMS[GATHER]], "reduces": streams[STREAMS[REDUCE]],
    }


@contextmanager
def _quantised(storage: torch.dtype) -> Iterator[type[Any]]:
    """Have bitsandbytes' linear layers of 4 bits as modules that hold codes of fake weights too, with their products.

    Codes are in elements of ``storage``. Its own parameters cannot be fake. Its tables of values have no values here,
    and every matrix has its own, as on a GPU.
    """
    bitsandbytes, functional = import_module("bitsandbytes"), import_module("bitsandbytes.functional")

    class Quantised(bitsandbytes.nn.Linear4bit):  # type: ignore[misc]
        def __init__(self, part: nn.Linear) -> None:
            nn.Module.__init__(self)
            self.in_features, self.out_features, self.bias = part.in_features, part.out_features, part.bias
            self.compute_dtype, self.training = torch.bfloat16, part.training
            codes, self.quant_state = functional.quantize_4bit(
                part.weight.data, compress_statistics=True, quant_type="nf4", quant_storage=storage)
            self.weight = nn.Parameter(codes, requires_grad=False)
            self.weight.compress_statistics, self.weight.quant_type = True, "nf4"

        def forward(self, value: Any) -> Any:
            return bitsandbytes.matmul_4bit(value, self.weight, bias=self.bias, quant_state=self.quant_state)

    with pytest.MonkeyPatch.context() as patched:
        for name, values in (("get_4bit_type", 16), ("create_dynamic_map", 256)):
            patched.setattr(functional, name, partial(_table, values))
        patched.setattr(functional, "name2qmap", _NoTables())
        yield Quantised


class _NoTables(dict[str, Any]):
    """Tables of values by name, of which none is kept for the next matrix."""

    def __setitem__(self, name: str, table: Any) -> None:
        super().__setitem__("latest", table)

    def __getitem__(self, name: str) -> Any:
        return super().pop("latest")


def _table(values: int, *arguments: Any, **options: Any) -> Any:
    return torch.empty(values, dtype=torch.float32)
