"""Record every allocation of FSDP2's training steps with the stream that owns it: a Llama on tensors without memory.

PyTorch's own FSDP2 runs on fake tensors in a group of ranks that do not exist, with torchtitan's units of parameters.
Streams have names only: what runs inside of ``with device.stream(...)`` allocates on that stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any
from weakref import ref

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard import (
    _fsdp_collectives,
    _fsdp_init,
    _fsdp_param,
    _fsdp_param_group,
    _fsdp_state,
)
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.nn import functional
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from shardmath.allocator.trace import Action, Event, Replay
from shardmath.steps.trace import GATHER, REDUCE

#: Streams of FSDP2 in the order in which it makes them, from 1: copies into buffers, gathers, reductions.
STREAMS = {0: 0, GATHER: 1, REDUCE: 3}
_MODULES = (_fsdp_collectives, _fsdp_init, _fsdp_param, _fsdp_param_group, _fsdp_state)


def by_stream(replayed: Replay) -> dict[int, int]:
    """Return the bytes that the streams have in the end."""
    streams: dict[int, int] = {}
    for blocks in replayed.allocator.blocks().values():
        stream = blocks[0].segment.stream
        streams[stream] = streams.get(stream, 0) + sum(block.size for block in blocks)
    return streams


class _Mark:
    """An event or a stream, of which nothing waits."""

    def __init__(self, name: int = 0) -> None:
        self.name = name

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **options: self


class Recorder(TorchDispatchMode):
    """Events of all storages that are made inside of the ``with`` block; ``are_fake``: of tensors without memory."""

    def __init__(self, are_fake: bool = True) -> None:
        super().__init__()
        self.events: list[Event] = []
        self.now = self.peak = self.paused = 0
        self.streams = [_Mark()]
        self.mode = FakeTensorMode(allow_non_fake_inputs=True) if are_fake else None
        self._alive: dict[int, tuple[Any, int, int]] = {}
        self._numbers = count(1)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operation, below DTensor, and record what it made."""
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        result = func(*args, **kwargs or {})
        for leaf in tree_leaves(result) if not self.paused else ():
            if isinstance(leaf, torch.Tensor) and getattr(leaf, "fake_mode", None) is self.mode:
                self.record(leaf)
        if func is torch.ops.aten._softmax_backward_data.default:  # a GPU makes the product of both for it
            self.record(torch.empty_like(args[0]))
        return result

    def record(self, tensor: torch.Tensor) -> None:
        """Record a storage that is new or has another size."""
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        _, old, number = self._alive.get(key, (None, 0, 0))
        if key in self._alive and old == size:
            return
        self._free(number, old)
        number = next(self._numbers)
        self._alive[key] = ref(storage, lambda _: self._free(*self._alive.pop(key)[:0:-1])), size, number
        if size:
            self.events.append(Event(Action.ALLOCATE, number, size, self.streams[-1].name))
            self.now += size
            self.peak = max(self.peak, self.now)

    def leave(self, tensor: torch.Tensor) -> None:
        """Leave out a storage, for as long as it lives: it is on the host."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        self._alive[key] = ref(storage, lambda _: self._alive.pop(key) and None), storage.nbytes(), 0

    def is_left(self, tensor: torch.Tensor) -> bool:
        """Tell whether the storage of a tensor is left out."""
        return self._alive.get(tensor.untyped_storage()._cdata, (None, 0, 1))[2] == 0

    def _free(self, number: int, size: int) -> None:
        if size:
            self.events.append(Event(Action.FREE, number))
            self.now -= size

    def forget(self) -> None:
        """Forget what is freed already: a model that was whole before it was sharded."""
        alive = {number for _, _, number in self._alive.values()}
        self.events = [event for event in self.events if event.action is Action.ALLOCATE and event.key in alive]

    @contextmanager
    def stream(self, stream: _Mark) -> Iterator[None]:
        """Allocate on a stream."""
        self.streams.append(stream)
        yield
        self.streams.pop()


class _Device:
    """Stand-in for a device's module: streams are numbered in the order in which they are made."""

    def __init__(self, recorder: Recorder) -> None:
        self.stream, self._recorder, self._made = recorder.stream, recorder, 0

    def Stream(self, priority: int = 0) -> _Mark:
        self._made += 1
        return _Mark(self._made)

    def Event(self, **options: Any) -> _Mark:
        return _Mark()

    def current_stream(self) -> _Mark:
        return self._recorder.streams[-1]


class _FusedNorm(torch.autograd.Function):
    """The kernel of CUDA keeps its input and an fp32 statistic of every token."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> Any:
        value, weight = given
        ctx.save_for_backward(value, weight, torch.empty(*value.shape[:-1], 1, dtype=torch.float32))
        return torch.empty_like(value)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        value, weight, _ = ctx.saved_tensors
        return torch.empty_like(value), torch.empty_like(weight)


class _Norm(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, value: Any) -> Any:
        return _FusedNorm.apply(value, self.weight)


def _linear(rows: int, columns: int) -> nn.Linear:
    return nn.Linear(rows, columns, bias=False)


class _Layer(nn.Module):
    def __init__(self, sizes: dict[str, int]) -> None:
        super().__init__()
        h, a, k, d, f = (sizes[name] for name in "hakdf")
        self.d, self.repeated, self.is_normed = d, a > k, bool(sizes.get("qkn"))
        self.wq, self.wk, self.wv, self.wo = _linear(h, a * d), _linear(h, k * d), _linear(h, k * d), _linear(a * d, h)
        self.w1, self.w2, self.w3 = _linear(h, f), _linear(f, h), _linear(h, f)
        if self.is_normed:
            self.q_norm, self.k_norm = _Norm(d), _Norm(d)
        self.attention_norm, self.ffn_norm = _Norm(h), _Norm(h)

    def forward(self, value: Any, rotation: Any) -> Any:
        middle = value + self._attention(self.attention_norm(value), rotation)
        return middle + self._mlp(self.ffn_norm(middle))

    def _attention(self, value: Any, rotation: Any) -> Any:
        b, s, _ = value.shape
        q, k, v = (part(value).view(b, s, -1, self.d) for part in (self.wq, self.wk, self.wv))
        if self.is_normed:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = (_turned if self.is_normed else _rotated)(q, k, rotation[:s].view(1, s, 1, -1))
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        output = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.repeated)
        return self.wo(output.transpose(1, 2).contiguous().view(b, s, -1))

    def _mlp(self, value: Any) -> Any:
        return self.w2(functional.silu(self.w1(value)) * self.w3(value))


def _rotated(q: Any, k: Any, rotation: Any) -> Any:
    complex_q, complex_k = (torch.view_as_complex(part.float().reshape(*part.shape[:-1], -1, 2)) for part in (q, k))
    real_q, real_k = (torch.view_as_real(part * rotation).flatten(3) for part in (complex_q, complex_k))
    return real_q.type_as(q), real_k.type_as(k)


def _turned(q: Any, k: Any, angles: Any) -> Any:
    """Turn halves of heads by cosines and sines that each layer casts, as in torchtitan's Qwen3."""
    cos, sin = (part.to(q.dtype) for part in angles.chunk(2, dim=-1))
    return (q * cos) + (_half(q) * sin), (k * cos) + (_half(k) * sin)


def _half(value: Any) -> Any:
    first, second = value[..., : value.shape[-1] // 2], value[..., value.shape[-1] // 2:]
    return torch.cat((-second, first), dim=-1)


class _Llama(nn.Module):
    def __init__(self, sizes: dict[str, int]) -> None:
        super().__init__()
        h, v = sizes["h"], sizes["v"]
        self.embedding, self.norm, self.output = nn.Embedding(v, h), _Norm(h), _linear(h, v)
        angles = (2 * sizes["d"], torch.float32) if sizes.get("qkn") else (sizes["d"] // 2, torch.complex64)
        self.register_buffer("rotation", torch.zeros(sizes["s"], angles[0], dtype=angles[1]), persistent=False)
        self.layers = nn.ModuleList(_Layer(sizes) for _ in range(sizes["L"]))

    def forward(self, tokens: Any) -> Any:
        value = self.embedding(tokens)
        for layer in self.layers:
            value = layer(value, self.rotation)
        return self.output(self.norm(value))


def recorded(sizes: dict[str, int], ranks: int, steps: int = 2, in_backward: bool = False,
             shards: torch.dtype = torch.float32, reduced: torch.dtype = torch.float32, *,
             stays: bool = False, passes: int = 1) -> Recorder:
    """Record training steps with fused AdamW and nothing recomputed; ``shards`` are those of weights and gradients.

    A step has ``passes`` of a micro-batch each, all of which reduce their gradients.

    ``sizes`` are L, h, a, k, d, f, v, s and b; with qkn = 1 the model is a Qwen3. ``stays``: parameters stay gathered
    behind the forward pass. ``in_backward``: every parameter has an optimizer of its own, which its hook runs in the
    backward pass, as in torchtitan's ``OptimizersInBackwardContainer``.
    """
    with sharded_model(sizes, ranks, shards, reduced, stays=stays) as (recorder, model), recorder:
        model.to_empty(device="cpu")
        optimizers = _in_backward(model) if in_backward else [torch.optim.AdamW(model.parameters(), fused=True)]
        for _ in range(steps):
            _step(model, [] if in_backward else optimizers, sizes, passes)
    return recorder


@contextmanager
def sharded_model(
    sizes: dict[str, int], ranks: int, shards: torch.dtype = torch.float32, reduced: torch.dtype = torch.float32, *,
    stays: bool = False,
) -> Iterator[tuple[Recorder, Any]]:
    """Yield a recorder of fake tensors, and a model in FSDP2's units on the meta device, as torchtitan makes them."""
    recorder = Recorder()
    dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
    with pytest.MonkeyPatch.context() as patched:
        instrument(recorder, patched)
        mesh = init_device_mesh("cpu", (ranks,))
        with recorder.mode:
            torch.set_default_dtype(shards)
            with torch.device("meta"):
                model: Any = _Llama(sizes)
            torch.set_default_dtype(torch.float32)
            policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=reduced)
            for unit in (model.embedding, *model.layers):
                fully_shard(unit, mesh=mesh, mp_policy=policy, reshard_after_forward=not stays)
            fully_shard([model.norm, model.output], mesh=mesh, mp_policy=policy, reshard_after_forward=False)
            fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=not stays)
            for module in (model.embedding, *model.layers, model.norm, model):
                module.set_gradient_divide_factor(1.0)
            yield recorder, model
    dist.destroy_process_group()


def _in_backward(model: Any) -> list[torch.optim.Optimizer]:
    """Give every parameter an optimizer, which updates it and frees its gradient as soon as that is there."""
    optimizers = {one: torch.optim.AdamW([one], fused=True) for one in model.parameters()}

    def update(parameter: Any) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for one in model.parameters():
        one.register_post_accumulate_grad_hook(update)
    return [*optimizers.values()]


def _step(model: Any, optimizers: list[Any], sizes: dict[str, int], passes: int) -> None:
    for optimizer in optimizers:
        optimizer.zero_grad()
    for _ in range(passes):
        _pass(model, sizes)
    for optimizer in optimizers:
        optimizer.step()


def _pass(model: Any, sizes: dict[str, int]) -> None:
    tokens = torch.zeros(sizes["b"], sizes["s"], dtype=torch.int64)
    labels = torch.zeros_like(tokens)
    logits = model(tokens)
    loss = functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())
    del logits
    loss.backward()


def shard_outside(model: Any, norm: Any, units: dict[str, Any], is_accelerates: bool) -> None:
    """Make units of what lies outside of a model's layers: one, or as ``fsdp2_prepare_model`` of Accelerate 1.15.

    There the unit of final norm and head stays gathered; tied weights are a part of it.
    """
    if is_accelerates:
        embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
        is_tied = embedding.weight is head.weight
        if not is_tied:
            fully_shard(embedding, **units)
        fully_shard([norm, *([embedding] if is_tied else []), head], **{**units, "reshard_after_forward": False})
        units = {name: value for name, value in units.items() if name != "reshard_after_forward"}
    fully_shard(model, **units)


def instrument(recorder: Recorder, patched: pytest.MonkeyPatch) -> None:
    """Let FSDP2 run without a device: its streams have names, and what DTensor tries out is not recorded."""
    device = _Device(recorder)
    for module in _MODULES:
        patched.setattr(module, "_get_device_handle", lambda kind: device, raising=False)
        for name in ("alloc_storage", "free_storage"):
            if hasattr(module, name):
                patched.setattr(module, name, _resized(recorder, getattr(module, name)))
    propagate = ShardingPropagator._propagate_tensor_meta_non_cached

    def unseen(*arguments: Any, **options: Any) -> Any:
        recorder.paused += 1
        try:
            return propagate(*arguments, **options)
        finally:
            recorder.paused -= 1

    patched.setattr(ShardingPropagator, "_propagate_tensor_meta_non_cached", unseen)


def keep_shards_on_the_host(recorder: Recorder, patched: pytest.MonkeyPatch) -> None:
    """Let FSDP2's copies between host and GPU make tensors on a CPU too; those on the host are left out."""
    unpatched = torch.Tensor.to

    def copied(tensor: torch.Tensor, to_host: bool) -> torch.Tensor:
        recorder.paused += to_host
        copy = tensor.clone()
        recorder.paused -= to_host
        if to_host:
            recorder.leave(copy)
        return copy

    def moved(tensor: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:
        if not (arguments and isinstance(arguments[0], torch.device) and "non_blocking" in options):
            return unpatched(tensor, *arguments, **options)
        return copied(tensor, not recorder.is_left(tensor))

    patched.setattr(torch.Tensor, "cpu", lambda tensor: copied(tensor, True))
    patched.setattr(torch.Tensor, "to", moved)


def _resized(recorder: Recorder, resize: Any) -> Any:
    def call(tensor: torch.Tensor) -> None:
        resize(tensor)
        recorder.record(tensor)

    return call
