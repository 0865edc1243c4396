"""Bytes that a linear layer of Transformer Engine saves for its backward pass, and copies of its weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from oracles.libraries._transformer_engine import copies, quantising
from torch import Tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

TABLE = "quantised_layers"
_BF16 = torch.bfloat16
#: Elements and scales; largest magnitudes, and the inverse root mean squares of a norm.
_KEPT = (torch.uint8, torch.float32)


def has(row: Mapping[str, str]) -> bool:
    """True for all rows."""
    return True


def count(row: Mapping[str, str]) -> dict[str, int]:
    """Run a layer on a rank's tokens; count what it saves beside weights and, where it normalises, its 16-bit input.

    A frozen one that normalises hands out what it made, as Megatron-Bridge's adapters ask.
    """
    tokens, inputs, outputs, ranks, experts = (
        int(row[name]) for name in ("tokens", "inputs", "outputs", "ranks", "experts"))
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    parallel: dict[str, Any] = {"tp_size": ranks, "sequence_parallel": ranks > 1,
                                "tp_group": dist.group.WORLD if ranks > 1 else None}
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        if not isinstance(tensor, (library.Quantised, torch.nn.Parameter)) and tensor.dtype in _KEPT:
            kept[tensor.untyped_storage()._cdata] = tensor.untyped_storage().nbytes()
        return tensor

    with quantising(row["recipe"]) as library, torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        common: dict[str, Any] = {"bias": False, "params_dtype": _BF16, "device": "cpu"}
        hidden = torch.zeros(tokens, inputs // (ranks if row["layer"] == "row" else 1), dtype=_BF16, requires_grad=True)
        if row["layer"] == "experts":
            layer = library.GroupedLinear(experts, inputs, outputs, **common)
            output = layer(hidden, [tokens // experts] * experts, is_first_microbatch=True)
        else:
            kind = library.LayerNormLinear if row["layer"] == "normed" else library.Linear
            handed: dict[str, Any] = dict.fromkeys(
                ("return_layernorm_output", "return_layernorm_output_gathered"), row["frozen"] == "1")
            normed = {"normalization": "RMSNorm", **handed} if row["layer"] == "normed" else {}
            mode = "row" if row["layer"] == "row" else "column"
            layer = kind(inputs, outputs, parallel_mode=mode, **common, **parallel, **normed)
            layer.weight.requires_grad_(row["frozen"] == "0")
            output = layer(hidden, is_first_microbatch=True)
    assert (output[0] if isinstance(output, tuple) else output).requires_grad
    dist.destroy_process_group()
    rms = 4 * tokens if row["layer"] == "normed" else 0
    return {"saved": sum(kept.values()) - rms, "copies": copies(layer)}
