"""Record training steps of families of Transformers as one GPU has them: tensors have sizes and no memory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
import torch.distributed as dist
from oracles.hugging_face.public_families import RESIDUAL_DROPOUT
from oracles.hugging_face.transformers_steps import one_rank
from oracles.pytorch.sharded_steps import Recorder, instrument, keep_shards_on_the_host, shard_outside
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

#: Masks that the kernels of attention do without; Transformers makes them for tensors that it takes for traced.
_MASKS = ("create_causal_mask", "create_sliding_window_causal_mask")


class OnGpu(Recorder):
    """LayerNorm's statistics are in fp32, as a GPU has them: a CPU has them in the precision of the input.

    The gradient of indexed rows is written in place, as autograd writes those of tensors with memory.
    ``norm`` is the peak of the final norm's backward pass, ``layers`` that of the backward passes behind it.
    """

    norm = layers = before = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.index_put.default:
            func = torch.ops.aten.index_put_.default
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if func is not torch.ops.aten.native_layer_norm.default:
            return result
        statistics = [each.float() for each in result[1:]]
        for each in statistics:
            self.record(each)
        return result[0], *statistics

    def watch(self, norm: Any) -> None:
        """Let the peak begin anew when the gradients of a norm's output and of its input are there."""
        norm.register_forward_hook(lambda module, inputs, output: output.register_hook(self._begin) and None)
        norm.register_forward_pre_hook(lambda module, inputs: inputs[0].register_hook(self._end_norm) and None)

    def _begin(self, gradient: Any) -> None:
        self.before, self.peak = max(self.before, self.peak), self.now

    def _end_norm(self, gradient: Any) -> None:
        self.norm = max(self.norm, self.peak)
        self._begin(gradient)

    def end(self) -> None:
        """End a backward pass."""
        self.layers, self.peak = max(self.layers, self.peak), max(self.before, self.peak)


class _Kernel(torch.autograd.Function):
    """Stand-in for a GPU's kernel of attention with values narrower than keys, of which a CPU has none.

    Results and gradients have one token after another.
    """

    @staticmethod
    def forward(ctx: Any, *read: Any) -> Any:
        query, _, value = read
        batch, heads, tokens, _ = query.shape
        result = query.new_empty(batch, tokens, heads, value.shape[-1]).transpose(1, 2)
        ctx.save_for_backward(*read, result, query.new_empty(batch, heads, tokens, dtype=torch.float32))
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        *read, _, _ = ctx.saved_tensors
        return tuple(each.new_empty(each.transpose(1, 2).shape).transpose(1, 2) for each in read)


def _attend(query: Any, key: Any, value: Any, **options: Any) -> Any:
    return _Kernel.apply(query, key, value)


@contextmanager
def _bf16() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    yield
    torch.set_default_dtype(before)


def _narrow(model: Any) -> None:
    """Cast what is trained to bf16: weights of routers too, which FSDP2 refuses in a unit with others."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.bfloat16()


@contextmanager
def _sharded_over(
    recorder: OnGpu, ranks: int, reshard: bool | None, is_accelerates: bool, is_offloaded: bool,
) -> Iterator[Callable[[Any], None]]:
    """Have what makes layers and model units of FSDP2, in a group of ranks that do not exist; of one rank nothing.

    ``reshard`` is ``reshard_after_forward``, whose default lets go of all but what is outside of the layers.
    ``is_accelerates``: what is outside of the layers has units as Accelerate makes them from 1.14 on.
    ``is_offloaded``: shards are on the host.
    """
    if ranks < 2:
        yield lambda model: None
        return

    def shard(model: Any) -> None:
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        units = {"mesh": mesh, "reshard_after_forward": reshard}
        if is_offloaded:
            units["offload_policy"] = CPUOffloadPolicy(pin_memory=False)
        for layer in base.model.layers:
            fully_shard(layer, **units)
        shard_outside(model, getattr(base.model, "norm", None), units, is_accelerates)

    dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
    try:
        with pytest.MonkeyPatch.context() as patched:
            instrument(recorder, patched)
            if is_offloaded:
                keep_shards_on_the_host(recorder, patched)
            mesh = init_device_mesh("cpu", (ranks,))
            yield shard
    finally:
        dist.destroy_process_group()


def recorded(
    config: dict[str, Any], sequence: int, batch: int, *, full: bool, microbatches: int, ranks: int = 1,
    attention: str = "sdpa", is_shared: bool = False, adapted: Callable[[Any], Any] | None = None,
    reshard: bool | None = None, is_accelerates: bool = False, is_offloaded: bool = False,
) -> OnGpu:
    """Record two steps in bf16 with fused AdamW; peaks begin when the model is there.

    Of several ranks the first one's, whose layers are units of FSDP2. ``is_shared``: in DistributedDataParallel as
    Transformers' trainer makes it, on tensors with memory in a group of one rank. ``adapted`` adds adapters to a model.
    ``is_offloaded``: shards, their gradients and optimizer states are on the host, and not recorded.
    """
    recorder = OnGpu(are_fake=not is_shared)
    keys = {key: value for key, value in config.items() if key != "model_type"}
    made = CONFIG_MAPPING[config["model_type"]](
        **keys, attention_dropout=0.0, use_cache=False, pad_token_id=None, bos_token_id=None, eos_token_id=None,
        **{name: 0.0 for family, name in RESIDUAL_DROPOUT.items() if family == config["model_type"]})
    with (one_rank() if is_shared else nullcontext(),
          _sharded_over(recorder, ranks, reshard, is_accelerates, is_offloaded) as shard,
          pytest.MonkeyPatch.context() as patched, recorder.mode or nullcontext(), recorder):
        with _bf16():
            model: Any = AutoModelForCausalLM.from_config(made, attn_implementation=attention, dtype=torch.bfloat16)
        if ranks > 1:
            _narrow(model)
        model.train()
        module = sys.modules[type(model).__module__]
        for name in _MASKS if attention == "sdpa" else ():
            if hasattr(module, name):
                patched.setattr(module, name, lambda *arguments, **options: None)
        if made.to_dict().get("v_head_dim", 0) and made.v_head_dim != made.qk_nope_head_dim + made.qk_rope_head_dim:
            patched.setattr(torch.nn.functional, "scaled_dot_product_attention", _attend)
        if full:
            model.gradient_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": False})
        recorder.watch(next(part for name, part in model.base_model.named_modules()
                            if name == "ln_f" or ("norm" in name.rpartition(".")[2] and "layers." not in name)))
        if adapted is not None:
            with _bf16():
                model = adapted(model)
        shard(model)
        whole = DistributedDataParallel(model, find_unused_parameters=not full) if is_shared else model
        optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], fused=True)
        recorder.peak = recorder.now
        for _ in range(2):
            for place in range(microbatches):
                tokens = torch.zeros(batch, sequence, dtype=torch.long)
                with whole.no_sync() if is_shared and place < microbatches - 1 else nullcontext():
                    loss = whole(input_ids=tokens, labels=tokens).loss
                    loss.backward()
                recorder.end()
                loss = tokens = None
            recorder.paused += is_offloaded
            optimizer.step()
            recorder.paused -= is_offloaded
            optimizer.zero_grad()
    return recorder
