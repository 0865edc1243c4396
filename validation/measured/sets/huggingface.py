"""Transformers on one H100: peaks, reserved memory and time of steps, measured by `validation/programs/on_gpu.py`."""

from __future__ import annotations

from typing import Any

from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model
from validation.measured.case import PEAK, RESERVED, Case, Measured
from validation.measured.reading import rows, whole

TABLE = "huggingface_h100.csv"
SOURCE = "measured on one H100 80GB HBM3: driver 580.159, PyTorch 2.11 with CUDA 13.0, Transformers 5.17"
NONE, FULL, EAGER, ADAPTERS = "no recompute", "full recompute", "eager attention", "LoRA of all matrices"


def read(table: str = TABLE) -> tuple[Case, ...]:
    """Return one case for every row."""
    return tuple(_case(row) for row in rows(table))


def _case(row: dict[str, str]) -> Case:
    sequences, microbatches = whole(row["micro_batch_size"]), whole(row["microbatches"])
    full, rank = row["recompute"] == "full", whole(row["adapter_rank"])
    kernels = {"loss": "huggingface_freed"}
    arguments: dict[str, Any] = {
        "implementation": "huggingface", "num_gpus": 1, "seq_length": whole(row["seq_length"]),
        "micro_batch_size": sequences, "global_batch_size": sequences * microbatches, "recompute": row["recompute"],
    }
    if rank:
        kernels["adapters"] = "all_linear"
        arguments["lora_rank"] = rank
    else:
        kernels |= {"peak": "torch", "attention": row["attention"]}
    group = ADAPTERS if rank else EAGER if row["attention"] == "eager" else FULL if full else NONE
    name = f"{row['model']}, {row['seq_length']} tokens, {microbatches} x {sequences}, {group}"
    return Case(
        id=name, group=group, source=SOURCE,
        model=Model.named(row["model"]), gpu=Gpu.named("h100-80gb"), arguments=arguments | {"kernels": kernels},
        seconds=float(row["seconds"]),
        measured=(Measured(PEAK, whole(row["allocated_bytes"])), Measured(RESERVED, whole(row["reserved_bytes"]))),
    )
