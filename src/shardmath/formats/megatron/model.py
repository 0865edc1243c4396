"""The model that flags of Megatron-LM describe, with the defaults that ``validate_args`` puts in."""

from __future__ import annotations

from typing import Any

from shardmath.errors import InputError
from shardmath.formats.megatron.attention import attention_of, is_bounded
from shardmath.formats.megatron.layout import MOST_LAYERS, layer_pattern
from shardmath.formats.megatron.rotary import norm_epsilon_of, rotary_of, rotary_part_of
from shardmath.formats.options import Options
from shardmath.models.expert_families import first_layer_and_step
from shardmath.models.model import LARGEST, Model

#: Fields of ``Model`` that an error may blame, and the flags that they follow from.
FLAGS_OF = {
    "hidden_size": "hidden-size", "ffn_hidden_size": "ffn-hidden-size", "num_layers": "num-layers",
    "num_attention_heads": "num-attention-heads", "num_kv_heads": "num-query-groups", "head_dim": "kv-channels",
    "vocab_size": "vocab-size", "max_seq_length": "max-position-embeddings", "num_experts": "num-experts",
    "moe_topk": "moe-router-topk", "moe_ffn_hidden_size": "moe-ffn-hidden-size",
    "shared_expert_ffn_hidden_size": "moe-shared-expert-intermediate-size",
    "shared_expert_gate": "moe-shared-expert-gate", "expert_groups": "moe-router-num-groups",
    "expert_group_topk": "moe-router-group-topk", "q_lora_rank": "q-lora-rank", "kv_lora_rank": "kv-lora-rank",
    "qk_rope_head_dim": "qk-pos-emb-head-dim", "v_head_dim": "v-head-dim", "num_mtp_layers": "mtp-num-layers",
    "learned_positions": "max-position-embeddings", "qkv_bias": "add-qkv-bias", "qk_norm": "qk-layernorm",
    "moe_layers": "moe-layer-freq", "first_dense_layers": "moe-layer-freq", "moe_layer_step": "moe-layer-freq",
    "mlp": "swiglu", "norm_epsilon": "norm-epsilon", "rope_base": "rotary-base",
    "routed_scaling_factor": "moe-router-topk-scaling-factor", "attention_window": "window-size",
    "full_attention_step": "window-attn-skip-freq", "attention_sinks": "softmax-type",
}
#: Rows of the vocabularies that a type of tokenizer always has.
_VOCABULARIES = {"GPT2BPETokenizer": 50257, "Llama2Tokenizer": 32000, "Llama3Tokenizer": 128256}
_TIKTOKEN = 2**17  # --vocab-size of TikTokenizer, where it is absent


def model_of(options: Options, name: str) -> Model:
    """Return the model of ``given``, called ``name``. Raises InputError that blames a flag."""
    try:
        return Model(name=name, source=options.source or name, **_fields(options))
    except InputError as error:
        flag = FLAGS_OF.get(error.field)
        if flag is None:
            raise
        raise InputError(options.shown(flag), error.value, error.rule, error.nearest) from None


def _fields(options: Options) -> dict[str, Any]:
    layers = options.number("num-layers")
    if layers is None:
        layers = options.number("encoder-num-layers")
    if layers is None:
        raise options.error("num-layers", "must be given")
    hidden, heads = options.needed("hidden-size"), options.needed("num-attention-heads")
    positions = options.needed("max-position-embeddings")
    swiglu, biases = options.is_on("swiglu"), not options.is_on("disable-bias-linear")
    if options.is_on("squared-relu") and swiglu:
        raise options.error("squared-relu", "must not be given together with --swiglu")
    bounded = is_bounded(options)
    if bounded and (swiglu or options.is_on("squared-relu")):
        raise options.error("quick-geglu", "must not be given together with --swiglu or --squared-relu")
    ffn = options.number("ffn-hidden-size")
    if ffn is None:  # of the same size as without a gate, in multiples of 64
        ffn = int(4 * hidden * 2 / 3 / 64) * 64 if swiglu and abs(hidden) <= LARGEST else 4 * hidden
    fields: dict[str, Any] = {
        "hidden_size": hidden, "ffn_hidden_size": ffn, "num_layers": layers, "num_attention_heads": heads,
        "vocab_size": _vocabulary(options), "max_seq_length": positions,
        "tied_embeddings": not options.is_on("untie-embeddings-and-output-weights"),
        "normalisation": _NORMS[options.word("normalization", "LayerNorm", _NORMS)],
        "mlp": "swiglu_clamped" if bounded else "swiglu" if swiglu else
               "relu2" if options.is_on("squared-relu") else "gelu",
        "linear_bias": biases, "qkv_bias": options.is_on("add-qkv-bias") or biases,
        "qk_norm": options.is_on("qk-layernorm"),
        "learned_positions": positions if _learned(options) else 0,
        "num_mtp_layers": options.size("mtp-num-layers", 0),
    }
    latent = options.is_on("multi-latent-attention")
    fields |= _latent(options, heads) if latent else _grouped(options, hidden, heads)
    fields |= attention_of(options, layers)
    fields["norm_epsilon"] = norm_epsilon_of(options)
    if not fields["learned_positions"]:
        fields |= rotary_of(options, latent)
        if not latent:
            fields["qk_rope_head_dim"] = rotary_part_of(options, fields["head_dim"])
    if options.size("num-experts", 0):
        fields |= _experts(options, layers, ffn)
    return fields


_NORMS = {"LayerNorm": "layer", "RMSNorm": "rms"}


def _learned(options: Options) -> bool:
    legal = ("learned_absolute", "rope", "yarn")
    kind = options.word("position-embedding-type", legal[0], legal, ": others are not counted yet")
    rotary = options.is_on("use-rotary-position-embeddings")
    return kind == legal[0] and not rotary


def _grouped(options: Options, hidden: int, heads: int) -> dict[str, Any]:
    groups = options.size("num-query-groups", 1)
    if not options.is_on("group-query-attention"):
        if "num-query-groups" in options and groups != heads:
            options.warnings.append(
                f"{options.shown('num-query-groups')} {groups} has no effect without"
                f" {options.shown('group-query-attention')}")
        groups = heads
    channels = options.number("kv-channels")
    if channels is None:
        if heads < 1 or hidden % heads:
            raise options.error("hidden-size", f"must be a multiple of {options.shown('num-attention-heads')} = {heads}"
                                             f" where {options.shown('kv-channels')} is absent")
        channels = hidden // heads
    return {"num_kv_heads": groups, "head_dim": channels}


def _latent(options: Options, heads: int) -> dict[str, Any]:
    if options.is_on("group-query-attention"):
        raise options.error("group-query-attention", "must not be given together with latent attention")
    if not options.is_on("qk-layernorm"):
        raise options.error("qk-layernorm", "must be given with latent attention: it is not counted yet without norms")
    rotary = options.size("qk-pos-emb-head-dim", 64)
    return {
        "num_kv_heads": heads, "head_dim": options.size("qk-head-dim", 128) + rotary, "qk_norm": False,
        "qkv_bias": False,  # of all projections of latent attention the last one alone may have a bias
        "q_lora_rank": options.size("q-lora-rank", 0), "kv_lora_rank": options.size("kv-lora-rank", 32),
        "qk_rope_head_dim": rotary, "v_head_dim": options.size("v-head-dim", 128),
    }


def _experts(options: Options, layers: int, ffn: int) -> dict[str, Any]:
    dense, step = _expert_layers(options, layers)
    score = options.word("moe-router-score-function", "softmax", ("softmax", "sigmoid"), ": others are not counted yet")
    if options.is_on("moe-router-pre-softmax") and score == "softmax":
        score = "softmax_all"
    groups = options.size("moe-router-num-groups", 0)
    return {
        "num_experts": options.size("num-experts", 0), "moe_topk": options.size("moe-router-topk", 2),
        "moe_ffn_hidden_size": options.size("moe-ffn-hidden-size", ffn),
        "shared_expert_ffn_hidden_size": options.size("moe-shared-expert-intermediate-size", 0),
        "shared_expert_gate": options.is_on("moe-shared-expert-gate"), "expert_scores": score,
        "expert_groups": groups if groups > 1 else 0,
        "expert_group_topk": options.size("moe-router-group-topk", 0) if groups > 1 else 0,
        "first_dense_layers": dense, "moe_layer_step": step,
        "dense_mtp_layers": options.size("mtp-num-layers", 0) > 0 and layers % step > 0,  # as the last layer
        "routed_scaling_factor": options.real("moe-router-topk-scaling-factor", 1.0),
    }


def _expert_layers(options: Options, layers: int) -> tuple[int, int]:
    """Return the number of first dense layers, and N where every N-th layer has experts."""
    words = options.all("moe-layer-freq", ("1",))
    written = "".join(words).strip("'\"")
    if len(words) > 1 and set(words) <= {"0", "1"}:  # a list of YAML
        written = f"[{','.join(words)}]"
    if written.isascii() and written.isdecimal() and 0 < int(written[:9]) <= LARGEST:
        frequency = int(written[:9])
        positions = list(range(0, min(layers, MOST_LAYERS), frequency))
        if frequency == 1:
            return 0, 1
    else:
        try:
            positions = [place for place, has in enumerate(layer_pattern(written)) if has]
        except ValueError as error:
            raise options.error("moe-layer-freq", str(error)) from None
    try:
        return first_layer_and_step(positions, layers, 1)
    except InputError as error:
        raise options.error("moe-layer-freq", error.rule) from None


def _vocabulary(options: Options) -> int:
    """Return rows of the vocabulary before padding."""
    options.asked |= {"tokenizer-model", "vocab-file", "merge-file"}
    padded, stated = options.number("padded-vocab-size"), options.number("vocab-size")
    kind, extra = options.word("tokenizer-type"), options.size("vocab-extra-ids", 0)
    if padded is not None:
        return padded
    if kind == "NullTokenizer" and stated is not None:
        return stated + 1  # the end of a document comes on top (megatron-core 0.16)
    if stated is not None:
        return stated + extra
    if not kind and "vocab-file" in options and "merge-file" in options:
        kind = "GPT2BPETokenizer"
    if kind in _VOCABULARIES:
        return _VOCABULARIES[kind] + extra
    if kind == "TikTokenizer":
        return _TIKTOKEN
    words = options.words.get("tokenizer-model", ())
    try:
        return Model.named(words[0]).vocab_size + extra
    except (InputError, IndexError):
        why = f"the vocabulary of {kind or 'the tokenizer'} is not known here"
        raise options.error("vocab-size", f"must be given: {why}; give it with --set vocab-size=...") from None
