"""Megatron-LM's functional tests on A100: peak and steady bytes of the last pipeline rank, with each test's flags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardmath.errors import InputError
from shardmath.formats.megatron.model import model_of
from shardmath.formats.megatron.reading import arguments_of
from shardmath.formats.options import Options
from shardmath.machines.gpu import Gpu
from shardmath.models.model import Model
from validation.measured.case import PEAK, STEADY, Case, Measured
from validation.measured.reading import rows, whole, yes
from validation.measured.sets.kernels import TE_UNFUSED

TABLE, FLAGS = "megatron_functional_tests_a100.csv", "megatron_functional_tests_flags.csv"
GPU = Gpu.named("a100-80gb")
DENSE, CONTAINER = "dense GPT", "dense GPT, older container"
EXPERTS, ENCODER = "experts", "encoder and decoder (T5)"
#: Traits that sentences ask for.
DEFERRED, COMPILED, OLD, RESUMED = "deferred embedding gradient", "compiled loss", "older container", "resumed"


def read(table: str = TABLE, flags: str = FLAGS) -> tuple[Case, ...]:
    """Return one case for every row. Raises ValueError where a row has no flags, or other flags than the table says."""
    by_id = {row["id"]: row for row in rows(flags)}
    return tuple(_case(row, by_id[row["id"]]) for row in rows(table))


def _case(row: Mapping[str, str], flags: Mapping[str, str]) -> Case:
    _refuse_contradictions(row, flags)
    options = _given(row, flags)
    model, refusal = _model(options)
    pipeline = whole(row["pp"])
    traits = _traits(row, flags)
    group = DENSE
    if row["id"].startswith("megatron-golden/mcore_t5"):
        group = ENCODER
    elif whole(row["num_experts"], 0):
        group = EXPERTS
    elif _left_to_the_container(flags) and OLD in traits:
        group = CONTAINER
    arguments = _arguments(options, model, row, flags)
    others = {"flash attention": arguments}
    if group == CONTAINER:
        arguments = {**arguments, "kernels": {**arguments["kernels"], **TE_UNFUSED}}
    return Case(
        id=row["id"].removeprefix("megatron-golden/"), group=group, source=row["source"], model=model, gpu=GPU,
        arguments=arguments,
        measured=(Measured(PEAK, whole(flags["peak_bytes"]), pipeline - 1),
                  Measured(STEADY, whole(flags["steady_bytes"]), pipeline - 1)),
        refusal=refusal, traits=traits, others=others if group == CONTAINER else {},
    )


def _given(row: Mapping[str, str], flags: Mapping[str, str]) -> Options:
    """Return the flags of a test, from the columns that the tables have of them."""
    cells = {**flags, **{f"row.{name}": cell for name, cell in row.items()}}
    words = {flag: (cells[column],) for column, flag in _NUMBERS.items() if cells[column]}
    words |= {flag: ("true",) for column, flag in _WITH.items() if yes(cells[column])}
    words |= {flag: ("true",) for column, flag in _WITHOUT.items() if not yes(cells[column])}
    words[row["precision"]] = ("true",)
    if row["kv_heads"] != row["heads"]:
        words["group-query-attention"] = ("true",)
    if flags["recompute"] == "full":
        words["recompute-granularity"] = ("full",)
    return Options(words, source=row["source"])


#: Columns of the flags, and of the table as ``row.``, with the flag of Megatron-LM that each is the word of.
_NUMBERS = {
    "row.layers": "num-layers", "row.hidden": "hidden-size", "row.ffn": "ffn-hidden-size",
    "row.heads": "num-attention-heads", "row.kv_heads": "num-query-groups", "row.head_dim": "kv-channels",
    "row.num_experts": "num-experts", "row.moe_topk": "moe-router-topk", "row.seq_len": "seq-length",
    "row.mbs": "micro-batch-size", "row.gbs": "global-batch-size", "row.tp": "tensor-model-parallel-size",
    "row.cp": "context-parallel-size", "row.pp": "pipeline-model-parallel-size",
    "row.ep": "expert-model-parallel-size", "row.etp": "expert-tensor-parallel-size",
    "row.vpp": "num-virtual-stages-per-pipeline-rank",
    "microbatch_group": "microbatch-group-size-per-virtual-pipeline-stage", "transformer_impl": "transformer-impl",
    "attention_backend": "attention-backend", "hidden_dropout": "hidden-dropout",
    "attention_dropout": "attention-dropout", "position_embedding": "position-embedding-type",
    "max_position_embeddings": "max-position-embeddings", "vocab_size": "vocab-size",
    "moe_load_balancing": "moe-router-load-balancing-type",
}
#: Columns that say whether a test has a flag, and whether it lacks the opposite one.
_WITH = {
    "swiglu": "swiglu", "untied": "untie-embeddings-and-output-weights", "sequence_parallel": "sequence-parallel",
    "distributed_optimizer": "use-distributed-optimizer", "cross_entropy_fusion": "cross-entropy-loss-fusion",
}
_WITHOUT = {
    "linear_bias": "disable-bias-linear", "gradient_accumulation_fusion": "no-gradient-accumulation-fusion",
    "attention_mask_in_dataloader": "no-create-attention-mask-in-dataloader",
}


def _model(options: Options) -> tuple[Model | None, str]:
    if "vocab-size" not in options:
        return None, "a model with encoder and decoder"
    try:
        return model_of(options, "gpt of the tests"), ""
    except InputError as error:
        return None, str(error)


def _arguments(
    options: Options, model: Model | None, row: Mapping[str, str], flags: Mapping[str, str],
) -> dict[str, Any]:
    """Return the arguments of a test; they are known of refused models too, as of a dense one of the same shape."""
    if model is None:
        dense = {flag: words for flag, words in options.words.items() if flag != "num-experts"}
        model = model_of(Options({"num-layers": ("1",), "vocab-size": ("1",), **dense}), "dense")
    environment = {"CUBLAS_WORKSPACE_CONFIG": flags["cublas_workspace_config"]}
    return arguments_of(options, model, environment=environment) | {"data_parallel": whole(row["dp"])}


def _left_to_the_container(flags: Mapping[str, str]) -> bool:
    """Tell if the container alone decides on a fused attention kernel in a deterministic run."""
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
