"""A toy model under FSDP1 or FSDP2 outside of a step, and what lives on a rank meanwhile: the program of each process.

Wrappers around tensors (DTensor, results on their way) have no memory of their own here, nor have tensors on the meta
device. FSDP1 sends weights to other ranks on GPUs alone; the check for it is taken away. It sends buckets, which
gloo's threads may keep for a moment longer than is needed; here each weight is sent by itself.
"""

from __future__ import annotations

import gc
from functools import partial
from typing import Any

import torch
from oracles.hugging_face.huggingface import Shape, causal_lm
from oracles.instruments.live import Live
from torch import Tensor, distributed, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel, _init_utils, fully_shard
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.utils._pytree import tree_leaves
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

_PLAIN = (Tensor, nn.Parameter)


class Memory(Live):
    """Live bytes of plain tensors on a device."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Leave wrappers to themselves, run the operation, then count what it made."""
        if any(kind not in _PLAIN for kind in types):
            return NotImplemented
        result = func(*args, **kwargs or {})
        for leaf in tree_leaves(result):
            if type(leaf) in _PLAIN and leaf.device.type != "meta":
                self._tally.add(leaf)
        return result


def _on_meta(shape: Shape) -> Any:
    with torch.device("meta"):
        return causal_lm("llama", shape, "sdpa", dtype=torch.float32)


def _broadcast(group: Any, tensors: list[Tensor], _bucket_bytes: int, source: int) -> None:
    for tensor in tensors:
        distributed.broadcast(tensor, source, group)


def load_fsdp1(shape: Shape, layers: bool) -> tuple[int, int]:
    """Wrap a model of which a rank gets one unit after another; return the most live bytes, and those of buffers."""
    _init_utils._check_module_states_for_sync_module_states = lambda *_: None  # type: ignore[assignment]
    distributed._broadcast_coalesced = _broadcast  # type: ignore[attr-defined]
    policy: Any = partial(transformer_auto_wrap_policy, transformer_layer_cls={LlamaDecoderLayer}) if layers else None
    cpu = torch.device("cpu")
    gc.collect()
    with Memory() as memory:
        model = FullyShardedDataParallel(
            _on_meta(shape), auto_wrap_policy=policy, sync_module_states=True, use_orig_params=True, device_id=cpu,
            param_init_fn=lambda module: module.to_empty(device=cpu, recurse=False),
        )
        peak = memory.peak
    return peak, sum(buffer.nbytes for buffer in model.buffers())


def gather_fsdp2(rank: int, shape: Shape) -> int:
    """Gather a full state dict that the first rank keeps; return the most bytes that another one has meanwhile."""
    model: Any = causal_lm("llama", shape, "sdpa", dtype=torch.float32)
    for layer in model.model.layers:
        fully_shard(layer)
    fully_shard(model)
    with Memory([one.to_local() for one in model.parameters()], *model.buffers()) as memory:
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        kept = get_model_state_dict(model, options=options)
        return memory.peak - sum(one.nbytes for one in kept.values())


def run_all(rank: int, shapes: list[Shape]) -> list[dict[str, Any]]:
    """Run one shape after another on this rank."""
    return [{
        "fsdp1": load_fsdp1(shape, True), "fsdp1_whole": load_fsdp1(shape, False), "saving": gather_fsdp2(rank, shape),
    } for shape in shapes]
