"""Layouts that are known to run: recipes of a vendor, and one published production run."""

from __future__ import annotations

from typing import Any

from shardmath.errors import InputError
from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model
from validation.measured.case import Case
from validation.measured.reading import rows, whole
from validation.measured.sets.kernels import FP8_WEIGHTS, MEGATRON_TE, TE_LOSS
from validation.measured.sets.nemotron import nemotron

TABLE = "known_to_run.csv"
GPUS = {"H100": "h100-80gb", "B200": "b200-180gb", "GB200": "gb200-186gb"}
PRE_TRAINING = ("pre_train", "pretrain")
#: Names of the table and of the catalogue; what is missing here is no model that shardmath covers.
MODELS = {
    "llama3 8b": "llama-3-8b", "llama3 70b": "llama-3-70b", "llama31 405b": "llama-3.1-405b",
    "llama3.1-405b": "llama-3.1-405b", "gpt3 175b": "gpt-3-175b", "mixtral 8x7b": "mixtral-8x7b-v0.1",
    "mixtral 8x22b": "mixtral-8x22b-v0.1", "deepseek v3": "deepseek-v3", "qwen3 30b_a3b": "qwen3-30b-a3b",
    "qwen3 235b_a22b": "qwen3-235b-a22b", "llama4 e16": "llama-4-scout-17b-16e",
    "llama4 e128": "llama-4-maverick-17b-128e",
}
#: How the parameters lie in memory, by the table's words, and the arguments that say so. Recipes of NeMo all use
#: Transformer Engine's cross entropy; with Megatron-FSDP they share out weights too (NeMo,
#: scripts/performance/helpers.py).
ZERO1, MEGATRON_FSDP, FSDP = "ZeRO-1 (distributed optimizer default)", "mcore FSDP", "FSDP (ZeRO-1/2 style with PP)"
SHARDING: dict[str, dict[str, Any]] = {
    ZERO1: {"implementation": "megatron", "distributed_optimizer": True, "kernels": {**MEGATRON_TE, **TE_LOSS}},
    MEGATRON_FSDP: {"implementation": "megatron", "zero_stage": 3, "kernels": {**MEGATRON_TE, **TE_LOSS}},
    FSDP: {"implementation": "torchtitan", "sharded_weights": 0},
}
#: FP8 in recipes of NeMo: delayed scaling, FP8 weights, gradients reduced in bf16 (helpers.py and
#: nemo/collections/llm/recipes/precision/mixed_precision.py).
FP8_HISTORY = 1024
#: Other readings of a row, by name.
AS_ZERO1, AS_BF16 = "Megatron-LM with ZeRO-1", "16 bits, with moments"
COVERED, OTHER_TASK, NO_MODEL = "pre-training of a covered model", "not pre-training", "model not covered"


def layers_of_stages(model: Model, stages: int) -> tuple[int, ...]:
    """Return layers of every stage where the layers do not divide evenly.

    Embedding, loss and every layer of multi-token prediction then count as a layer, as recipes of NeMo and
    Llama 3.1 405B have it. Raises ValueError if that does not divide evenly either.
    """
    share, rest = divmod(model.num_layers + 2 + model.num_mtp_layers, stages)
    if rest:
        raise ValueError(f"{model.name}: {model.num_layers} layers cannot be shared out over {stages} stages")
    return (share - 1, *[share] * (stages - 2), share - 1 - model.num_mtp_layers)


def read(table: str = TABLE) -> tuple[Case, ...]:
    """Return one case for every row; what is not pre-training of a covered model says so in its group."""
    return tuple(case_of(row) for row in rows(table))


def case_of(row: dict[str, str]) -> Case:
    """Return one case of a row. Raises ValueError for stages that the row does not state."""
    model, refusal, group = _model(row)
    arguments = _layout(row, model) | SHARDING[row["zero_or_fsdp"]]
    others: dict[str, dict[str, Any]] = {}
    if row["precision"] == "fp8" and arguments["implementation"] == "megatron":
        arguments["gradients"] = "bf16"
    if row["recompute"].startswith("full layers="):
        layers = int(row["recompute"].removeprefix("full layers="))
        arguments |= {"recompute": "full", "recompute_num_layers": layers}
        arguments["kernels"] = arguments.get("kernels", {}) | {"recompute_method": "block"}
    elif row["recompute_detail"]:
        arguments["recompute"] = row["recompute_detail"].replace("/", "+")
    if model and model.num_mtp_layers:  # counted with Megatron-Core's own loss, which keeps more
        arguments["kernels"] = MEGATRON_TE
    if row["offload"]:  # counted without the moments of a step
        arguments["cpu_offloading_num_layers"] = int(row["offload"].removeprefix("activation layers="))
        arguments["kernels"] = TE_LOSS
    if group == COVERED and row["zero_or_fsdp"] == FSDP:
        others[AS_ZERO1] = arguments | SHARDING[ZERO1]
        del others[AS_ZERO1]["sharded_weights"]
    in_fp8 = (row["precision"] == "fp8" and row["zero_or_fsdp"] != FSDP and model is not None
              and counted_in_fp8(model, str(arguments.get("recompute", "none"))))
    if in_fp8 and not refusal:
        others[AS_BF16] = arguments
        kernels = {**arguments["kernels"], **FP8_WEIGHTS}
        arguments = arguments | {"kernels": kernels, "fp8_amax_history_len": FP8_HISTORY}
    return Case(
        id=row["id"], group=group, source=row["source"], model=model, gpu=Gpu.named(GPUS[row["gpu"]]),
        arguments=arguments, refusal=refusal, traits=frozenset({row["precision"], row["model"]}), others=others,
    )


def counted_in_fp8(model: Model, recompute: str) -> bool:
    """Tell if the ledger has the FP8 tensors of such a model and its recompute; others are estimated in 16 bits."""
    return model.mlp == "swiglu" and "mlp" not in recompute.split("+")


def _layout(row: dict[str, str], model: Model | None) -> dict[str, Any]:
    tensor, pipeline, context = whole(row["tp"]), whole(row["pp"]), whole(row["cp"])
    node = Gpu.named(GPUS[row["gpu"]]).node_size  # nodes of GB200 have 4 GPUs, and 72 are as close
    arguments: dict[str, Any] = {
        "node_size": max(tensor, node),
        "seq_length": whole(row["seq_len"]), "micro_batch_size": whole(row["mbs"]),
        "global_batch_size": whole(row["gbs"]), "tensor_parallel": tensor, "context_parallel": context,
        "pipeline_parallel": pipeline, "data_parallel": whole(row["dp"]),
    }
    chunks = whole(row["vpp"], 1) if pipeline > 1 else 1
    if chunks > 1:
        arguments["virtual_pipeline"] = chunks
    if model and model.num_layers % (pipeline * chunks):
        arguments["pipeline_layout"] = layers_of_stages(model, pipeline * chunks)
    if whole(row["ep"], 1) > 1:
        arguments |= {"expert_parallel": whole(row["ep"]), "expert_tensor_parallel": whole(row["etp"], 1)}
    return arguments


def _model(row: dict[str, str]) -> tuple[Model | None, str, str]:
    own, name = nemotron(row["model"]), MODELS.get(row["model"])
    if name is None and own is None:
        return None, f"{row['model']} is no model that is covered", NO_MODEL
    if row["task"] not in PRE_TRAINING:
        return None, f"{row['task']}, not pre-training", OTHER_TASK
    if own is not None:
        return own, "", COVERED
    assert name is not None
    try:
        model = Model.named(name)
    except InputError as error:
        return None, str(error), NO_MODEL
    stated = {"layers": model.num_layers, "hidden": model.hidden_size, "ffn": model.ffn_hidden_size}
    wrong = [column for column, size in stated.items() if row[column] and whole(row[column]) != size]
    if wrong and not model.num_experts:
        raise ValueError(f"{row['id']}: {model.name} differs in {', '.join(wrong)}")
    return model, "", COVERED
