"""Record every allocation of Megatron-Core's layers with experts, forward and backward, on tensors in memory.

Layers, router, dispatcher and experts are Megatron-Core's own, on one rank of fake groups. Kernels that run as one on a
GPU are stand-ins that make what those make: norm, FlashAttention, grouped products, SwiGLU with the tokens' weights,
and the permutation of tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Any
from weakref import ref

import pytest
import torch
from megatron.core.activations import squared_relu
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
from megatron.core.tensor_parallel import checkpoint, gather_from_sequence_parallel_region
from megatron.core.transformer.mlp import MLPSubmodules
from megatron.core.transformer.moe import experts as experts_module
from megatron.core.transformer.moe import moe_utils, shared_experts, token_dispatcher
from megatron.core.transformer.moe.experts import TEGroupedMLP
from megatron.core.transformer.moe.router import TopKRouter
from megatron.core.transformer.spec_utils import ModuleSpec, build_module
from oracles.megatron_core import fused
from oracles.megatron_core.grouped_linear import GroupedLinear, TakenAway, Unpadded
from oracles.megatron_core.megatron_cpu import BF16, Shape, config, one_rank, put_norm_inside
from oracles.megatron_core.megatron_experts import Nothing, on_host
from torch import Tensor
from torch.nn.functional import gelu
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from shardmath.allocator.trace import Action, Event

_GATING = TopKRouter.gating


class Record(TorchDispatchMode):
    """Events of all storages that are made inside of the ``with`` block, with the bytes in use and most of them."""

    def __init__(self, *known: Tensor) -> None:
        super().__init__()
        self.events: list[Event] = []
        self.now = self.peak = self.restarted = self.left = 0
        self._alive: dict[int, Any] = {one.untyped_storage()._cdata: None for one in known}
        self._numbers: dict[int, int] = {}
        self._sent: set[int] = set()
        self._copied = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and record the storages that it made."""
        result = func(*args, **kwargs or {})
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor):
                self._add(leaf)
        return result

    def restart(self) -> None:
        """Start a new peak from what is alive now, and say which event comes next."""
        self.peak, self.restarted = self.now, len(self.events)

    def send(self, *tensors: Tensor) -> None:
        """Let an all-to-all use tensors, which ``ProcessGroupNCCL::alltoall_base`` records on the stream of NCCL."""
        for tensor in tensors:
            number = self._numbers[tensor.untyped_storage()._cdata]
            self._sent.add(number)
            self.events.append(Event(Action.RECORD, number, stream=1))

    def copy(self) -> None:
        """Let a stream that copies numbers to the host wait for the work so far."""
        self._copied = len(self.events)

    def wait(self) -> None:
        """Let the host wait for that copy: all work before it is done, behind which no sent tensor was freed."""
        assert not any(event.action is Action.FREE and event.key in self._sent for event in self.events[self._copied:])
        self.events.append(Event(Action.REACH, stream=1))

    def _add(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size, number = storage._cdata, storage.nbytes(), len(self.events) + 1
        if key in self._alive or not size:
            return
        self._numbers[key] = number
        self._alive[key] = ref(storage, lambda _: self._free(key, number, size))
        self.events.append(Event(Action.ALLOCATE, number, size, row=str(tuple(tensor.shape))))
        self.now += size
        self.peak = max(self.peak, self.now)

    def _free(self, key: int, number: int, size: int) -> None:
        del self._alive[key]
        self.events.append(Event(Action.FREE, number))
        self.now -= size


class _Permute(torch.autograd.Function):
    """Sort tokens, with their weights, by expert; the kernel keeps a map of rows."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, weights: Tensor, count: int) -> Any:
        ctx.sizes = tokens.shape, weights.shape
        row_map = torch.zeros(tokens.shape[0], 2 * weights.shape[1] + 1, dtype=torch.int32)
        ctx.save_for_backward(row_map)
        return tokens.new_zeros(count, tokens.shape[1]), weights.new_zeros(count), row_map

    @staticmethod
    def backward(ctx: Any, tokens: Tensor, weights: Tensor, _: Any) -> Any:
        return tokens.new_zeros(ctx.sizes[0]), weights.new_zeros(ctx.sizes[1]), None


class _Unpermute(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tokens: Tensor, row_map: Tensor, shape: Any) -> Tensor:
        ctx.size = tokens.shape
        ctx.save_for_backward(row_map)
        return tokens.new_zeros(shape)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return gradient.new_zeros(ctx.size), None, None


class _Sort(torch.autograd.Function):
    """Sort chunks of tokens; the kernel keeps a map of rows."""

    @staticmethod
    def forward(ctx: Any, *given: Tensor) -> Any:
        ctx.save_for_backward(torch.zeros(len(given[0]), dtype=torch.int32))
        return tuple(torch.zeros_like(one) for one in given)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return tuple(torch.zeros_like(one) for one in gradients)


class _Weighted(torch.autograd.Function):
    """An activation times the weights of tokens, which keeps both inputs, and has a share of the first one's width."""

    @staticmethod
    def forward(ctx: Any, inner: Tensor, weights: Tensor, share: int) -> Tensor:
        ctx.save_for_backward(inner, weights)
        return inner.new_zeros(len(inner), inner.shape[1] // share)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        inner, weights = ctx.saved_tensors
        return torch.zeros_like(inner), torch.zeros_like(weights), None


def _evenly(router: Any, hidden: Tensor) -> Tensor:
    """Send every expert as many tokens."""
    logits = _GATING(router, hidden)
    tokens, chosen, experts = logits.numel() // logits.shape[-1], router.topk, logits.shape[-1]
    numbers = (torch.arange(tokens)[:, None] * chosen + torch.arange(chosen)) % experts
    return logits.nan_to_num() * 0 + torch.zeros(tokens, experts).scatter(1, numbers, 100.0).view_as(logits)


def _of_all_ranks(tensor: Tensor, group: Any, **sizes: Any) -> Tensor:
    """Gather numbers of tokens, which are alike on every rank, or tokens themselves."""
    if tensor.is_floating_point():
        gathered: Tensor = gather_from_sequence_parallel_region(tensor, group=group, **sizes)
        return gathered
    return torch.cat([tensor] * group.size())


#: Kernels that sort tokens by expert, and sum them up again.
SORTING = (
    (moe_utils, "HAVE_TE", True), (moe_utils, "fused_permute", NotImplemented),
    (moe_utils, "fused_permute_with_probs",
     lambda tokens, weights, _, num_out_tokens: _Permute.apply(tokens, weights, int(num_out_tokens))),
    (moe_utils, "fused_unpermute",
     lambda tokens, row_map, merging_probs, restore_shape: _Unpermute.apply(tokens, row_map, restore_shape)),
)


@contextmanager
def kernels_of_a_gpu() -> Iterator[None]:
    """Put stand-ins in the places of kernels and streams that no CPU has."""
    with pytest.MonkeyPatch.context() as patched:
        for module, name, stand_in in (
            (torch.cuda, "Stream", Nothing), (torch.cuda, "current_stream", Nothing),
            (torch.cuda, "stream", lambda _: Nothing()), (token_dispatcher, "maybe_move_tensor_to_cpu", on_host),
            (token_dispatcher, "gather_from_sequence_parallel_region", _of_all_ranks), (TopKRouter, "gating", _evenly),
            (moe_utils, "te_general_gemm", None), *SORTING,
            (moe_utils, "fused_sort_chunks_by_index", lambda tokens, *_: _Sort.apply(tokens)[0]),
            (moe_utils, "fused_sort_chunks_by_index_with_probs",
             lambda tokens, weights, *_: _Sort.apply(tokens, weights)),
            (experts_module, "HAVE_TE", True), (experts_module, "Fp8Padding", Unpadded),
            (experts_module, "Fp8Unpadding", TakenAway), (shared_experts, "is_te_min_version", lambda *_: False),
            (experts_module, "weighted_bias_swiglu_impl",
             lambda inner, bias, weights, *_: _Weighted.apply(inner, weights, 2)),
            (experts_module, "weighted_squared_relu_impl", lambda inner, weights: _Weighted.apply(inner, weights, 1)),
        ):
            patched.setattr(module, name, stand_in, raising=False)
        yield


class _Copies(Nothing):
    """The stream on which a dispatcher copies numbers of tokens to the host, and the event that it records there."""

    def __init__(self, record: Record) -> None:
        self._record = record

    def wait_stream(self, _: Any) -> None:
        """Wait for the work so far."""
        self._record.copy()

    def record_event(self) -> _Copies:
        """Return what the host waits for."""
        return self

    def synchronize(self) -> None:
        """Let the host wait."""
        self._record.wait()


@contextmanager
def _streams(record: Record) -> Iterator[None]:
    """Record which tensors all-to-alls use, and where the host waits."""
    original = torch.distributed.all_to_all_single

    def all_to_all(output: Tensor, sent: Tensor, **sizes: Any) -> Any:
        record.send(output, sent)
        return original(output, sent, **sizes)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(torch.distributed, "all_to_all_single", all_to_all)
        patched.setattr(token_dispatcher.MoEAlltoAllTokenDispatcher, "cuda_dtoh_stream", _Copies(record))
        yield


def _first_output(layer: Any, hidden: Tensor) -> Tensor:
    output: Tensor = layer(hidden, None)[0]
    return output


def recorded(
    shape: Shape, draw: Random, recompute: bool = False, recipe: str | None = None, modules: tuple[str, ...] = (),
    kinds: Sequence[int] = (1,), weighting: str | None = None,
) -> tuple[Record, int, int, int]:
    """Record both passes of layers; return what the forward pass leaves, and their peaks above that.

    With ``recompute`` Megatron-Core's checkpoint runs a layer, and runs it again before it goes backward. With an FP8
    ``recipe`` products of experts are quantised; all other layers stay as they are. ``modules`` are those of its
    selective recompute. ``kinds`` are 1 for a layer with experts, and 0 for a dense one. With a ``weighting`` MLPs have
    no gate: a square of ReLU is one kernel with the weights of tokens, and GELU is multiplied with them.
    """
    shape = {**shape, "L": len(kinds)}
    with kernels_of_a_gpu(), one_rank(shape, draw):
        settings = config(
            shape, num_moe_experts=shape["E"], moe_router_topk=shape["q"], moe_ffn_hidden_size=shape["fe"],
            moe_token_dispatcher_type="alltoall", moe_aux_loss_coeff=0.0, moe_router_load_balancing_type="none",
            moe_router_dtype="fp32", moe_permute_fusion=True, moe_router_pre_softmax=shape["q"] == 1,
            moe_shared_expert_intermediate_size=shape["fs"] or None,
            expert_model_parallel_size=shape["e"], moe_layer_freq=list(kinds),
            **({"recompute_granularity": "selective", "recompute_modules": list(modules)} if modules else {}),
            **({"gated_linear_unit": False, "bias_activation_fusion": False,
                "activation_func": squared_relu if weighting == "fused" else gelu,
                "use_fused_weighted_squared_relu": weighting == "fused"} if weighting else {}))
        if recipe:  # behind the checks of a GPU
            settings.fp8, settings.fp8_recipe = "hybrid", recipe
        specs = get_gpt_decoder_block_spec(settings, use_transformer_engine=False, normalization="RMSNorm")
        layers: list[Any] = []
        for number, (spec, has_experts) in enumerate(zip(specs.layer_specs, kinds, strict=True), start=1):
            parts = spec.submodules
            parts.input_layernorm = parts.pre_mlp_layernorm = fused.FusedRMSNorm
            if not has_experts:
                put_norm_inside(parts, fused.FusedRMSNorm)
            parts.self_attention.submodules.core_attention = fused.FlashAttention
            if has_experts:
                parts.mlp.submodules.experts = ModuleSpec(
                    TEGroupedMLP, submodules=MLPSubmodules(linear_fc1=GroupedLinear, linear_fc2=GroupedLinear))
            layers.append(build_module(spec, config=settings, layer_number=number).to(BF16).train())
        hidden = torch.zeros(shape["s"], shape["b"], shape["h"], dtype=BF16, requires_grad=True)
        known = [weight for layer in layers for weight in layer.parameters()]
        for weight in known:  # gradients are added to a buffer at once
            weight.register_post_accumulate_grad_hook(lambda made: setattr(made, "grad", None))
        with Record(hidden, *known) as record, _streams(record):
            output = hidden
            for layer in layers:
                run = partial(_first_output, layer)
                output = checkpoint(run, False, output) if recompute else run(output)
            kept, forward = record.now, record.peak
            after = output * 1  # what comes behind the layer, whose gradient nothing here holds
            gradient = torch.zeros_like(after)
            record.restart()
            backward = record.now
            after.backward(gradient)
            # Without the output, what comes behind it, its gradient and that of the first input.
            record.left = record.now - 4 * gradient.untyped_storage().nbytes()
    return record, kept, forward - kept, record.peak - backward
