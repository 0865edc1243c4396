"""Hagemann et al. 2023: which layouts of a 13B model fitted on A100-80GB and which ran out of memory."""

from __future__ import annotations

from typing import Any

from shardmath.machines.gpu import Gpu
from validation.measured.case import FIT, OUT_OF_MEMORY, Case, varied
from validation.measured.reading import rows, whole, yes
from validation.measured.sets.kernels import GATHERED_LOSS

TABLE = "hagemann2023_runs.csv"
SOURCE = "https://github.com/Aleph-Alpha/NeurIPS-WANT-submission-efficient-parallelization-layouts"
GPU = Gpu.named("a100-80gb")
STATUSES = {"ok": FIT, "oom": OUT_OF_MEMORY}
#: Sequences of one step by their length; what the table's own MFU and step times give.
BATCHES = {2048: 2048, 8192: 512}
#: Llama 13B with the vocabulary that the same numbers give.
MODEL = varied("llama-13b", name="llama-13b with 128,000 tokens", vocab_size=128_000, max_seq_length=8192)
#: Kernels of attention by the table's names, where it is not FlashAttention.
ATTENTION = {"torch": "eager", "fused": "fused_softmax"}
RMS_KERNEL = "flash_attention2 + RMS kernel"
#: Traits that sentences ask for.
RECOMPUTED, PRODUCTS = "full recompute", "attention by matrix products"


def stage_layers(stages: int) -> tuple[int, ...]:
    """Return the layers of every stage as the authors' program balances them: the most parameters of a stage are least.

    Their library of 2024 (Aleph-Alpha/scaling, commit 737f855) has this way, which its example asks for, beside as many
    modules on each stage. Modules are the embedding, every layer, the last norm and the head; earlier stages are filled
    first.
    """
    h, layers = MODEL.hidden_size, MODEL.num_layers
    table, layer = MODEL.vocab_size * h, 4 * h * h + 3 * h * MODEL.ffn_hidden_size + 2 * h
    modules = [table, *[layer] * layers, h, table]
    sums = (sum(modules[first:last]) for last in range(len(modules) + 1) for first in range(last))
    starts = next(starts for most in sorted(sums) if len(starts := _starts(modules, most)) == stages)
    ends = [*starts[1:], len(modules)]
    return tuple(min(end, layers + 1) - max(start, 1) for start, end in zip(starts, ends, strict=True))


def _starts(modules: list[int], most: int) -> list[int]:
    """Return the first module of every stage, where a stage has at most so many parameters."""
    starts, size = [0], 0
    for place, own in enumerate(modules):
        if place and size + own > most:
            starts, size = [*starts, place], 0
        size += own
    return starts


def read(table: str = TABLE) -> tuple[Case, ...]:
    """Return one case for every row. Raises ValueError for another length, recompute or status."""
    return tuple(_case(number, row) for number, row in enumerate(rows(table), start=2))


def _case(line: int, row: dict[str, str]) -> Case:
    length = whole(row["seq_length"])
    if length not in BATCHES or row["recompute"] not in ("none", "full") or row["status"] not in STATUSES:
        raise ValueError(f"line {line}: unexpected run {row}")
    tensor, pipeline, gpus = (whole(row[name]) for name in ("tensor_parallel", "pipeline_parallel", "num_gpus"))
    fused = row["kernel"] == RMS_KERNEL
    kernels = {"norm": "fused" if fused else "torch", "swiglu": "eager",
               "attention": ATTENTION.get(row["kernel"], "flash"), **GATHERED_LOSS}
    arguments: dict[str, Any] = {
        "implementation": "megatron", "kernels": kernels, "seq_length": length,
        "micro_batch_size": whole(row["micro_batch_size"]), "global_batch_size": BATCHES[length],
        "tensor_parallel": tensor, "pipeline_parallel": pipeline, "data_parallel": gpus // (tensor * pipeline),
        "sequence_parallel": yes(row["sequence_parallel"]) and tensor > 1,
        "recompute": row["recompute"],
        "gradients": "bf16", "distributed_optimizer": True, "vocab_multiple": 1,
    }
    return Case(
        id=f"line {line}", group=f"{length} tokens, {row['kernel']}", source=SOURCE, model=MODEL, gpu=GPU,
        arguments=arguments, status=STATUSES[row["status"]],
        seconds=float(row["step_seconds"]) if row["step_seconds"] else None,
        traits=frozenset(name for name, holds in {
            RECOMPUTED: row["recompute"] == "full", PRODUCTS: row["kernel"] in ATTENTION,
        }.items() if holds),
    )
