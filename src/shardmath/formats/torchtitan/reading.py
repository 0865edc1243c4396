"""Job configurations of torchtitan (TOML, releases up to 0.2.2) as runs, with torchtitan's own defaults.

Keys as in ``torchtitan/config/job_config.py``. A model is named by ``model.name`` and ``model.flavor``. Configurations
in Python of later releases have the same keys, but for a batch that is given in tokens
(``torchtitan/config/configs.py`` of the main branch, b5bcd76c6).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardmath.errors import InputError
from shardmath.formats.options import Options
from shardmath.models.model import Model

#: Flavors by model of torchtitan, and the models of the catalogue that they are; further predictions are none of its.
FLAVORS: Mapping[str, Mapping[str, str]] = {
    "llama3": {"8B": "llama-3.1-8b", "70B": "llama-3.1-70b", "405B": "llama-3.1-405b"},
    "llama4": {"17bx16e": "llama-4-scout-17b-16e", "17bx128e": "llama-4-maverick-17b-128e"},
    "qwen3": {size: f"qwen3-{size.lower()}" for size in (
        "0.6B", "1.7B", "4B", "8B", "14B", "32B", "30B-A3B", "235B-A22B")},
    "deepseek_v3": {"16B": "deepseek-v2-lite", "236B": "deepseek-v2", "671B": "deepseek-v3"},
}
#: Flavors that releases after 0.2.2 have too.
_LATER: Mapping[str, Mapping[str, str]] = {"llama3": {"1B": "llama-3.2-1b", "3B": "llama-3.2-3b"}}
#: Batches of later releases, in tokens: of a micro-batch, of a step, and the longest sequence of these.
_TOKENS, _STEP, _LONGEST = (f"training.{key}" for key in (
    "num_tokens_per_microbatch_per_dp_rank", "num_tokens_per_train_step", "max_context_length"))
_DEBUG = {
    "hidden_size": 256, "ffn_hidden_size": 768, "num_layers": 6, "num_attention_heads": 16, "num_kv_heads": 16,
    "head_dim": 16, "vocab_size": 2048, "tied_embeddings": False, "qkv_bias": False, "qk_norm": False,
    "max_seq_length": 131072,
}
SCHEDULES = {
    "1F1B": "1f1b", "GPipe": "gpipe", "Interleaved1F1B": "interleaved", "InterleavedZeroBubble": "zero_bubble",
    "ZBVZeroBubble": "zbv", "DualPipeV": "dualpipev",
}
RESHARD = ("default", "always", "never")
#: Default ``compile.components`` of ``compile.enable``.
COMPILED = ("model", "loss")
OPTIMIZER_KERNELS = {"fused": "fused", "foreach": "foreach", "for-loop": "loop"}
#: Precision by ``training.dtype``: weights gathered in bf16 from fp32 shards, or all in bf16, moments too.
PRECISIONS = {"float32": "mixed", "bfloat16": "bf16"}
#: Keys that have one value here, and why.
_ONLY = {
    "parallelism.expert_parallel_comm_backend": ("standard", "experts that DeepEP sends tokens to are not counted yet"),
    "parallelism.disable_loss_parallel": ("false", "the loss on whole vocabularies is not counted yet"),
    "parallelism.module_fqns_per_model_part": ("", "stages of your own are not counted yet with torchtitan"),
    "parallelism.pipeline_parallel_split_points": ("", "stages of your own are not counted yet with torchtitan"),
    "parallelism.pipeline_parallel_schedule_csv": ("", "a schedule of your own is not counted yet"),
    "training.enable_cpu_offload": ("false", "offloading is not counted yet with torchtitan"),
    "training.mixed_precision_param": ("bfloat16", "computing in fp32 is not counted yet"),
    "model.converters": ("", "FP8, FP4 and adapters are not counted yet with torchtitan"),
    "model.num_mtp_layers": ("0", "multi-token prediction is not counted yet with torchtitan"),
}
_WHOLE = "parallelism.enable_sequence_parallel"


def described(options: Options, name: str, num_gpus: int | None) -> tuple[Model, dict[str, Any], int]:
    """Return the model, the arguments of ``explain`` and the sequences of a replica and step. Raises InputError."""
    for key, (only, why) in _ONLY.items():
        if "".join(options.all(key, (only,))) != only:
            raise options.error(key, f"must be {only or 'absent'}: {why}", only or None)
    model = _model(options)
    arguments = {"implementation": "torchtitan", **_parallel(options), **_recompute(options)}
    arguments |= _experts(options, model, arguments["tensor_parallel"])
    arguments |= _stages(options, model, arguments)
    in_tokens = any(key in options for key in (_TOKENS, _STEP, _LONGEST))
    batch, replica = (_batch_in_tokens if in_tokens else _batch)(options, arguments)
    arguments |= batch
    arguments["kernels"] = {**_kernels(options), **_compiled(options, model, arguments["pipeline_parallel"])}
    return model, arguments, replica


def _model(options: Options) -> Model:
    family = options.word("model.name", "llama3", tuple(FLAVORS), ": other models of torchtitan are not counted yet")
    debug = ("debugmodel",) if family == "llama3" else ()
    flavors = {**FLAVORS[family], **_LATER.get(family, {})}
    flavor = options.word("model.flavor", "debugmodel", (*debug, *flavors), f" of {family}")
    if flavor in flavors:
        return titan_model(flavors[flavor])
    like = Model.named(FLAVORS["llama3"]["8B"])  # all flavors share norm epsilon and rotary embedding
    return Model(name="llama3-debugmodel", source="torchtitan, llama3 debugmodel", norm_epsilon=like.norm_epsilon,
                 rope_base=like.rope_base, rope_scaling=like.rope_scaling, **_DEBUG)  # type: ignore[arg-type]


def titan_model(name: str) -> Model:
    """Return the model of the catalogue as torchtitan builds it."""
    known = Model.named(name)
    return Model(**{**known.model_dump(), "num_mtp_layers": 0}) if known.num_mtp_layers else known


def _experts(options: Options, model: Model, tensor_parallel: int) -> dict[str, int]:
    """Return degrees of experts: those of a model without expert parallelism follow tensor parallelism."""
    ranks = options.size("parallelism.expert_parallel_degree", 1)
    width = options.size("parallelism.expert_tensor_parallel_degree", 1)
    if not model.num_experts:
        return {}
    return {"expert_parallel": ranks, "expert_tensor_parallel": width if ranks > 1 else tensor_parallel}


def _parallel(options: Options) -> dict[str, Any]:
    sizes = {
        "tensor_parallel": options.size("parallelism.tensor_parallel_degree", 1),
        "context_parallel": options.size("parallelism.context_parallel_degree", 1),
        "pipeline_parallel": options.size("parallelism.pipeline_parallel_degree", 1),
    }
    if sizes["tensor_parallel"] > 1 and _WHOLE in options and not options.is_on(_WHOLE):
        rule = "must be true: tensor parallelism without sequence parallelism is not counted yet with torchtitan"
        raise options.error(_WHOLE, rule, "true")
    replicas, shards = (options.size(f"parallelism.data_parallel_{name}_degree", default)
                        for name, default in (("replicate", 1), ("shard", -1)))
    if shards == 1 and replicas > 1 and sizes["context_parallel"] == 1:
        raise options.error("parallelism.data_parallel_shard_degree",
                          "must not be 1 with replicas: DistributedDataParallel is not counted yet with torchtitan")
    sizes |= {"data_parallel_replicas": replicas} if replicas != 1 else {}
    return {**sizes, **({"data_parallel": replicas * shards} if shards != -1 else {})}


def _stages(options: Options, model: Model, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Schedule and chunks of layers; embedding and head count as layers when torchtitan shares them out."""
    first, last = (
        options.size(f"parallelism.pipeline_parallel_{end}_stage_less_layers", 1) for end in ("first", "last")
    )
    per_stage = options.number("parallelism.pipeline_parallel_layers_per_stage")
    named = options.word("parallelism.pipeline_parallel_schedule", "1F1B")
    pipeline = arguments["pipeline_parallel"]
    if pipeline == 1:
        return {}
    lower = {name.lower(): schedule for name, schedule in SCHEDULES.items()}
    if named.lower() not in lower:
        raise options.error("parallelism.pipeline_parallel_schedule",
                          f"must be one of {', '.join(SCHEDULES)}: others are not counted yet")
    schedule, whole = lower[named.lower()], model.num_layers + first + last
    single = schedule in ("1f1b", "gpipe")
    if per_stage is None:
        chunks = 1 if single else 2
    else:
        stages = -(-whole // per_stage) if per_stage > 0 else 0
        if not stages or pipeline < 1 or stages % pipeline or (stages == pipeline) != single:
            raise options.error("parallelism.pipeline_parallel_layers_per_stage",
                              f"must give every rank as many stages as {named} has; there are {stages}")
        chunks = stages // pipeline
    if not 1 <= pipeline * chunks <= whole:
        raise options.error("parallelism.pipeline_parallel_degree", f"must leave a layer to each stage of {whole}")
    own = _layers(model, pipeline * chunks, first, last, schedule)
    return {"schedule": schedule, "virtual_pipeline": chunks, **own}


def shared_out(layers: int, stages: int, first: int, last: int) -> tuple[int, ...]:
    """Return layers of every stage as ``generate_llm_fqn_per_model_part`` shares them out.

    Embedding and head count as ``first`` and ``last`` layers; what cannot be shared evenly goes to the first stages.
    """
    share, more = divmod(layers + first + last, stages)
    return tuple(share + (stage < more) - first * (stage == 0) - last * (stage == stages - 1)
                 for stage in range(stages))


def _layers(model: Model, stages: int, first: int, last: int, schedule: str) -> dict[str, Any]:
    """Return layers of the stages, as arguments. Raises InputError for stages that are not counted yet."""
    share, more = divmod(model.num_layers + first + last, stages)
    layers = shared_out(model.num_layers, stages, first, last)
    if min(layers) < 0 or max(first, last) > share:
        raise InputError("parallelism.pipeline_parallel_first_stage_less_layers", first,
                         f"must be at most {share}, the layers of a stage, as last_stage_less_layers",
                         str(min(1, share)))
    if len(set(layers)) == 1:
        return {}
    if not more and max(first, last) == 1 and schedule in ("1f1b", "interleaved"):
        return {"account_for_embedding": first, "account_for_loss": last}
    if schedule != "1f1b":
        raise InputError("parallelism.pipeline_parallel_first_stage_less_layers", first,
                         f"must let {stages} stages share out the layers evenly, as may be with 1 for each end: other"
                         " stages are counted with 1F1B, not yet otherwise", "0")
    return {"pipeline_layout": ",".join(map(str, layers))}


def _batch(options: Options, arguments: Mapping[str, Any]) -> tuple[dict[str, int], int]:
    """Return sequences and the batch if it is fixed, and the sequences of a replica where it is not."""
    local = options.size("training.local_batch_size", 8)
    total = options.size("training.global_batch_size", -1)
    piece = options.size("parallelism.pipeline_parallel_microbatch_size", 1)
    length = options.size("training.seq_len", 2048)
    if arguments["pipeline_parallel"] != 1:
        # every pass of the pipeline has the local batch, however often it is repeated
        return {"seq_length": length, "micro_batch_size": piece}, local
    whole = {"global_batch_size": total} if total != -1 else {}
    return {"seq_length": length, "micro_batch_size": local, **whole}, local


def _batch_in_tokens(options: Options, arguments: Mapping[str, Any]) -> tuple[dict[str, int], int]:
    """Return the same of a batch that is given in tokens, of sequences as long as they may be. Raises InputError."""
    length, tokens, step = options.size(_LONGEST, 2048), options.size(_TOKENS, 16384), options.size(_STEP, -1)
    for key, number in ((_TOKENS, tokens), (_STEP, step)):
        if length < 1 or (number != -1 and (number < length or number % length)):
            rule = f"must be a multiple of {_LONGEST} = {length}: shorter sequences are not counted yet"
            raise options.error(key, rule, str(max(length, number // max(length, 1) * length)))
    passes = options.size("parallelism.num_pp_microbatches", 1) if arguments["pipeline_parallel"] != 1 else 1
    total = {"global_batch_size": step // length} if step != -1 else {}
    return {"seq_length": length, "micro_batch_size": tokens // length, **total}, tokens // length * passes


def _recompute(options: Options) -> dict[str, Any]:
    modes = ("none", "full", "selective")
    mode = options.word("activation_checkpoint.mode", "selective", modes, ": others are not counted yet")
    option = options.word("activation_checkpoint.selective_ac_option", "2")
    if mode != "selective":
        return {"recompute": mode}
    if option == "op":
        return {"recompute": "selective"}
    if not (option.isascii() and option.isdecimal() and 0 < int(option[:9]) < 10**8):
        raise options.error("activation_checkpoint.selective_ac_option", "must be op, or a number of layers", "op")
    return {"recompute": "full", **({"recompute_num_layers": int(option)} if int(option) > 1 else {})}


def _compiled(options: Options, model: Model, pipeline: int) -> dict[str, str]:
    """Return compiled layers of dense models, and a compiled loss; a warning for all else that is compiled."""
    parts = options.all("compile.components", COMPILED) if options.is_on("compile.enable") else ()
    plain = not model.num_experts and not model.kv_lora_rank
    counted = {"model": {"compile": "layers"} if plain else {},
               "loss": {"loss": "dtensor_compiled"} if pipeline == 1 else {}}
    for part in parts:
        if not counted.get(part):
            options.warnings.append(f"compile.enable of {part} is not counted yet: what compilation changes")
    return {axis: option for part in parts for axis, option in counted.get(part, {}).items()}


def _kernels(options: Options) -> dict[str, str]:
    options.word("optimizer.name", "AdamW", ("Adam", "AdamW"), ": others are not counted yet with torchtitan")
    kernel = options.word("optimizer.implementation", "fused", OPTIMIZER_KERNELS)
    reshard = options.word("parallelism.fsdp_reshard_after_forward", "default", RESHARD)
    rotate = options.word("parallelism.context_parallel_rotate_method", "allgather", ("allgather", "alltoall"))
    if rotate == "alltoall":
        options.warnings.append("context_parallel_rotate_method = alltoall is counted as allgather")
    step = {"optimizer_step": "backward"} if options.is_on("optimizer.early_step_in_backward") else {}
    weights = options.word("training.dtype", "float32", PRECISIONS)
    precision = {} if weights == "float32" else {"precision": PRECISIONS[weights]}
    return {"optimizer_kernel": OPTIMIZER_KERNELS[kernel], "reshard": reshard, **step, **precision,
            **_checkpoint(options)}


def _checkpoint(options: Options) -> dict[str, str]:
    """Return how shards are saved, if not one after another."""
    mode = options.word("checkpoint.async_mode", "disabled", ("disabled", "async", "async_with_pinned_mem"))
    is_saved = any(options.is_on(f"checkpoint.{key}") for key in ("enable", "enable_checkpoint"))
    return {"loading": "distributed_copied"} if is_saved and mode != "disabled" else {}
