"""The Ultra-Scale Playbook's runs of nanotron on H100: reserved memory of the first pipeline rank, or a crash.

The benchmark writes the largest allocated and reserved memory of the process after the third step. Its trainer resets
both between the passes and the optimizer (``training_step``, ``log_memory``), which leaves no activations in the
allocated one; the reserved one keeps what the passes took from the GPU. The table's numbers contain activations, so
they are reserved memory.
"""

from __future__ import annotations

from typing import Any

from shardmath.formats.nanotron import stage_layers
from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model
from validation.measured.case import FIT, OUT_OF_MEMORY, RESERVED, Case, Measured
from validation.measured.reading import gib, rows, whole

TABLE = "ultrascale_runs.csv"
REPLAYED = "nanotron_reserved.csv"
SOURCE = "https://huggingface.co/spaces/nanotron/ultrascale-playbook"
GPU = Gpu.named("h100-80gb")
SEQ_LENGTH = 4096
STATUSES = {"ok": FIT, "crash_or_oom": OUT_OF_MEMORY}
#: Groups that a target is about.
WITH_TARGET = ("TP 1", "TP 2")
#: The other of the two modes of tensor parallelism; the table does not say which one a run had.
ALL_REDUCE = "all-reduce"


def model(name: str) -> Model:
    """Return the model of the benchmark's script that is called ``name``: 1B or 3B, both with tied embeddings."""
    layers, hidden = {"1B": (16, 2048), "3B": (28, 3072)}[name]
    return Model(
        name=f"nanotron {name}", hidden_size=hidden, ffn_hidden_size=8192, num_layers=layers,
        num_attention_heads=32, num_kv_heads=32, head_dim=hidden // 32, vocab_size=131072, tied_embeddings=True,
        qkv_bias=False, qk_norm=False, max_seq_length=SEQ_LENGTH,
        source="nanotron, scripts/scaling_benchmarks.py",
    )


def read(table: str = TABLE) -> tuple[Case, ...]:
    """Return one case for every row. Raises ValueError for an unknown status."""
    return tuple(_case(number, row) for number, row in enumerate(rows(table), start=2))


def _case(line: int, row: dict[str, str]) -> Case:
    if row["status"] not in STATUSES:
        raise ValueError(f"line {line}: unexpected status {row['status']!r}")
    tensor, pipeline, data = (whole(row[name]) for name in ("tp", "pp", "dp"))
    # 17 rows state a batch of 256 sequences that their own micro-batches do not give; what ran is their product.
    batch = whole(row["mbs"]) * whole(row["grad_acc"]) * data
    dimensions = model(row["model"])
    arguments: dict[str, Any] = {
        "implementation": "nanotron", "seq_length": SEQ_LENGTH, "micro_batch_size": whole(row["mbs"]),
        "global_batch_size": batch, "tensor_parallel": tensor, "pipeline_parallel": pipeline,
        "data_parallel": data, "distributed_optimizer": row["zero"] == "1", "gradients": "fp32",
        "vocab_multiple": 1, "node_size": max(tensor, GPU.node_size),
    }
    if pipeline > 1:
        arguments["pipeline_layout"] = stage_layers(dimensions, pipeline)
    measured = (Measured(RESERVED, gib(row["gpu_mem_GB"]), 0),) if row["status"] == "ok" else ()
    return Case(
        id=f"line {line}", group=f"TP {tensor}", source=SOURCE, model=dimensions, gpu=GPU, arguments=arguments,
        measured=measured, status=STATUSES[row["status"]],
        seconds=batch * SEQ_LENGTH / (float(row["tok_s_gpu"]) * tensor * pipeline * data) if measured else None,
        traits=frozenset({"ZeRO-1" if row["zero"] == "1" else "no ZeRO", "one stage" if pipeline == 1 else "stages"}),
        others={ALL_REDUCE: {**arguments, "sequence_parallel": False}} if tensor > 1 else {},
    )
