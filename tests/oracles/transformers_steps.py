"""Record every allocation of Transformers' own training steps on one GPU: tensors have sizes and no memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
import torch.distributed as dist
from oracles.huggingface import FAMILIES, Shape, causal_lm, token_ids
from oracles.sharded_steps import Recorder
from torch.nn.parallel import DistributedDataParallel

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
    is_shared: bool = False,
) -> Recorder:
    """Record training steps in bf16 with sdpa and fused AdamW; ``holds`` keeps what the model returns until the end.

    ``full`` recomputes every layer. Peaks begin when the model is there. ``is_shared``: in DistributedDataParallel as
    Transformers' trainer makes it, on tensors with memory in a group of one rank.
    """
    recorder = Recorder(are_fake=not is_shared)
    with pytest.MonkeyPatch.context() as patched, recorder.mode or nullcontext(), recorder:
        # The causal kernel needs no mask; Transformers makes one for tensors that it takes for traced.
        module = FAMILIES[family][1].__module__
        patched.setattr(f"{module}.create_causal_mask", lambda *arguments, **options: None)
        model: Any = causal_lm(family, shape, "sdpa")
        if full:
            model.gradient_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": False})
        whole = _shared(model, seeks_unused=not full) if is_shared else model
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        recorder.peak = recorder.now
        for _ in range(steps):
            for place in range(microbatches):
                with whole.no_sync() if is_shared and place < microbatches - 1 else nullcontext():
                    tokens = token_ids(shape)
                    output = whole(input_ids=tokens, labels=tokens)
                    loss = output.loss
                    if not holds:
                        del output
                    loss.backward()
                    output = loss = tokens = None
            optimizer.step()
            optimizer.zero_grad()
    return recorder


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
