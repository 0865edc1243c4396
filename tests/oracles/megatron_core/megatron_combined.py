"""Run a step of Megatron-Core's own schedules in which passes of two micro-batches take turns, on one rank of fakes.

Model, schedule plans, router, dispatcher and experts are Megatron-Core's own. Kernels that run as one on a GPU are
stand-ins (``oracles.megatron_core.megatron_expert_steps``). A storage that is resized to nothing is freed.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import repeat
from random import Random
from typing import Any
from weakref import ref

import pytest
import torch
from megatron.core import parallel_state
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.pipeline_parallel import get_forward_backward_func, schedules
from megatron.core.pipeline_parallel import utils as streams
from megatron.core.pipeline_parallel.utils import ScheduleNode
from megatron.core.transformer.mlp import MLPSubmodules
from megatron.core.transformer.moe.experts import TEGroupedMLP
from megatron.core.transformer.moe.router import TopKRouter
from megatron.core.transformer.spec_utils import ModuleSpec
from oracles.megatron_core import fused
from oracles.megatron_core.grouped_linear import GroupedLinear
from oracles.megatron_core.megatron_cpu import BF16, Batch, Shape, config, one_rank
from oracles.megatron_core.megatron_expert_steps import kernels_of_a_gpu
from oracles.megatron_core.megatron_experts import Nothing
from torch import Tensor, UntypedStorage
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_GATING = TopKRouter.gating
#: Numbers of tokens by expert, which are on the host on a GPU, have no more elements.
_ON_HOST = 64


class _Even(torch.autograd.Function):
    """Send every expert as many tokens, and save nothing for it."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, chosen: int) -> Tensor:
        tokens, experts = logits.numel() // logits.shape[-1], logits.shape[-1]
        numbers = (torch.arange(tokens)[:, None] * chosen + torch.arange(chosen)) % experts
        return torch.zeros(tokens, experts).scatter(1, numbers, 100.0).view_as(logits).to(logits.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient, None


class Alive(TorchDispatchMode):
    """Bytes of storages made inside of the ``with`` block: now, and at most since the last ``restart``."""

    def __init__(self, *known: Tensor) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._alive: dict[int, list[Any]] = {one.untyped_storage()._cdata: [None, 0] for one in known}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and count the storages that it made."""
        result = func(*args, **kwargs or {})
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor) and not (leaf.dtype is torch.int64 and leaf.numel() <= _ON_HOST):
                self._add(leaf.untyped_storage())
        return result

    def _add(self, storage: UntypedStorage) -> None:
        key = storage._cdata
        if key in self._alive or not storage.nbytes():
            return
        self._alive[key] = [ref(storage, lambda _: self._free(key)), storage.nbytes()]
        self.now += storage.nbytes()
        self.peak = max(self.peak, self.now)

    def _free(self, key: int) -> None:
        self.now -= self._alive.pop(key)[1]

    def resized(self, storage: UntypedStorage) -> None:
        """Count what is left of a storage."""
        if known := self._alive.get(storage._cdata):
            self.now += storage.nbytes() - known[1]
            known[1] = storage.nbytes()

    def restart(self) -> None:
        """Start a new peak from what is alive now."""
        self.peak = self.now


@contextmanager
def streams_of_a_gpu() -> Iterator[None]:
    """Put stand-ins in the places of streams and events, and let every expert have as many tokens."""
    with kernels_of_a_gpu(), pytest.MonkeyPatch.context() as patched:
        for place, name, stand_in in (
            (torch.cuda, "Event", Nothing), (torch.cuda, "Stream", lambda **_: Nothing()),
            (torch.cuda, "current_stream", lambda *_: Nothing()),
            (torch.cuda.nvtx, "range_push", lambda *_: None), (torch.cuda.nvtx, "range_pop", lambda *_: None),
            (Tensor, "record_stream", lambda *_: None), (streams, "_COMP_STREAM", None),
            (streams, "_COMM_STREAM", None),
            (TopKRouter, "gating", lambda router, hidden: _Even.apply(_GATING(router, hidden), router.topk)),
        ):
            patched.setattr(place, name, stand_in)
        yield


def _chunk(shape: Shape, settings: Any, number: int | None) -> Any:
    block = get_gpt_decoder_block_spec(settings, use_transformer_engine=False, normalization="RMSNorm", vp_stage=number)
    block.layer_norm = fused.FusedRMSNorm
    for spec in block.layer_specs:
        parts = spec.submodules
        parts.input_layernorm = parts.pre_mlp_layernorm = fused.FusedRMSNorm
        parts.self_attention.submodules.core_attention = fused.FlashAttention
        if hasattr(parts.mlp.submodules, "experts"):
            parts.mlp.submodules.experts = ModuleSpec(
                TEGroupedMLP, submodules=MLPSubmodules(linear_fc1=GroupedLinear, linear_fc2=GroupedLinear))
    ends = {"ignore_virtual": number is None, "vp_stage": number}
    torch.set_default_dtype(BF16)
    try:
        return GPTModel(
            settings, block, shape["u"], shape["s"], position_embedding_type="rope", vp_stage=number,
            share_embeddings_and_output_weights=False,
            pre_process=parallel_state.is_pipeline_first_stage(**ends),
            post_process=parallel_state.is_pipeline_last_stage(**ends),
        ).train()
    finally:
        torch.set_default_dtype(torch.float32)


def forward_step(batches: Any, chunk: Any, return_schedule_plan: bool = False) -> tuple[Any, Any]:
    """Run one micro-batch through a chunk, or plan to; the loss is a sum, which saves nothing."""
    batch = next(batches)
    labels = batch.labels if chunk.post_process else None
    run = chunk.build_schedule_plan if return_schedule_plan else chunk
    return run(batch.ids, batch.positions, batch.mask, labels=labels), lambda losses: (losses.sum(), {})


def run_step(
    shape: Shape, draw: Random, watch: Callable[[str, Alive], None], combined: bool = True, steps: int = 1,
    recipe: str | None = None, router: str | None = "fp32", **settings: Any,
) -> None:
    """Run steps; ``watch`` is called with the name of each part of a layer and its way when it is done.

    It is called with ``loss`` when the forward pass of a micro-batch has returned, and with ``step`` after a step. With
    an FP8 ``recipe`` products of experts are quantised. ``router``: precision of its scores, or that of all others.
    """
    with streams_of_a_gpu(), one_rank(shape, draw), pytest.MonkeyPatch.context() as patched:
        configured = config(
            shape, num_moe_experts=shape["E"], moe_router_topk=shape["q"], moe_ffn_hidden_size=shape["fe"],
            moe_token_dispatcher_type="alltoall", moe_router_load_balancing_type="none", moe_router_dtype=router,
            moe_permute_fusion=True, moe_router_pre_softmax=shape["q"] == 1,
            moe_shared_expert_intermediate_size=shape["fs"] or None, expert_model_parallel_size=shape["e"],
            moe_layer_freq=[int((layer + 1) % shape.get("step", 1) == 0) for layer in range(shape["L"])],
            overlap_moe_expert_parallel_comm=combined, deallocate_pipeline_outputs=True, batch_p2p_sync=False,
            microbatch_group_size_per_vp_stage=shape.get("G") or None, **settings)
        if recipe:  # behind the checks of a GPU
            configured.fp8, configured.fp8_recipe = "hybrid", recipe
        several = shape.get("V", 1) > 1
        chunks = [_chunk(shape, configured, number if several else None) for number in range(shape.get("V", 1))]
        batch = Batch.of(shape).with_mask(None)
        weights = [one for chunk in chunks for one in chunk.parameters()]
        for weight in weights:  # gradients are added to a buffer at once
            weight.register_post_accumulate_grad_hook(lambda made: setattr(made, "grad", None))
        buffers = [one for chunk in chunks for one in chunk.buffers()]
        alive = Alive(*weights, *buffers, batch.ids, batch.labels, batch.positions)
        _watched(patched, alive, watch)
        gc.collect()
        gc.disable()  # as nobody can say when Python looks for cycles
        try:
            with alive:
                for _ in range(steps):
                    get_forward_backward_func()(
                        forward_step_func=forward_step, data_iterator=[repeat(batch) for _ in chunks], model=chunks,
                        num_microbatches=shape["m"], seq_length=shape["s"], micro_batch_size=shape["b"],
                        forward_only=False)
                    watch("step", alive)
        finally:
            gc.enable()


def _watched(patched: pytest.MonkeyPatch, alive: Alive, watch: Callable[[str, Alive], None]) -> None:
    resize = UntypedStorage.resize_

    def resized(storage: UntypedStorage, size: int) -> Any:
        result = resize(storage, size)
        alive.resized(storage)
        return result

    calculate = schedules.forward_step_calc_loss

    def calculated(*given: Any, **more: Any) -> Any:
        result = calculate(*given, **more)
        watch("loss", alive)
        return result

    patched.setattr(schedules, "forward_step_calc_loss", calculated)
    patched.setattr(UntypedStorage, "resize_", resized)
    for way in ("forward", "backward"):
        original = getattr(ScheduleNode, f"_{way}")

        def run(node: Any, *given: Any, way: str = way, original: Any = original) -> Any:
            alive.restart()
            result = original(node, *given)
            watch(f"{node.name}.{way}", alive)
            return result

        patched.setattr(ScheduleNode, f"_{way}", run)
