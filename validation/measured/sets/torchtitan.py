"""torchtitan's own benchmarks of Llama 3.1 8B: reserved memory, FSDP2 with and without context parallelism."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any

from shardmath.catalogue import read as read_catalogue
from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model
from validation.measured.case import RESERVED, Case, Measured
from validation.measured.reading import gib, rows, whole

TABLE = "torchtitan_llama3_8b.csv"
MODEL = Model.named("llama-3.1-8b")
BF16, FLOAT8, COMPILED = "bf16, eager", "float8", "compiled"
RECOMPUTE = {"full": "full"}
#: Runs of June 2025 compiled the loss too; from 18 December 2024 to 2 April 2025 that was turned off for errors.
LOSS_TOO = "202506"
#: Other readings of runs with full recompute, as kernels that differ.
OF_FULL_RECOMPUTE = {
    "layers that are not compiled": {"compile": "none"}, "units that are all freed": {"reshard": "always"},
    "the loss of tensor parallelism": {"loss": "dtensor"}, "a compiled loss": {"loss": "dtensor_compiled"},
}
#: Watts to which Meta's servers limit an H100 (torchtitan, benchmarks/llama3_h100_202412_torchtitan.md).
LIMIT = 500


@cache
def limited_h100() -> Gpu:
    """Return the H100 of Meta's servers: 96 GB of memory of 2.4 TB/s, limited to 500 W.

    torchtitan says that its peak lies between those of the H100 NVL and SXM. Here it lies on the line through both, by
    watts, and so does that of 8 bits.
    """
    low, high = (read_catalogue("gpus")[name] for name in ("h100-nvl-94gb", "h100-80gb"))
    share = Fraction(LIMIT - low["power_watts"], high["power_watts"] - low["power_watts"])
    peaks = {name: round(low[name] + share * (high[name] - low[name])) for name in ("bf16_gflops", "fp8_gflops")}
    return Gpu.of({**high, **peaks, "name": "h100-96gb", "memory_gib": 95, "hbm_mb_per_s": 2_400_000,
                   "power_watts": LIMIT})


def read(table: str = TABLE) -> tuple[Case, ...]:
    """Return one case for every row. Raises ValueError for another model."""
    return tuple(_case(row) for row in rows(table))


def _case(row: dict[str, str]) -> Case:
    sizes = (MODEL.num_layers, MODEL.hidden_size, MODEL.ffn_hidden_size, MODEL.vocab_size)
    if tuple(whole(row[name]) for name in ("layers", "hidden", "ffn", "vocab")) != sizes:
        raise ValueError(f"{row['id']}: not Llama 3.1 8B")
    float8, compiled = row["precision"].startswith("fp8"), "compile" in row["notes"]
    arguments: dict[str, Any] = {
        "implementation": "torchtitan", "seq_length": whole(row["seq_len"]), "micro_batch_size": whole(row["mbs"]),
        "global_batch_size": whole(row["gbs"]), "tensor_parallel": whole(row["tp"]),
        "context_parallel": whole(row["cp"]), "pipeline_parallel": whole(row["pp"]),
        "data_parallel": whole(row["dp"]), "recompute": RECOMPUTE.get(row["recompute"], "selective"),
    }
    if compiled:
        loss = {"loss": "dtensor_compiled"} if LOSS_TOO in row["source"] else {}
        arguments["kernels"] = {"compile": "layers", **loss}
    gpu = Gpu.named("h200") if row["gpu"] == "H200" else Gpu.custom(float(row["gpu_mem_gib"]))
    return Case(
        id=row["id"].removeprefix("torchtitan/"), group=FLOAT8 if float8 else COMPILED if compiled else BF16,
        source=row["source"], model=MODEL, gpu=gpu, arguments=arguments, seconds=_seconds(row),
        measured=(Measured(RESERVED, gib(row["peak_reserved_gib"])),),
    )


def _seconds(row: dict[str, str]) -> float | None:
    """Return seconds of a step, from tokens per second of each GPU."""
    if not row["tokens_per_s_gpu"]:
        return None
    return whole(row["gbs"]) * whole(row["seq_len"]) / (float(row["tokens_per_s_gpu"]) * whole(row["gpus"]))
