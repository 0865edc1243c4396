"""Record every allocation of Transformers' own training steps on one GPU: tensors have sizes and no memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from oracles.huggingface import FAMILIES, Shape, causal_lm, token_ids
from oracles.sharded_steps import Recorder


def recorded(family: str, shape: Shape, *, full: bool, holds: bool, microbatches: int = 1, steps: int = 2) -> Recorder:
    """Record training steps in bf16 with sdpa and fused AdamW; ``holds`` keeps what the model returns until the end.

    ``full`` recomputes every layer. Peaks begin when the model is there.
    """
    recorder = Recorder()
    with pytest.MonkeyPatch.context() as patched, recorder.mode, recorder:
        # The causal kernel needs no mask; Transformers makes one for tensors that it takes for traced.
        module = FAMILIES[family][1].__module__
        patched.setattr(f"{module}.create_causal_mask", lambda *arguments, **options: None)
        model: Any = causal_lm(family, shape, "sdpa")
        if full:
            model.gradient_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": False})
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        recorder.peak = recorder.now
        for _ in range(steps):
            for _ in range(microbatches):
                tokens = token_ids(shape)
                output = model(input_ids=tokens, labels=tokens)
                loss = output.loss
                if not holds:
                    del output
                loss.backward()
                output = loss = tokens = None
            optimizer.step()
            optimizer.zero_grad()
    return recorder
