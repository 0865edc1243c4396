"""The order in which steps of DeepSpeed's ZeRO allocate, and their peak, on the first of several ranks.

The others do not exist: a fake process group stands for them, so no thread of a real one holds a tensor. What DeepSpeed
makes before its first step is counted when that begins. The passes are those of the second step, behind the tables of
RoPE, with the optimizer step. ``cd tests && python -m oracles.libraries.deepspeed_orders`` prints rows that are drawn.
"""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from itertools import product
from multiprocessing import get_context
from random import Random
from typing import Any

import pytest
import torch
import torch.distributed as dist
from oracles.hugging_face.huggingface import FAMILIES, Shape, causal_lm, token_ids
from oracles.pytorch.allocation_orders import InPlace, described, least, order
from torch.testing._internal.distributed.fake_pg import FakeStore

TABLE = "deepspeed_orders"
SHAPE = ("k", "a", "d", "h", "f", "b", "s", "u", "L", "tied")
COUNTED = ("peak", "made", "order")


def has(row: Mapping[str, str]) -> bool:
    """True for every row."""
    return True


def count(row: Mapping[str, str], steps: int = 2, limits: Mapping[str, int] | None = None) -> dict[str, Any]:
    """Train steps of AdamW on the first rank, in a process of its own; ``limits`` are further ones of ZeRO."""
    context, models = get_context("forkserver"), (kind[1].__module__ for kind in FAMILIES.values())
    context.set_forkserver_preload(["deepspeed", "oracles.libraries.deepspeed_orders", *models])
    with ProcessPoolExecutor(1, context) as pool:
        return pool.submit(_count, dict(row), steps, dict(limits or {})).result()


def _count(row: dict[str, str], steps: int, limits: dict[str, int]) -> dict[str, Any]:
    os.dup2(2, 1)
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": row["ranks"], "DS_ACCELERATOR": "cpu"}
    family, shape, run = described(row)
    dist.init_process_group("fake", rank=0, world_size=int(row["ranks"]), store=FakeStore())
    deepspeed, recorder, starts = import_module("deepspeed"), InPlace(are_fake=False), list[int]()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys.modules["deepspeed.comm.torch"], "build_shm_op", lambda: None)  # it waits for all ranks
        deepspeed.init_distributed()
        model: Any = causal_lm(family, shape, "sdpa", dtype=torch.bfloat16)
        patched.setattr(f"{FAMILIES[family][1].__module__}.create_causal_mask", lambda *arguments, **options: None)
        if run["full"]:
            model.gradient_checkpointing_enable({"use_reentrant": False, "preserve_rng_state": False})
        optimizer = torch.optim.AdamW(list(model.parameters()), fused=True)
        engine, zero, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config={
            "train_micro_batch_size_per_gpu": shape["b"], "gradient_accumulation_steps": run["microbatches"],
            "bf16": {"enabled": True}, "gradient_clipping": 1.0,
            "zero_optimization": {"stage": int(row["stage"]), "reduce_bucket_size": int(row["bucket"]),
                                  "overlap_comm": row["overlap"] == "1", **limits}})
        model.model.rotary_emb.register_forward_hook(lambda *arguments: starts.append(len(recorder.events)))
        with recorder:
            for one in (*_made_at_the_start(zero, row["stage"]), *model.buffers()):
                one.detach()
            for _ in range(steps):
                recorder.peak = recorder.now
                for _ in range(run["microbatches"]):
                    ids = token_ids(shape)
                    output = engine(input_ids=ids, labels=ids)
                    loss = output.loss
                    if not run["holds"]:
                        del output
                    engine.backward(loss)
                    output = loss = ids = None
                    engine.step()
    made, digest = order(recorder.events[starts[-1]:], least(shape))
    return {"peak": recorder.peak, "made": made, "order": digest}


def _made_at_the_start(zero: Any, stage: str) -> list[torch.Tensor]:
    if stage == "3":
        gradients = [zero.grad_partitions_flat_buffer, *(bucket.buffer for bucket in zero.ipg_buckets.values())]
        return [*zero.fp16_partitioned_groups_flat, *zero.fp32_partitioned_groups_flat, *gradients]
    return [*zero.bit16_groups_flat, *zero.single_partition_of_fp32_groups]


def most_parameters(shape: Shape) -> int:
    """Count the elements of a model's parameters, with biases and norms of heads that it may not have."""
    h, d, heads = shape["h"], shape["d"], shape["a"] + shape["k"]
    layer = 2 * h * d * heads + 3 * h * shape["f"] + 2 * h + 2 * d * (1 + heads)
    return (2 - shape["tied"]) * shape["u"] * h + shape["L"] * layer + h


def cases() -> list[dict[str, str]]:
    """Draw shapes and runs: of all families, with and without recompute, tied weights and overlap, on 1 to 8 ranks.

    First those of stage 2 with one micro-batch and a bucket for all gradients, then stages 1 and 2 with one to four
    micro-batches and buckets that have all, half or a tenth of them, or no matrix of the MLP; last such buckets with
    biases.
    """
    draw = Random(7)
    plain = [_drawn(draw, kind, overlap=overlap) for *kind, overlap in product(_KINDS, (0, 1), (0, 1), (0, 1))]
    draw = Random(11)
    others = product((1, 2), (0, 1), ((1,), (2, 3, 4)), (1, 2, 10, 0))
    several = [_drawn(draw, (draw.choice(("llama", "qwen3")), draw.randrange(2), draw.randrange(2)), stage, overlap,
                      draw.choice(batches), share) for stage, overlap, batches, share in others]
    draw = Random(19)
    biased = [_drawn(draw, ("qwen2", draw.randrange(2), draw.randrange(2)), stage, overlap, draw.choice((1, 2)),
                     draw.choice((2, 10, 0))) for stage, overlap in product((1, 2), (0, 1))]
    return [*plain, *several, *biased]


_KINDS = ("llama", "qwen3", "qwen2")


def _drawn(
    draw: Random, kind: Sequence[Any], stage: int = 2, overlap: int = 0, batches: int = 1, share: int = 1,
) -> dict[str, str]:
    family, full, tied = kind
    k, each = draw.choice((1, 2, 4)), draw.choice((1, 2, 4))
    hidden = k * each * draw.choice((32, 64, 96))
    sizes = (k, k * each, draw.choice((32, 64)), hidden, 32 * draw.randint(4, 60), draw.choice((1, 2)),
             512 * draw.choice((1, 2)), draw.choice((1, 2, 16, 64)) * hidden // 2, draw.randint(2, 5), tied)
    shape = dict(zip(SHAPE, sizes, strict=True))
    holds, ranks, most = draw.randrange(2), draw.choice((1, 2, 4, 8)), draw.choice((1, 1, 2)) * most_parameters(shape)
    return {
        "family": family, "stage": str(stage), "recompute": "full" if full else "none", "overlap": str(overlap),
        "holds": str(holds), "ranks": str(ranks), "microbatches": str(batches),
        "bucket": str(most // share if share else hidden * shape["f"] - 1),
        **{letter: str(size) for letter, size in zip(SHAPE, sizes, strict=True)}}


def print_rows(cases: Sequence[Mapping[str, str]], count: Callable[[Mapping[str, str]], Mapping[str, Any]]) -> None:
    """Print one row for each case."""
    rows = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # DeepSpeed prints what it thinks of the machine
    table = csv.writer(rows, lineterminator="\n")
    table.writerow([*cases[0], *COUNTED])
    for case in cases:
        counted = count(case)
        table.writerow([*case.values(), *(counted[name] for name in COUNTED)])
        rows.flush()


def main() -> None:
    """Print the table."""
    print_rows(cases(), count)


if __name__ == "__main__":
    main()
