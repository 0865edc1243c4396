"""A layer of torchtitan, as its Llama 3 and Qwen3 have it, compiled as one graph by PyTorch's own compiler."""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn import functional
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

aten = torch.ops.aten
#: Operations whose results per-operation checkpointing keeps, of which every second product is left out.
KEPT = (aten.mm.default, aten._scaled_dot_product_flash_attention_for_cpu.default,
        torch.ops._c10d_functional.reduce_scatter_tensor.default)


class Attention(nn.Module):
    """Grouped attention whose queries and keys are turned as complex numbers, or by cosines and sines behind norms."""

    def __init__(self, h: int, a: int, k: int, d: int, normed: bool) -> None:
        super().__init__()
        self.wq, self.wk, self.wv, self.wo = (
            nn.Linear(inputs, outputs, bias=False)
            for inputs, outputs in ((h, a * d), (h, k * d), (h, k * d), (a * d, h)))
        self.q_norm, self.k_norm = (nn.RMSNorm(d), nn.RMSNorm(d)) if normed else (None, None)
        self.d = d

    def forward(self, x: Tensor, angles: Tensor) -> Tensor:
        """Return the outputs of tokens (b, s, h)."""
        b, s, _ = x.shape
        q, k, v = (linear(x).view(b, s, -1, self.d) for linear in (self.wq, self.wk, self.wv))
        if self.q_norm is not None and self.k_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
            cosines, sines = (part.view(1, s, 1, self.d).to(q.dtype) for part in angles.split(self.d, dim=-1))
            q, k = (one * cosines + self._half(one) * sines for one in (q, k))
        else:
            q, k = (self._complex(one, angles) for one in (q, k))
        q, k, v = (one.transpose(1, 2) for one in (q, k, v))
        context = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])
        output: Tensor = self.wo(context.transpose(1, 2).contiguous().view(b, s, -1))
        return output

    def _half(self, one: Tensor) -> Tensor:
        first, second = one.chunk(2, dim=-1)
        return torch.cat((-second, first), dim=-1)

    def _complex(self, one: Tensor, angles: Tensor) -> Tensor:
        pairs = torch.view_as_complex(one.float().reshape(*one.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * angles.view(1, one.shape[1], 1, -1)).flatten(3).type_as(one)


class Gated(nn.Module):
    """SwiGLU of three projections."""

    def __init__(self, h: int, f: int) -> None:
        super().__init__()
        self.w1, self.w2, self.w3 = (
            nn.Linear(inputs, outputs, bias=False) for inputs, outputs in ((h, f), (f, h), (h, f)))

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs of tokens (b, s, h)."""
        output: Tensor = self.w2(functional.silu(self.w1(x)) * self.w3(x))
        return output


class Layer(nn.Module):
    """Norm and attention, norm and MLP, each beside its residual."""

    def __init__(self, h: int, a: int, k: int, d: int, f: int, normed: bool) -> None:
        super().__init__()
        self.attention, self.feed_forward = Attention(h, a, k, d, normed), Gated(h, f)
        self.attention_norm, self.ffn_norm = nn.RMSNorm(h), nn.RMSNorm(h)

    def forward(self, x: Tensor, angles: Tensor) -> Tensor:
        """Return the outputs of tokens (b, s, h)."""
        x = x + self.attention(self.attention_norm(x), angles)
        return x + self.feed_forward(self.ffn_norm(x))


def angles(s: int, d: int, normed: bool) -> Tensor:
    """Return what a layer is called with: complex numbers of the model, or a 16-bit copy of cosines and sines.

    FSDP2 makes that copy for every layer, of what a model with norms of queries and keys calls it with.
    """
    return torch.rand(s, 2 * d).bfloat16() if normed else torch.polar(torch.ones(s, d // 2), torch.rand(s, d // 2))


def shared_out(layer: Layer, mesh: DeviceMesh) -> Layer:
    """Share a layer and its tokens out over tensor-parallel ranks, as torchtitan's plan says."""
    whole = PrepareModuleInput(input_layouts=(Shard(1), None), desired_input_layouts=(Replicate(), None))
    heads = SequenceParallel(sequence_dim=2, use_local_output=True)
    return parallelize_module(layer, mesh, {
        "attention_norm": SequenceParallel(), "ffn_norm": SequenceParallel(), "attention": whole,
        **{f"attention.{name}": ColwiseParallel() for name in ("wq", "wk", "wv")},
        **({f"attention.{name}_norm": heads for name in "qk"} if layer.attention.q_norm is not None else {}),
        "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
        "feed_forward": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
        "feed_forward.w1": ColwiseParallel(), "feed_forward.w3": ColwiseParallel(),
        "feed_forward.w2": RowwiseParallel(output_layouts=Shard(1)),
    })


def _every_second() -> Any:
    """Return contexts of one pass in which results of the kept operations stay, and of every second product."""
    products: Counter[bool] = Counter()

    def policy(context: Any, operation: Any, *inputs: Any, **others: Any) -> CheckpointPolicy:
        products[context.is_recompute] += operation == aten.mm.default
        left_out = operation == aten.mm.default and products[context.is_recompute] % 2 == 0
        return CheckpointPolicy.MUST_SAVE if operation in KEPT and not left_out else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def kept(layer: nn.Module, x: Tensor, angles: Tensor, recompute: str) -> int:
    """Return the bytes that the compiled layer keeps for its backward pass.

    Left out are its parameters, the model's complex numbers, and the state of the random numbers (uint8).
    """
    wrapped = {
        "none": lambda: layer,
        "full": lambda: checkpoint_wrapper(layer, preserve_rng_state=False),
        "selective": lambda: checkpoint_wrapper(layer, context_fn=_every_second, preserve_rng_state=False),
    }[recompute]()
    of_model = (*layer.parameters(), *((angles,) if angles.is_complex() else ()))
    own = {_local(one).untyped_storage().data_ptr() for one in of_model}
    sizes: dict[int, int] = {}

    def pack(one: Tensor) -> Tensor:
        storage = _local(one).untyped_storage()
        if one.dtype is not torch.uint8 and storage.data_ptr() not in own:
            sizes[storage.data_ptr()] = storage.nbytes()
        return one

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda one: one):
        output = torch.compile(wrapped, fullgraph=True, dynamic=False)(x, angles)
    output.sum().backward()
    return sum(sizes.values())


def _local(one: Tensor) -> Tensor:
    return one.to_local() if isinstance(one, DTensor) else one
