"""Record every allocation of Transformers' own training steps on one rank: tensors have sizes and no memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.distributed as dist
from oracles.hugging_face import flash
from oracles.hugging_face.huggingface import FAMILIES, Shape, causal_lm, token_ids
from oracles.pytorch.sharded_steps import Recorder, instrument, shard_outside
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore

from shardmath.allocator.trace import Action


@contextmanager
def one_rank() -> Iterator[None]:
    """Have a process group of this process alone, which other tests find gone again."""
    dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


@one_rank()
def recorded(
    family: str, shape: Shape, *, full: bool, holds: bool, microbatches: int = 1, steps: int = 2,
    attention: str = "sdpa", documents: int = 1, is_shared: bool = False,
    adapted: Callable[[Any], Any] = lambda model: model, kind: Callable[..., Recorder] = Recorder,
) -> Recorder:
    """Record training steps in bf16 with fused AdamW; ``holds`` keeps what the model returns until the end.

    ``full`` recomputes every layer. Peaks begin when the model is there. ``is_shared``: in DistributedDataParallel as
    Transformers' trainer makes it, on tensors with memory in a group of one rank. ``adapted`` adds adapters to a
    model; ``kind`` of a recorder. With flash-attn a sequence may have several ``documents``.
    """
    recorder = kind(are_fake=not is_shared)
    with _recording(recorder, family, attention, documents):
        model = _attending(family, shape, attention)
        _recompute(model, full)
        model = adapted(model)
        whole = _shared(model, seeks_unused=not full) if is_shared else model
        _train(recorder, whole, shape, holds, microbatches, steps, documents)
    return recorder


@dataclass(frozen=True)
class Sharding:
    """Settings of FSDP2: ranks, bytes of a weight, bytes of a reduced gradient, and ``reshard_after_forward``.

    ``is_accelerates``: units are those that Accelerate makes from 1.14 on.
    """

    ranks: int
    weight: int
    reduced: int
    reshard: bool | None
    is_accelerates: bool = False


DTYPES = {2: torch.bfloat16, 4: torch.float32}


def sharded(
    family: str, shape: Shape, sharding: Sharding, *, full: bool, holds: bool, microbatches: int = 1, steps: int = 2,
    attention: str = "sdpa",
) -> Recorder:
    """Record the first rank's steps with every layer and the model as units of FSDP2, in a group that does not exist.

    Weights are computed with in bf16; the rest is as ``recorded`` has it.
    """
    recorder = Recorder()
    dist.init_process_group("fake", rank=0, world_size=sharding.ranks, store=FakeStore())
    try:
        with pytest.MonkeyPatch.context() as patched:
            instrument(recorder, patched)
            units: dict[str, Any] = {
                "mesh": init_device_mesh("cpu", (sharding.ranks,)), "reshard_after_forward": sharding.reshard,
                "mp_policy": MixedPrecisionPolicy(torch.bfloat16, DTYPES[sharding.reduced]),
            }
            with _recording(recorder, family, attention):
                model = _attending(family, shape, attention, DTYPES[sharding.weight])
                _recompute(model, full)
                for part in model.model.layers:
                    fully_shard(part, **units)
                shard_outside(model, model.model.norm, units, sharding.is_accelerates)
                recorder.forget()
                _train(recorder, model, shape, holds, microbatches, steps)
    finally:
        dist.destroy_process_group()
    return recorder


@contextmanager
def _recording(recorder: Recorder, family: str, attention: str, documents: int = 1) -> Iterator[None]:
    """Record. The causal kernel needs no mask; Transformers makes one for tensors that it takes for traced."""
    kernels = flash.installed(documents) if attention == "flash" else nullcontext()
    with kernels, pytest.MonkeyPatch.context() as patched, recorder.mode or nullcontext(), recorder:
        module = FAMILIES[family][1].__module__
        if attention == "sdpa":
            patched.setattr(f"{module}.create_causal_mask", lambda *arguments, **options: None)
        yield


def _attending(family: str, shape: Shape, attention: str, dtype: torch.dtype = torch.bfloat16) -> Any:
    """Make a model that attends in one of the ledger's ways."""
    model = causal_lm(family, shape, "sdpa" if attention == "flash" else attention, dtype=dtype)
    if attention == "flash":
        flash.choose(model)
    return model


def _recompute(model: Any, full: bool) -> None:
    if full:
        model.gradient_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": False})


def _train(
    recorder: Recorder, whole: Any, shape: Shape, holds: bool, microbatches: int, steps: int, documents: int = 1,
) -> None:
    optimizer = torch.optim.AdamW([one for one in whole.parameters() if one.requires_grad], fused=True)
    recorder.peak = recorder.now
    for _ in range(steps):
        for place in range(microbatches):
            is_shared = isinstance(whole, DistributedDataParallel) and place < microbatches - 1
            with whole.no_sync() if is_shared else nullcontext():
                tokens = token_ids(shape)
                batch = {"input_ids": tokens, "labels": tokens}
                if documents > 1:
                    batch["position_ids"] = token_ids(shape)
                output = whole(**batch)
                loss = output.loss
                if not holds:
                    del output
                loss.backward()
                output = loss = tokens = batch = None
        optimizer.step()
        optimizer.zero_grad()


def _shared(model: Any, seeks_unused: bool) -> Any:
    return DistributedDataParallel(model, find_unused_parameters=seeks_unused)


@one_rank()
def reducer_of(family: str, shape: Shape, full: bool) -> list[int]:
    """Return the bytes of all that DistributedDataParallel allocates: at its start, and before its second step.

    Those of less than 16 KiB are left out: buffers, shapes, and the map of used parameters.
    """
    recorder = Recorder(are_fake=False)
    model: Any = causal_lm(family, shape, "sdpa")
    with recorder:
        for one in (*model.parameters(), *model.buffers()):
            one.detach()
        before = len(recorder.events)
        whole = _shared(model, seeks_unused=not full)
    for _ in range(2):
        tokens = token_ids(shape)
        output = whole(input_ids=tokens, labels=tokens)
        output.loss.backward()
        model.zero_grad()
    made = [event.size for event in recorder.events[before:] if event.action is Action.ALLOCATE]
    rebuilt = [bucket.buffer().nbytes for bucket in whole.reducer._get_zeros_like_grad_buckets()] if full else []
    return [size for size in (*made, *rebuilt) if size >= 2**14]
