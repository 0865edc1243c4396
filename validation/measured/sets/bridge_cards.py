"""Megatron-Bridge's model verification cards and skills: allocated memory of runs whose recipes are in the same place.

Numbers are those of the log, which divides by 10**9 and keeps five digits (``report_memory`` of
``training/utils/train_utils.py``). Cards call them GiB, also those above 100, which have five digits too.
"""

from __future__ import annotations

from typing import Any

from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model
from validation.measured.case import PEAK, RESERVED, STEADY, Case, Measured
from validation.measured.reading import rows, whole, yes

TABLE = "bridge_cards.csv"
COMMIT = "067f987df03b8355b03192d88d70f1709fedf51a"
REPOSITORY = f"https://github.com/NVIDIA-NeMo/Megatron-Bridge/blob/{COMMIT}/"
GIGABYTE = 10**9
#: Groups: tokens shared out evenly by force, or as the router chooses.
BALANCED, NATURAL, HOST, ADAPTERS = (
    "experts, balanced", "experts, natural routing", "optimizer on the host", "adapters")
#: The optimizer as Megatron-Bridge's settings make it, and another reading of the same runs.
CORE, AS_MEGATRON = "precision_aware_core", "as Megatron-LM"
#: Error up to which a row needs no word.
NEAR = 0.03
#: Rows beyond it by beginning of their name, with the cause, or with what was tried.
BEYOND: dict[str, str] = {
    "moonlight, no recompute": "experts' tokens, not shared out evenly; not known how",
    "moonlight, core_attn": "the same",
    "qwen3-30b, adapters": "saved tensors alone are counted with adapters; length, GPUs and experts' tokens unknown",
    "gpt-oss-120b, adapters": "the same",
}


def read(table: str = TABLE) -> tuple[Case, ...]:
    """Return one case for every row."""
    return tuple(_case(row) for row in rows(table))


def _case(row: dict[str, str]) -> Case:
    measured = tuple(Measured(quantity, round(float(row[column]) * GIGABYTE)) for column, quantity in
                     (("allocated", PEAK), ("steady", STEADY), ("reserved", RESERVED)) if row[column])
    source = row["file"] if row["file"].startswith("http") else REPOSITORY + row["file"]
    return Case(
        id=row["id"], group=row["group"], source=source, model=Model.named(row["model"]) if row["model"] else None,
        gpu=Gpu.named(row["gpu"]), arguments=_arguments(row) if row["model"] and row["tp"] else {},
        measured=measured, refusal=row["refusal"], others=_others(row),
    )


def _others(row: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Return the reading of a run as Megatron-LM starts it, whose optimizer then has another kind of weights."""
    if row["refusal"] or f"optimizer={CORE}" not in row["kernels"]:
        return {}
    arguments = _arguments(row)
    kernels = {**arguments["kernels"], "optimizer": "precision_aware"}
    return {AS_MEGATRON: {**arguments, "kernels": kernels, "main_param_bytes": 2}}


def _arguments(row: dict[str, str]) -> dict[str, Any]:
    tensor, pipeline = whole(row["tp"]), whole(row["pp"])
    overlap = whole(row["overlap"])
    arguments: dict[str, Any] = {
        "implementation": "megatron", "tensor_parallel": tensor, "pipeline_parallel": pipeline,
        "data_parallel": whole(row["gpus"]) // (tensor * pipeline), "expert_parallel": whole(row["ep"]),
        "expert_tensor_parallel": 1, "sequence_parallel": yes(row["sequence_parallel"]),
        "seq_length": whole(row["seq_length"]), "micro_batch_size": whole(row["micro_batch_size"]),
        "global_batch_size": whole(row["global_batch_size"]), "recompute": row["recompute"],
        "gradients": row["gradients"], "distributed_optimizer": True, "overlap_grad_reduce": overlap,
        "overlap_param_gather": overlap, "vocab_multiple": 1,
        "kernels": dict(word.split("=") for word in row["kernels"].split()),
    }
    if row["moment_bytes"]:
        arguments |= dict.fromkeys(("exp_avg_bytes", "exp_avg_sq_bytes"), whole(row["moment_bytes"]))
    if row["offload_percent"]:
        arguments["optimizer_offload_percent"] = whole(row["offload_percent"])
    if row["lora_rank"]:
        arguments["lora_rank"] = whole(row["lora_rank"])
    return arguments
