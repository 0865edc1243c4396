"""Peaks of one and more layers of Llama 2 7B that Galvatron's memory profiler wrote down on eight GPUs."""

from __future__ import annotations

from typing import Any

from shardmath.machines.gpu import Gpu
from validation.measured.case import PEAK, Case, Measured, varied
from validation.measured.reading import rows, whole

TABLE = "galvatron.csv"
COMMIT = "cea12ffb146a220643c8f99f9cb84294755d29f8"
FILE = "galvatron/models/gpt/configs/memory_profiling_bf16_llama2-7b_all.json"
SOURCE = f"https://github.com/PKU-DAIR/Hetu-Galvatron/blob/{COMMIT}/{FILE}"
#: The file names no GPU, and no figure is near its memory.
GPU = Gpu.named("a100-80gb")
SEQUENCES, TOKENS, MIB = 8, 2048, 2**20
WHOLE, SPLIT = "FSDP alone", "FSDP and tensor parallelism"
#: Other kernels of the row: Transformers under FSDP2, which has no tensor parallelism here.
TRANSFORMERS = "Transformers under FSDP2"
#: Differences of its source: reduce_in_fp32 and entropy_in_fp32 of profile_runtime.yaml are false.
GRADIENTS = "gradients of a layer are reduced in bf16, here in fp32, for which they are copied"
LOGITS = "its loss keeps bf16 logits and makes their gradient beside them, here in fp32"
#: The same file states what a layer keeps, from which the numbers of tensors follow; which these are is not known.
LAYERS = ("a layer keeps as much as 16 tensors of the width of the model and 6 of that of the MLP, here as much as 8"
          " and 4 of them")


def read(table: str = TABLE) -> tuple[Case, ...]:
    """Return one case for every run and rank."""
    return tuple(_case(row) for row in rows(table))


def _case(row: dict[str, str]) -> Case:
    tensor, data, stages = (whole(row[f"{name}_parallel"]) for name in ("tensor", "data", "pipeline"))
    arguments: dict[str, Any] = {
        "implementation": "torchtitan", "seq_length": TOKENS, "micro_batch_size": SEQUENCES // data,
        "global_batch_size": SEQUENCES, "data_parallel": data, "tensor_parallel": tensor, "pipeline_parallel": stages,
        "recompute": row["recompute"],
    }
    plain = {**arguments, "implementation": "huggingface",
             "kernels": {"data_parallel": "fsdp", "units": "ends", "precision": "mixed"}}
    place = f", stage {whole(row['rank']) + 1} of {stages}" if stages > 1 else ""
    recompute = ", recompute" if row["recompute"] == "full" else ""
    vocabulary = ", vocabulary whole" if tensor > 1 and row["vocab_parallel"] == "1" else ""
    layers = "1 layer" if row["layers"] == "1" else f"{row['layers']} layers"
    return Case(
        id=f"{layers}, TP {tensor}, DP {data}{place}{vocabulary}{recompute}",
        group=WHOLE if tensor == 1 else SPLIT, source=SOURCE, gpu=GPU, arguments=arguments,
        model=varied("llama-2-7b", num_layers=whole(row["layers"])), refusal=_refusal(stages, vocabulary),
        measured=(Measured(PEAK, round((float(row["after_backward_mib"]) + float(row["peak_above_mib"])) * MIB),
                           whole(row["rank"])),),
        others={TRANSFORMERS: plain} if tensor == 1 else {},
        causes=((LAYERS,) if not recompute else ()) + ((GRADIENTS,) if tensor == 1 else (LOGITS,)),
    )


def _refusal(stages: int, vocabulary: str) -> str:
    if stages > 1:
        return "one micro-batch in a pipeline, which leaves all stages but one idle, is no run here"
    if vocabulary:
        return "embedding and head that are whole beside layers split over tensor-parallel ranks are not counted"
    return ""
