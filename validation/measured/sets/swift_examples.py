"""Memory of processes that ms-swift's example scripts state, with the settings of each script when it was stated."""

from __future__ import annotations

from math import prod
from typing import Any

from shardmath.allocator.settings import Settings
from shardmath.errors import InputError
from shardmath.formats.described import read_settings
from shardmath.formats.table import table as format_named
from shardmath.machines.gpu import Gpu
from validation.measured.case import PROCESS, Case, Measured
from validation.measured.reading import arguments_of, gib, rows, whole

TABLE = "swift_examples.csv"
SOURCE = "https://github.com/modelscope/ms-swift"
#: First release whose images have PyTorch 2.8 (``docs/source/GetStarted/SWIFT-installation.md``), from which on NCCL
#: holds no tensors of all-to-alls back.
_WITH_TORCH_2_8 = (3, 9)
#: Where a script names none: its figures are of cards of 80 GiB.
GPU = "a100-80gb"
MEGATRON, TRANSFORMERS, SHORTER, CARD = (
    "packed, Megatron-Core", "packed, Transformers", "sequences shorter than max_length", "only the card is stated")
#: Traits of a figure that names its GPU, and of full sequences.
NAMED, PACKED = "GPU named", "packed"
#: Other readings of rows, as arguments that differ.
OTHERS: dict[str, dict[str, dict[str, Any]]] = {
    "qwen3-14b, TP 4, BF16": {
        "fp32 main weights of four bytes, as before Transformer Engine 2.1": {"main_param_bytes": 4},
        "fused loss of Megatron-Core": {"kernels": {"loss": "native_fused"}}, "no recompute": {"recompute": "none"},
    },
    "qwen2.5-7b, ZeRO-3, Liger, 8K, four passes": {
        "fused kernel of AdamW": {"kernels": {"optimizer_kernel": "fused"}},
        "logits of all tokens": {"kernels": {"loss": "huggingface"}},
        "weights gathered further ahead": {"prefetch_bucket_size": 5 * 10**7},
    },
    "qwen3-30b-a3b, EP 4, optimizer on the host": {
        "a rank with four times its share of tokens": {"expert_load_percent": 400},
        "tensors of all-to-alls that NCCL holds back": {"kernels": {"collectives": "own"}},
    },
    "qwen2.5-7b, rank 8, 2K": {"fused kernel of AdamW": {"kernels": {"optimizer_kernel": "fused"}},
                               "adapters in bf16": {"kernels": {"adapter_precision": "low"}}},
}
#: Causes of gaps. Transformers 4.48.3 has the copy in loss/loss_utils.py, 4.49.0 (February 17, 2025) has it not.
_COPIED = "until Transformers 4.48 the fp32 logits were copied to shift them: as much again as they are"
CAUSES = dict.fromkeys(("qwen2.5-7b, rank 8", "qwen2-7b, ZeRO-3, rank 8"), (_COPIED,))


def read(table: str = TABLE) -> tuple[Case, ...]:
    """Return one case for every row."""
    return tuple(_case(row) for row in rows(table))


def _case(row: dict[str, str]) -> Case:
    group = CARD if not row["gib"] else SHORTER if row["batch"] == "shorter" else (
        MEGATRON if row["format"] == "swift_megatron" else TRANSFORMERS)
    known: dict[str, Any] = {
        "id": row["id"], "group": group, "source": f"{SOURCE}/blob/{row['commit']}/{row['path']}",
        "gpu": Gpu.named(row["gpu"] or GPU), "seconds": float(row["seconds"]) if row["seconds"] else None,
        "measured": (Measured(PROCESS, gib(row["gib"])),) if row["gib"] else (),
        "traits": frozenset([NAMED] * bool(row["gpu"]) + [PACKED] * (row["batch"] == PACKED)),
        "allocator": Settings.parsed(row["alloc_conf"]),
    }
    try:
        run = read_settings(format_named(row["format"]), row["id"], words_of(row["settings"]), whole(row["num_gpus"]))
    except InputError as error:
        return Case(model=None, arguments={}, refusal=f"{error.field}: {error.rule}", **known)
    arguments = run.changed(arguments_of(row["release_arguments"]))
    if row["format"] == "swift_megatron" and tuple(map(int, row["release"].split(".")[:2])) < _WITH_TORCH_2_8:
        arguments["kernels"] = {**arguments["kernels"], "collectives": "own"}
    ranks = prod(arguments.get(name, 1) for name in ("tensor_parallel", "pipeline_parallel", "context_parallel"))
    arguments = {**arguments, "data_parallel": arguments.pop("num_gpus") // ranks}
    others = {words: {**arguments, **changed, "kernels": {**arguments["kernels"], **changed.get("kernels", {})}}
              for words, changed in OTHERS.get(row["id"], {}).items()}
    return Case(model=run.model, arguments=arguments, others=others, causes=CAUSES.get(row["id"], ()), **known)


def words_of(settings: str) -> dict[str, tuple[str, ...]]:
    """Return settings by key; commas stand between words of one value."""
    pairs = (setting.partition("=") for setting in settings.split())
    return {key: tuple(value.split(",")) for key, _, value in pairs}
