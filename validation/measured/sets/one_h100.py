"""Steps of Megatron-Core's local layers, and of Transformers under FSDP2, on one H100: `megatron_on_gpu.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model
from validation.measured.case import BY_FORMULA, PEAK, RESERVED, Case, Measured, varied
from validation.measured.reading import rows, whole

TABLE = "one_h100.csv"
SOURCE = ("measured on one H100 80GB HBM3 on 26 November 2026: driver 580.159.04, PyTorch 2.11 with CUDA 13.0,"
          " megatron-core 0.16.1, Transformers 5.17")
FLASH, UNFUSED, EXPERTS = ("Megatron-Core, " + kernel for kernel in ("flash attention", "unfused attention", "experts"))
FSDP2 = "Transformers, FSDP2"
#: Without Transformer Engine and Apex: weight gradients are products of their own, rotary embeddings those of
#: PyTorch, and the optimizer works on lists of tensors. PyTorch's RMSNorm keeps what a fused one keeps.
_LOCAL = {"peak": "megatron_local", "optimizer_kernel": "foreach", "rope": "unfused", "value": "view",
          "weight_gradient": "separate", "norm": "fused"}
_SHARDED = {"peak": "torch", "data_parallel": "fsdp", "units": "root", "precision": "mixed",
            "loss": "huggingface_freed"}
#: A small model with experts.
_EXPERTS = "mixtral, 4 layers of width 2048"
#: Models that are no model of the catalogue, with sizes as the program was given them.
_VARIED: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "llama-3.2-1b, 4 layers, vocabulary 32000": ("llama-3.2-1b", {"num_layers": 4, "vocab_size": 32000}),
    _EXPERTS: ("mixtral-8x7b", {
        "num_layers": 4, "hidden_size": 2048, "ffn_hidden_size": 4096,
        "moe_ffn_hidden_size": 4096,
        "num_attention_heads": 16, "num_kv_heads": 8}),
}


def read(table: str = TABLE) -> tuple[Case, ...]:
    """Return one case for every row."""
    return tuple(_case(row) for row in rows(table))


def model_of(name: str) -> Model:
    """Return the model of a row."""
    base, changes = _VARIED.get(name, (name, {}))
    return varied(base, **changes)


def _case(row: dict[str, str]) -> Case:
    sequences, microbatches = whole(row["micro_batch_size"]), whole(row["microbatches"])
    sharded, model = row["program"] == "fsdp2", model_of(row["model"])
    arguments: dict[str, Any] = {
        "implementation": "huggingface" if sharded else "megatron", "num_gpus": 1,
        "seq_length": whole(row["seq_length"]), "micro_batch_size": sequences,
        "global_batch_size": sequences * microbatches,
        "recompute": {"selective": "core_attention"}.get(row["recompute"], row["recompute"]),
        "kernels": _SHARDED if sharded else _LOCAL | ({"attention": "unfused"} if row["attention"] == "local" else {}),
    }
    if sharded:
        arguments["gradients"] = "fp32"  # reduce_dtype of the program
    else:
        arguments["distributed_optimizer"] = whole(row["distributed_optimizer"])
    group = FSDP2 if sharded else EXPERTS if row["model"] == _EXPERTS else (
        UNFUSED if row["attention"] == "local" else FLASH)
    name = (f"{row['program']}, {row['model']}, {row['seq_length']} tokens, {microbatches} x {sequences},"
            f" recompute {row['recompute']}, {row['attention']}")
    return Case(
        id=name, group=group, source=SOURCE, model=model, gpu=Gpu.named("h100-80gb"), arguments=arguments,
        seconds=float(row["seconds"]),
        measured=(Measured(PEAK, whole(row["allocated_bytes"])), Measured(RESERVED, whole(row["reserved_bytes"]))),
        traits=frozenset({BY_FORMULA}),
    )
