"""Llama 7B in Transformers with DeepSpeed on eight A800, from a public table of settings."""

from __future__ import annotations

from typing import Any

from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model
from validation.measured.case import PEAK, Case, Measured
from validation.measured.reading import gib, rows, whole

TABLE = "deepspeed_a800.csv"
SOURCE = "https://gist.github.com/chenyaofo/d4cd6a20ab4b95cb3a49491747e2139a"
MODEL, GPU, RANKS, TOKENS = Model.named("llama-7b"), Gpu.named("a800-80gb"), 8, 4096
#: Other readings of what the table does not say, as arguments that differ.
OTHERS: dict[str, dict[str, Any]] = {
    "logits that the caller frees": {"kernels": {"loss": "huggingface_freed"}},
    "buckets of 200 million elements": {"reduce_bucket_size": 2 * 10**8},
    "100 million live parameters": {"max_live_parameters": 10**8},
    "the moments of layers": {"kernels": {"peak": "torch"}},
    "eager attention": {"kernels": {"attention": "eager"}},
}
PLAIN, CHECKPOINTS, HOST = "no recompute", "full recompute", "states on the host"


def read(table: str = TABLE) -> tuple[Case, ...]:
    """Return one case for every row."""
    return tuple(_case(row) for row in rows(table))


def _case(row: dict[str, str]) -> Case:
    kernels = {"attention": "sdpa"}
    if row["offload"] != "none":
        kernels["zero_offload"] = row["offload"]
    arguments: dict[str, Any] = {
        "implementation": "huggingface", "data_parallel": RANKS, "zero_stage": whole(row["zero_stage"]),
        "seq_length": TOKENS, "micro_batch_size": whole(row["micro_batch_size"]),
        "global_batch_size": whole(row["global_batch_size"]), "recompute": row["recompute"], "kernels": kernels,
    }
    group = HOST if "zero_offload" in kernels else CHECKPOINTS if row["recompute"] == "full" else PLAIN
    others = {name: {**arguments, **changed, "kernels": {**kernels, **changed.get("kernels", {})}}
              for name, changed in OTHERS.items()}
    return Case(
        id=row["id"], group=group, source=SOURCE, model=MODEL, gpu=GPU, arguments=arguments,
        refusal=row["refusal"], others=others,
        measured=(Measured(PEAK, gib(row["peak_gib"])),),
    )
