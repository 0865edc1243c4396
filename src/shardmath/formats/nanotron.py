"""Settings of nanotron (YAML) as a run; keys as in ``nanotron/config`` of its main branch (2411b022)."""

from __future__ import annotations

from typing import Any

from shardmath.errors import InputError
from shardmath.formats.options import Options
from shardmath.models.model import Model

_MODEL, _PARALLEL = "model.model_config.", "parallelism."
#: Keys of the model, and the fields that they are.
FIELDS = {
    "hidden_size": "hidden_size", "intermediate_size": "ffn_hidden_size", "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_attention_heads", "vocab_size": "vocab_size",
    "max_position_embeddings": "max_seq_length",
}
SCHEDULES = {"1f1b": "1f1b", "afab": "gpipe"}


def described(options: Options, name: str, num_gpus: int | None) -> tuple[Model, dict[str, Any], int]:
    """Return the model, the arguments of ``explain`` and the sequences of a replica and step. Raises InputError."""
    model = _model(options, name)
    tensor, pipeline = (options.needed(f"{_PARALLEL}{key}") for key in ("tp", "pp"))
    micro, passes = (options.needed(f"tokens.{key}") for key in ("micro_batch_size", "batch_accumulation_per_replica"))
    mode = options.word(f"{_PARALLEL}tp_mode", "all_reduce").lower()
    if mode not in ("all_reduce", "reduce_scatter"):
        raise options.error(f"{_PARALLEL}tp_mode", "must be ALL_REDUCE or REDUCE_SCATTER")
    zero = options.size("optimizer.zero_stage", 0)
    if zero not in (0, 1):
        raise options.error("optimizer.zero_stage", "must be 0 or 1: nanotron has no other", "1")
    if not options.is_on("optimizer.accumulate_grad_in_fp32"):
        rule = "must be true: gradients in 16 bits are not counted yet"
        raise options.error("optimizer.accumulate_grad_in_fp32", rule, "true")
    options.word("model.dtype", "bfloat16", ("bfloat16",), ": others are not counted yet with nanotron")
    data = options.needed(f"{_PARALLEL}dp")
    arguments: dict[str, Any] = {
        "implementation": "nanotron", "seq_length": options.needed("tokens.sequence_length"),
        "micro_batch_size": micro, "tensor_parallel": tensor, "pipeline_parallel": pipeline, "data_parallel": data,
        "context_parallel": options.size(f"{_PARALLEL}context_parallel_size", 1),
        "sequence_parallel": mode == "reduce_scatter" and tensor > 1, "distributed_optimizer": bool(zero),
        "gradients": "fp32", "vocab_multiple": options.size("model.make_vocab_size_divisible_by", 1),
        "global_batch_size": micro * passes * data,
        "recompute": "full" if options.is_on(f"{_PARALLEL}recompute_layer") else "none",
    }
    if pipeline > 1:
        engine = options.word(f"{_PARALLEL}pp_engine", "afab", SCHEDULES, ": nanotron has no other").lower()
        if pipeline > model.num_layers:
            raise options.error(f"{_PARALLEL}pp", f"must be at most the {model.num_layers} layers")
        arguments |= {"schedule": SCHEDULES[engine], "pipeline_layout": stage_layers(model, pipeline)}
    return model, arguments, micro * passes


def stage_layers(dimensions: Model, pipeline_parallel: int) -> tuple[int, ...]:
    """Return layers of each pipeline rank: nanotron shares out what layers and head compute, not their number.

    A rank ends with the block at which the cost so far reaches its share of the whole. The public revisions want it
    to exceed the share, which gives the 1B model of the Ultra-Scale Playbook on two ranks 11 layers; those allocate
    more than its run reserved.
    """
    h, f = dimensions.hidden_size, dimensions.ffn_hidden_size
    costs = [*[4 * h * h + 3 * h * f] * dimensions.num_layers, h * dimensions.vocab_size]
    layers, rank, spent = [0] * pipeline_parallel, 0, 0
    for place, cost in enumerate(costs):
        layers[rank] += place < dimensions.num_layers
        spent += cost
        if spent * pipeline_parallel >= (rank + 1) * sum(costs) and rank < pipeline_parallel - 1:
            rank += 1
    return tuple(layers)


def _model(options: Options, name: str) -> Model:
    if not options.is_on(f"{_MODEL}is_llama_config"):
        rule = "must be true: of nanotron's models only Llama's classes are counted yet"
        raise options.error(f"{_MODEL}is_llama_config", rule, "true")
    options.word(f"{_MODEL}hidden_act", "silu", ("silu",), ": others are not counted yet")
    fields: dict[str, Any] = {field: options.needed(f"{_MODEL}{key}") for key, field in FIELDS.items()}
    heads, hidden = fields["num_attention_heads"], fields["hidden_size"]
    if heads < 1 or hidden % heads:
        raise options.error(f"{_MODEL}hidden_size", f"must be a multiple of num_attention_heads = {heads}")
    fields |= {
        "num_kv_heads": options.size(f"{_MODEL}num_key_value_heads", heads), "head_dim": hidden // heads,
        "tied_embeddings": options.is_on(f"{_MODEL}tie_word_embeddings"), "qkv_bias": False, "qk_norm": False,
        "norm_epsilon": options.real(f"{_MODEL}rms_norm_eps", 1e-6),
        "rope_base": options.real(f"{_MODEL}rope_theta", 10_000.0),
    }
    try:
        return Model(name=name, source=options.source or name, **fields)
    except InputError as error:
        key = next((key for key, field in FIELDS.items() if field == error.field), error.field)
        raise InputError(options.shown(f"{_MODEL}{key}"), error.value, error.rule, error.nearest) from None
