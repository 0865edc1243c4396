"""Megatron-LM's functional tests on A100: peak and steady bytes of the last pipeline rank, with each test's flags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardmath.gpus import Gpu
from shardmath.models import Model
from validation.measured.case import PEAK, STEADY, Case, Measured, model_or_reason
from validation.measured.kernels import (
    COMPILED_LOSS,
    CONFIGURED,
    FLASH,
    FUSED_SOFTMAX,
    MASK_OF_BATCH,
    MEGATRON_LOCAL,
    MEGATRON_TE,
    SEPARATE_GRADIENTS,
    TE_UNFUSED,
)
from validation.measured.reading import rows, whole, yes

TABLE, FLAGS = "megatron_functional_tests_a100.csv", "megatron_functional_tests_flags.csv"
GPU = Gpu.named("a100-80gb")
DENSE, CONTAINER = "dense GPT", "dense GPT, older container"
EXPERTS, ENCODER = "experts", "encoder and decoder (T5)"
#: Why the rows with experts have no estimate; besides, Sinkhorn's iteration decides which experts get more tokens.
NO_EXPERTS = "experts with GELU, routed by Sinkhorn's iteration, are not in the ledger"
#: Traits that sentences ask for.
DEFERRED, COMPILED, OLD, RESUMED = "deferred embedding gradient", "compiled loss", "older container", "resumed"


def read(table: str = TABLE, flags: str = FLAGS) -> tuple[Case, ...]:
    """One case for every row. Raises ValueError where a row has no flags, or other flags than the table says."""
    by_id = {row["id"]: row for row in rows(flags)}
    return tuple(_case(row, by_id[row["id"]]) for row in rows(table))


def ffn_hidden_size(cell: str, hidden_size: int, swiglu: bool) -> int:
    """The inner width of the MLP: where the table leaves it out, Megatron's default for the activation."""
    default = int((4 * hidden_size * 2 / 3) / 64) * 64 if swiglu else 4 * hidden_size
    return whole(cell, default)


def _case(row: Mapping[str, str], flags: Mapping[str, str]) -> Case:
    _refuse_contradictions(row, flags)
    model, refusal = _model(row, flags)
    pipeline = whole(row["pp"])
    traits = _traits(row, flags)
    group = DENSE
    if row["id"].startswith("megatron-golden/mcore_t5"):
        group = ENCODER
    elif whole(row["num_experts"], 0):
        group = EXPERTS
    elif _left_to_the_container(flags) and OLD in traits:
        group = CONTAINER
    if group == EXPERTS:
        refusal = refusal and NO_EXPERTS
    arguments = _arguments(row, flags, TE_UNFUSED if group == CONTAINER else {})
    others = {"flash attention": {**arguments, "kernels": {**arguments["kernels"], **FLASH}}}
    return Case(
        id=row["id"].removeprefix("megatron-golden/"), group=group, source=row["source"], model=model, gpu=GPU,
        arguments=arguments,
        measured=(Measured(PEAK, whole(flags["peak_bytes"]), pipeline - 1),
                  Measured(STEADY, whole(flags["steady_bytes"]), pipeline - 1)),
        refusal=refusal, traits=traits, others=others if group == CONTAINER else {},
    )


def _model(row: Mapping[str, str], flags: Mapping[str, str]) -> tuple[Model | None, str]:
    if not flags["vocab_size"]:
        return None, "a model with encoder and decoder"
    hidden, heads, experts = whole(row["hidden"]), whole(row["heads"]), whole(row["num_experts"], 0)
    biases = yes(flags["linear_bias"])
    fields: dict[str, Any] = {
        "name": "gpt of the tests", "hidden_size": hidden, "num_layers": whole(row["layers"]),
        "ffn_hidden_size": ffn_hidden_size(row["ffn"], hidden, yes(flags["swiglu"])),
        "num_attention_heads": heads, "num_kv_heads": whole(row["kv_heads"], heads),
        "head_dim": whole(row["head_dim"], hidden // heads), "vocab_size": whole(flags["vocab_size"]),
        "tied_embeddings": yes(row["tied"]), "qkv_bias": biases, "linear_bias": biases, "qk_norm": False,
        "max_seq_length": whole(flags["max_position_embeddings"]), "source": row["source"],
        "learned_positions": whole(flags["max_position_embeddings"]),
        "normalisation": "layer", "mlp": "swiglu" if yes(flags["swiglu"]) else "gelu",
    }
    if experts:
        fields |= {"num_experts": experts, "moe_topk": whole(row["moe_topk"]),
                   "moe_ffn_hidden_size": fields["ffn_hidden_size"]}
    return model_or_reason(**fields)


def _arguments(row: Mapping[str, str], flags: Mapping[str, str], kernels: Mapping[str, str]) -> dict[str, Any]:
    chosen = {**_kernels(flags), **kernels}
    arguments: dict[str, Any] = {
        "implementation": "megatron", "kernels": chosen, "seq_length": whole(row["seq_len"]),
        "micro_batch_size": whole(row["mbs"]), "global_batch_size": whole(row["gbs"]),
        "tensor_parallel": whole(row["tp"]), "context_parallel": whole(row["cp"]),
        "pipeline_parallel": whole(row["pp"]), "data_parallel": whole(row["dp"]),
        "sequence_parallel": yes(row["sp"]), "distributed_optimizer": row["zero"] != "0",
        "recompute": row["recompute"],
    }
    if flags["cublas_workspace_config"] == ":4096:8":
        arguments |= CONFIGURED
    if row["precision"] == "fp16":  # as many bytes as bf16 with gradients of 2 bytes
        arguments["gradients"] = "bf16"
    if float(flags["hidden_dropout"]):
        arguments["hidden_dropout"] = 1
    if float(flags["attention_dropout"]):
        arguments["attention_dropout"] = 1
    chunks = whole(row["vpp"], 1)
    if chunks > 1:
        arguments["virtual_pipeline"] = chunks
    if flags["microbatch_group"]:
        arguments["microbatch_group"] = whole(flags["microbatch_group"])
    if whole(row["ep"]) > 1:
        arguments["expert_parallel"] = whole(row["ep"])
    return arguments


def _kernels(flags: Mapping[str, str]) -> dict[str, str]:
    local = flags["transformer_impl"] == "local"
    attention = TE_UNFUSED if flags["attention_backend"] == "unfused" else FLASH
    chosen = {**MEGATRON_LOCAL, **FUSED_SOFTMAX} if local else {**MEGATRON_TE, **attention}
    if not yes(flags["gradient_accumulation_fusion"]):
        chosen |= SEPARATE_GRADIENTS
    if yes(flags["attention_mask_in_dataloader"]):
        chosen |= MASK_OF_BATCH
    if yes(flags["cross_entropy_fusion"]):
        chosen |= COMPILED_LOSS
    return chosen


def _left_to_the_container(flags: Mapping[str, str]) -> bool:
    """Whether nothing but the container decides if a deterministic run has a fused kernel of attention."""
    free = flags["attention_backend"] == "auto" and flags["transformer_impl"] == "transformer_engine"
    return free and not yes(flags["nondeterministic_kernels"])


def _traits(row: Mapping[str, str], flags: Mapping[str, str]) -> frozenset[str]:
    named = {
        DEFERRED: yes(flags["defer_embedding_wgrad"]), COMPILED: yes(flags["cross_entropy_fusion"]),
        OLD: "dracooci" in row["id"], RESUMED: row["id"].endswith("_2nd"),
    }
    return frozenset(name for name, holds in named.items() if holds)


def _refuse_contradictions(row: Mapping[str, str], flags: Mapping[str, str]) -> None:
    same = {
        "sp": yes(row["sp"]) == yes(flags["sequence_parallel"]),
        "zero": (row["zero"] != "0") == yes(flags["distributed_optimizer"]),
        "recompute": row["recompute"] == flags["recompute"],
        "ce_fusion": yes(row["ce_fusion"]) == yes(flags["cross_entropy_fusion"]),
        "tied": yes(row["tied"]) != yes(flags["untied"]),
    }
    wrong = [name for name, agrees in same.items() if not agrees]
    if wrong:
        raise ValueError(f"{row['id']}: table and flags differ in {', '.join(wrong)}")
