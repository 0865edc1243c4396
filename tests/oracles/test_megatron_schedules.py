"""Megatron-Core's own schedules running its own model on one rank of a fake job: saved bytes at their peak.

Messages between stages arrive at once and are empty; everything else is computed, forward and backward. What the
schedule's own variables hold is no saved tensor, with one exception. The output of the micro-batch whose backward
pass has just ended stays in a variable until the next forward pass returns; of its graph nothing is left but the
leaf, the input that the stage received, which was saved by the first norm. So once a backward pass has ended, ranks
that receive an input hold one more than the ledger's activations say: 2 s b h / t with sequence parallelism.
"""

from __future__ import annotations

import warnings
from itertools import repeat
from random import Random
from typing import Any

import pytest
from counted import MEGATRON_CPU, values
from oracles.ledger import ledger
from oracles.megatron_cpu import Batch, config, gpt_model, one_rank
from oracles.saved import Saved
from torch import Tensor

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of missing fused kernels
    from megatron.core.pipeline_parallel import get_forward_backward_func


def forward_step(batches: Any, chunk: Any) -> tuple[Tensor, Any]:
    """Run one micro-batch through a chunk, as a training program does; the loss is a sum, which saves nothing."""
    batch = next(batches)
    labels = batch.labels if chunk.post_process else None
    output = chunk(batch.ids, batch.positions, batch.mask, labels=labels)
    return output, lambda losses: (losses.sum(), {})


def random_job(draw: Random) -> dict[str, int]:
    t, p, V = draw.choice((1, 2)), draw.choice((1, 2, 3, 4)), draw.choice((1, 2, 3))
    V = V if p > 1 else 1
    k = t * draw.randint(1, 2)
    G = p + draw.randint(0, 1) if V > 1 else 0
    m = (G * draw.randint(1, 4)) if V > 1 else draw.randint(1, 2 * p)
    return {
        "t": t, "p": p, "V": V, "G": G, "r": draw.randrange(p), "sp": draw.randint(0, 1) if t > 1 else 0, "k": k,
        "a": k * draw.randint(1, 2), "d": 2 * draw.randint(1, 6), "h": t * draw.randint(1, 20),
        "f": t * draw.randint(1, 20), "L": p * V * draw.randint(1, 2), "s": 2 * t * draw.randint(1, 4),
        "b": draw.randint(1, 2), "u": t * draw.randint(4, 40), "tied": 0, "m": m,
    }


@pytest.mark.cases(15, 200)
def test_saved_bytes_at_the_peak(draw: Random) -> None:
    shape = random_job(draw)
    p, V, m = shape["p"], shape["V"], shape.pop("m")
    with one_rank(shape, draw):
        settings = config(
            shape, deallocate_pipeline_outputs=True, batch_p2p_sync=False,
            microbatch_group_size_per_vp_stage=shape["G"] or None,
        )
        chunks = [gpt_model(shape, settings, chunk=chunk if V > 1 else None) for chunk in range(V)]
        batch = Batch.of(shape).with_mask(None)
        run = get_forward_backward_func()
        with Saved(chunks, batch.ids, batch.labels) as saved:
            run(
                forward_step_func=forward_step, data_iterator=[repeat(batch) for _ in chunks], model=chunks,
                num_microbatches=m, seq_length=shape["s"], micro_batch_size=shape["b"], forward_only=False,
            )
    chosen = MEGATRON_CPU.with_choices(schedule="interleaved" if V > 1 else "1f1b")
    known = values({}, "", **shape) | {"B": m * shape["b"]}
    parameters, activation = ledger(chosen, "stage.parameters", "stage.activation", **known)
    assert sum(one.numel() for chunk in chunks for one in chunk.parameters()) == parameters
    received = 2 * shape["h"] * shape["s"] * shape["b"] // (shape["t"] if shape["sp"] else 1)
    if V == 1:
        assert saved.peak == activation + received * (shape["r"] > 0 and m > p - shape["r"])
    else:  # it depends on which chunk's micro-batch has ended
        assert saved.peak - activation in (0, received)
