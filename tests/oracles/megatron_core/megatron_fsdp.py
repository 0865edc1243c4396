"""Megatron-FSDP on one rank of a job whose other ranks do not exist: its buffers, and its temporary buckets in a step.

The code is Megatron-Core's own. Streams and coalesced collectives of a GPU have names only; collectives of a fake group
return at once. FP8 weights are 16-bit ones that carry their bytes, which alone lie in buffers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import MagicMock, patch

import torch
from megatron.core.distributed import DistributedDataParallelConfig
from megatron.core.distributed.fsdp.src.megatron_fsdp import megatron_fsdp, param_and_grad_buffer
from megatron.core.distributed.fsdp.src.megatron_fsdp.utils import FSDPDistributedIndex
from megatron.core.transformer.transformer_layer import TransformerLayer
from oracles.megatron_core.megatron_cpu import Batch, Shape, receive
from torch.distributed.device_mesh import init_device_mesh

#: Strategies of ``--data-parallel-sharding-strategy``, by what of ZeRO they are.
STRATEGIES = {1: "optim", 2: "optim_grads", 3: "optim_grads_params"}
_BUFFERS, _WRAPPER = param_and_grad_buffer, megatron_fsdp


@contextmanager
def _without_gpu(device: object) -> Iterator[None]:
    """Give streams, coalesced collectives and the exchange of shards' places to nobody."""
    names = {"Stream": MagicMock, "current_stream": MagicMock, "stream": lambda _: nullcontext(),
             "empty_cache": lambda: None, "current_device": lambda: device}
    with (patch.multiple(torch.cuda, **names), patch.object(_BUFFERS, "validate_uneven_dtensor", lambda _: None),
          patch.object(_BUFFERS, "_coalescing_manager", lambda *_, **__: nullcontext(MagicMock())),
          patch.object(_WRAPPER.logger, "warning", lambda *_: None)):
        yield


class Fp8Weights:
    """Stands in for the FP8 weights of Transformer Engine: bytes beside each, and those of transposed copies.

    ``transposed`` has the elements of copies that are there, by weight, and ``most`` the most of them at once.
    """

    def __init__(self, model: Any) -> None:
        self.transposed: dict[int, int] = {}
        self.most = 0
        self.bytes = {
            id(weight): torch.zeros(weight.shape, dtype=torch.uint8)
            for layer in model.decoder.layers for weight in layer.parameters() if weight.dim() > 1
        }
        for layer in model.decoder.layers:  # in layers of Transformer Engine a projection comes before all norms
            layer._modules["input_layernorm"] = layer._modules.pop("input_layernorm")
            for weight in layer.parameters():
                if id(weight) in self.bytes:
                    weight.get_high_precision_init_val = weight.detach().clone
                    weight.clear_high_precision_init_val = lambda: None

    @contextmanager
    def known(self) -> Iterator[None]:
        """Let Megatron-FSDP know the weights as Transformer Engine's."""
        of_buffers = {"is_float8tensor": self.has, "fp8_get_raw_data": self.raw, "fp8_set_raw_data": self.set_raw,
                      "fp8_need_transpose_data": lambda _: False}
        of_hooks = {"is_float8tensor": self.has, "fp8_create_transpose_cache": self.transpose,
                    "fp8_discard_transpose_cache": self.discard}
        with patch.multiple(_BUFFERS, **of_buffers), patch.multiple(_WRAPPER, **of_hooks):
            yield

    def has(self, weight: Any) -> bool:
        """Tell if a weight is one of FP8."""
        return id(weight) in self.bytes

    def raw(self, weight: Any, transposed: bool = False) -> Any:
        """Return the bytes of a weight."""
        return self.bytes[id(weight)]

    def set_raw(self, weight: Any, data: Any, transposed: bool = False) -> None:
        """Take other bytes, of the same shape."""
        assert (data.shape, data.dtype) == (weight.shape, torch.uint8)
        self.bytes[id(weight)] = data

    def transpose(self, weight: Any) -> None:
        """Make the transposed copy of a weight."""
        self.transposed[id(weight)] = weight.numel()
        self.most = max(self.most, sum(self.transposed.values()))

    def discard(self, weight: Any) -> None:
        """Free the transposed copy of a weight."""
        self.transposed.pop(id(weight), None)


def wrapped(model: Any, shape: Shape, stage: int) -> Any:
    """Wrap a model as Megatron-LM does for a ZeRO stage: layers are units where weights are shared out."""
    ranks = shape["D"] * shape["c"]
    mesh = init_device_mesh("cpu", (shape["p"], ranks, shape["t"]), mesh_dim_names=("pp", "dp_cp", "tp"))
    config = DistributedDataParallelConfig(
        use_megatron_fsdp=True, use_distributed_optimizer=True, data_parallel_sharding_strategy=STRATEGIES[stage],
        grad_reduce_in_fp32=shape["w"] == 4, overlap_grad_reduce=True, overlap_param_gather=True,
        bucket_size=None if shape["sbk"] else shape["bz"], suggested_communication_unit_size=shape["cu"],
    )
    with _without_gpu(0):
        return _WRAPPER.MegatronFSDP(
            module=model, ddp_config=config, fsdp_unit_modules=[TransformerLayer] if stage == 3 else [],
            dist_index=FSDPDistributedIndex(device_mesh=mesh, dp_shard_dim="dp_cp", tp_dim="tp"),
            device=torch.device("cpu:0"),
        )


def buffers(model: Any) -> dict[str, int]:
    """Bytes of weights, gradients and main weights between steps, by name."""
    groups = model.param_and_grad_buffer.parameter_groups
    kinds = {"weights": "model_weight_buffer", "gradients": "main_grad_buffer", "masters": "main_weight_buffer"}
    return {name: sum(getattr(group, kind).data.nbytes for group in groups) for name, kind in kinds.items()}


@dataclass
class Buckets:
    """Bytes of temporary buckets: of each that is alive, and of all of them when a gradient's bucket was asked for.

    ``events`` has each that was made, and below zero each that was freed, in their order.
    """

    alive: dict[tuple[str, int], int] = field(default_factory=dict)
    asked: list[tuple[int | None, int]] = field(default_factory=list)
    events: list[tuple[str, int]] = field(default_factory=list)

    @property
    def now(self) -> int:
        """Bytes of all that are alive."""
        return sum(self.alive.values())

    def watch(self, model: Any) -> None:
        """Record buckets of weights and of gradients as the wrapped model's allocators make and free them."""
        seen = set()
        for group in model.param_and_grad_buffer.parameter_groups:
            for kind, buffer in (("weights", group.model_weight_buffer), ("gradients", group.main_grad_buffer)):
                allocator = buffer.temporary_bucket_allocator
                if id(allocator) not in seen:
                    seen.add(id(allocator))
                    self._watch(allocator, kind, model)

    def _watch(self, allocator: Any, kind: str, model: Any) -> None:
        allocate, free = allocator.allocate, allocator.free
        groups = model.param_and_grad_buffer.parameter_groups

        def allocating(bucket_id: int, **others: Any) -> Any:
            bucket = allocate(bucket_id=bucket_id, **others)
            if (kind, bucket_id) not in self.alive:
                self.events.append((kind, bucket.data.nbytes))
            self.alive[kind, bucket_id] = bucket.data.nbytes
            if kind == "gradients":
                self.asked.append((groups[bucket_id].fsdp_unit_id, self.now))
            return bucket

        def freeing(bucket_id: int) -> None:
            free(bucket_id)
            if size := self.alive.pop((kind, bucket_id), 0):
                self.events.append((kind, -size))

        allocator.allocate, allocator.free = allocating, freeing


def step(model: Any, shape: Shape) -> tuple[int, list[tuple[int | None, int]], int]:
    """Run two micro-batches; bytes of buckets at the loss and whenever gradients came in the second, and at the end."""
    return watched_step(model, shape)[0]


def watched_step(model: Any, shape: Shape) -> tuple[tuple[int, list[tuple[int | None, int]], int], Buckets]:
    """Run two micro-batches, and return the buckets that were watched too."""
    batch, found = Batch.of(shape), Buckets()
    with _without_gpu(torch.device("cpu")):
        found.watch(model)
        model.zero_grad_buffer()
        for last in (False, True):
            model.is_last_microbatch = last
            receive(model.module, shape)
            loss = model(batch.ids, batch.positions, batch.mask, labels=batch.labels)
            at_loss = found.now
            found.asked.clear()
            loss.sum().backward()
        asked = list(found.asked)
        model.finish_grad_sync()
    return (at_loss, asked, found.now), found
