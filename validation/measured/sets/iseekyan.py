"""A small Mixtral in Megatron-LM, measured on one node by the author of mbridge's memory estimator."""

from __future__ import annotations

from typing import Any

from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model
from validation.measured.case import PEAK, Case, Measured
from validation.measured.reading import gib, rows, whole
from validation.measured.sets.kernels import MEGATRON_TE

TABLE = "iseekyan_mixtral.csv"
GPU = Gpu.named("a100-80gb")
#: From the modules that the same page prints: 4,194,304 weights of the projection after attention, 8,388,608 of
#: QKV, 22,282,240 and 11,141,120 of an expert, 65,536,000 of the embedding, 32 heads in the log-sum-exp.
MODEL = Model(
    name="mixtral 8x2b, 4 layers", hidden_size=2048, ffn_hidden_size=5440, num_layers=4, num_attention_heads=32,
    num_kv_heads=16, head_dim=64, vocab_size=32000, tied_embeddings=False, qkv_bias=False, qk_norm=False,
    max_seq_length=4096, num_experts=8, moe_topk=2, moe_ffn_hidden_size=5440,
    source="mbridge, memory_estimator/README.md",
)


def read(table: str = TABLE) -> tuple[Case, ...]:
    """Return one case for every row. Raises ValueError for another number of layers."""
    return tuple(_case(row) for row in rows(table))


def _case(row: dict[str, str]) -> Case:
    if whole(row["layers"]) != MODEL.num_layers:
        raise ValueError(f"{row['id']}: not {MODEL.num_layers} layers")
    tensor, micro, gpus = whole(row["tp"]), whole(row["mbs"]), whole(row["gpus"])
    arguments: dict[str, Any] = {
        "implementation": "megatron", "kernels": MEGATRON_TE, "seq_length": whole(row["seq_len"]),
        "micro_batch_size": micro, "global_batch_size": micro * gpus // tensor, "tensor_parallel": tensor,
        "data_parallel": gpus // tensor, "expert_tensor_parallel": tensor,  # Megatron-LM's default
    }
    return Case(
        id=row["id"].removeprefix("iseekyan/"), group=f"TP {tensor}", source=row["source"], model=MODEL, gpu=GPU,
        arguments=arguments, measured=(Measured(PEAK, gib(row["peak_alloc_gib"])),),
    )
