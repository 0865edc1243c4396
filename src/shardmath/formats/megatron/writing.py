"""A run as flags of Megatron-LM in their usual order: model, experts, training, parallelism."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from shardmath.configuration.settings import libraries
from shardmath.errors import InputError
from shardmath.formats.megatron import fsdp as megatron_fsdp
from shardmath.formats.megatron import offload
from shardmath.formats.megatron.asserted import refuse_what_does_not_start
from shardmath.formats.megatron.attention import attention_flags
from shardmath.formats.megatron.kernels import (
    BACKENDS,
    CONTEXTS,
    FP4_RECIPES,
    FP8_RECIPES,
    HOST_AXIS,
    KEEPS_WEIGHTS,
    LOSSES,
    MOMENT_BYTES,
)
from shardmath.formats.megatron.layout import MODULES, SIZES, SWITCHES
from shardmath.formats.megatron.rotary import rotary_flags
from shardmath.generated.definitions import RECOMPUTE_REGIONS, WORDS

if TYPE_CHECKING:
    from shardmath.account.accounting import Explanation
    from shardmath.models.model import Model

#: One flag with its words; without words a switch.
Flag = tuple[str, ...]


def _key(table: Mapping[str, str], value: str) -> str:
    return next(key for key, other in table.items() if other == value)


def groups_of(explanation: Explanation, layout: Sequence[int] | None) -> tuple[list[Flag], ...]:
    """Return the flags of model, experts, training and parallelism. Raises InputError for a run that does not start."""
    refuse_what_does_not_start(explanation)
    experts = list(_experts(explanation)) if explanation.model.num_experts else []
    return list(_model(explanation)), experts, list(_training(explanation)), list(_parallel(explanation, layout))


def _model(explanation: Explanation) -> Iterator[Flag]:
    values = explanation.inputs
    yield from model_flags(explanation.model, values["seq_length"])
    yield "make-vocab-size-divisible-by", str(values["vocab_multiple"])
    for name in ("attention", "hidden"):
        yield f"{name}-dropout", "0.1" if values[f"{name}_dropout"] else "0.0"
    if explanation.model.num_mtp_layers:
        yield "mtp-num-layers", str(explanation.model.num_mtp_layers)


def model_flags(model: Model, seq_length: int) -> Iterator[Flag]:
    """Yield flags of the shape of a model, but for its experts and its further predictions."""
    yield "num-layers", str(model.num_layers)
    yield "hidden-size", str(model.hidden_size)
    yield "ffn-hidden-size", str(model.ffn_hidden_size)
    yield "num-attention-heads", str(model.num_attention_heads)
    if model.kv_lora_rank:
        yield ("multi-latent-attention",)
        if model.q_lora_rank:
            yield "q-lora-rank", str(model.q_lora_rank)
        yield "kv-lora-rank", str(model.kv_lora_rank)
        yield "qk-head-dim", str(model.head_dim - model.qk_rope_head_dim)
        yield "qk-pos-emb-head-dim", str(model.qk_rope_head_dim)
        yield "v-head-dim", str(model.v_head_dim)
    else:
        if model.num_kv_heads != model.num_attention_heads:
            yield ("group-query-attention",)
            yield "num-query-groups", str(model.num_kv_heads)
        yield "kv-channels", str(model.head_dim)
    yield "seq-length", str(seq_length)
    yield "max-position-embeddings", str(model.learned_positions or max(model.max_seq_length, seq_length))
    yield "position-embedding-type", "learned_absolute" if model.learned_positions else "rope"
    yield "normalization", "RMSNorm" if model.normalisation == "rms" else "LayerNorm"
    if model.qk_norm or model.kv_lora_rank:
        yield ("qk-layernorm",)
    if model.mlp == "swiglu":
        yield ("swiglu",)
    elif model.mlp == "relu2":
        yield ("squared-relu",)
    yield from attention_flags(model)
    if not model.linear_bias:
        yield ("disable-bias-linear",)
        if model.qkv_bias:
            yield ("add-qkv-bias",)
    if not model.tied_embeddings:
        yield ("untie-embeddings-and-output-weights",)
    yield from rotary_flags(model)


def vocabulary(explanation: Explanation) -> Iterator[Flag]:
    """Yield a tokenizer without files whose vocabulary has the model's size."""
    yield "tokenizer-type", "NullTokenizer"
    yield "vocab-size", str(explanation.model.vocab_size - 1)  # the end of a document comes on top


def expert_flags(model: Model) -> Iterator[Flag]:
    """Return the flags of a model's experts, without their kernels. Raises InputError for a long list of layers."""
    yield "num-experts", str(model.num_experts)
    yield "moe-router-topk", str(model.moe_topk)
    yield "moe-ffn-hidden-size", str(model.moe_ffn_hidden_size)
    dense, step, layers = model.first_dense_layers, model.moe_layer_step, model.num_layers
    if step > 1:
        if layers > _MOST_LISTED:
            raise InputError("write", "megatron", f"must have at most {_MOST_LISTED} layers where some have experts")
        yield "moe-layer-freq", f"[{','.join(str(int(i % step == 0 and i > dense)) for i in range(1, layers + 1))}]"
    elif dense:
        yield "moe-layer-freq", f"([0]*{dense}+[1]*{layers - dense})"
    if model.shared_expert_ffn_hidden_size:
        yield "moe-shared-expert-intermediate-size", str(model.shared_expert_ffn_hidden_size)
    if model.shared_expert_gate:
        yield ("moe-shared-expert-gate",)
    if model.expert_scores == "sigmoid":
        yield "moe-router-score-function", "sigmoid"
    elif model.expert_scores == "softmax_all":
        yield ("moe-router-pre-softmax",)
    if model.expert_groups:
        yield "moe-router-num-groups", str(model.expert_groups)
        yield "moe-router-group-topk", str(model.expert_group_topk)
    if model.routed_scaling_factor != 1:
        yield "moe-router-topk-scaling-factor", f"{model.routed_scaling_factor:g}"


def _experts(explanation: Explanation) -> Iterator[Flag]:
    choices = explanation.choices
    yield from expert_flags(explanation.model)
    loss, bias = choices["balance"] in ("loss", "both"), choices["balance"] in ("bias", "both")
    kind = "sinkhorn" if choices["balance"] == "sinkhorn" else "none"
    yield "moe-router-load-balancing-type", "aux_loss" if loss else kind
    if loss:
        yield "moe-aux-loss-coeff", "1e-2"
    if bias:
        yield ("moe-router-enable-expert-bias",)
    if choices["router_precision"] == "fp32":
        yield "moe-router-dtype", "fp32"
    if choices["router"] == "fused":
        yield ("moe-router-fusion",)
    if choices["dispatch"] in BACKENDS:
        yield "moe-token-dispatcher-type", "flex"
        yield "moe-flex-dispatcher-backend", choices["dispatch"]
    else:
        yield "moe-token-dispatcher-type", choices["dispatch"]
    if choices["expert_passes"] == "combined":
        yield ("overlap-moe-expert-parallel-comm",)
    yield from offload.flags_of(choices)
    if choices["permute"] == "fused":
        yield ("moe-permute-fusion",)
    if choices["expert_products"] == "grouped":
        yield ("moe-grouped-gemm",)
    # The fused kernel of GELU knows no weights of tokens.
    if explanation.model.mlp not in {*WORDS["mlp"].values(), "swiglu_clamped"}:
        yield ("no-bias-gelu-fusion",)
    if capacity := explanation.inputs["expert_capacity_percent"]:
        yield "moe-expert-capacity-factor", f"{capacity / 100:.15g}"
        yield ("moe-pad-expert-input-to-capacity",)


#: Layers that are listed one by one.
_MOST_LISTED = 1000


def _training(explanation: Explanation) -> Iterator[Flag]:
    values, choices = explanation.inputs, explanation.choices
    yield "micro-batch-size", str(values["micro_batch_size"])
    yield "global-batch-size", str(values["global_batch_size"])
    half = choices["precision"] == "fp16"
    yield ("fp16" if half else "bf16",)
    if half and values["gradient_bytes"] == 4:
        yield ("accumulate-allreduce-grads-in-fp32",)
    elif not half and values["gradient_bytes"] == 2:
        yield ("grad-reduce-in-bf16",)
    yield from _optimizer(explanation)
    if choices["fp8"] in FP4_RECIPES.values():
        yield "fp4-format", "e2m1"
        yield "fp4-recipe", _key(FP4_RECIPES, choices["fp8"])
    elif choices["fp8"] != "none":
        yield "fp8-format", "hybrid"
        yield "fp8-recipe", _key(FP8_RECIPES, choices["fp8"])
        yield "fp8-amax-history-len", str(values["fp8_amax_history_len"])
        if choices["fp8_weights"] == "primary":
            yield ("fp8-param-gather",)
    if choices["peak"] == "megatron_local":
        yield "transformer-impl", "local"
        if choices["attention"] == "unfused":
            yield ("no-masked-softmax-fusion",)
    elif choices["attention"] in _BACKENDS:
        yield "attention-backend", _BACKENDS[choices["attention"]]
    else:
        copies = values["attention_copies_output"]
        if copies != libraries(explanation.gpu).get("attention_copies_output", copies):
            yield "attention-backend", "flash" if copies else "fused"
    if choices["loss"] in LOSSES.values():
        yield ("cross-entropy-loss-fusion",)
        yield "cross-entropy-fusion-impl", _key(LOSSES, choices["loss"])
    for axis, option, flag in _KERNEL_FLAGS:
        if choices[axis] == option:
            yield (flag,)
    yield from _recompute(explanation)


_BACKENDS = {"flash_bshd": "flash", "te_unfused": "unfused"}
_KERNEL_FLAGS = (
    ("weight_gradient", "separate", "no-gradient-accumulation-fusion"), ("swiglu", "unfused", "no-bias-swiglu-fusion"),
    ("rope", "unfused", "no-rope-fusion"), ("mask", "kernel", "no-create-attention-mask-in-dataloader"),
)


_WORDS = {option: word for word, option in WORDS["optimizer"].items()}


def _optimizer(explanation: Explanation) -> Iterator[Flag]:
    values, kind = explanation.inputs, explanation.choices["optimizer"]
    if values["distributed_optimizer"]:
        yield ("use-distributed-optimizer",)
    yield from megatron_fsdp.flags_of(values, explanation.choices)
    if kind in ("sgd", "sgd_momentum"):
        yield "optimizer", "sgd"
        yield "sgd-momentum", "0.9" if kind == "sgd_momentum" else "0.0"
    elif kind in ("precision_aware", "precision_aware_core"):
        yield ("use-precision-aware-optimizer",)
        names = {size: name for name, size in MOMENT_BYTES.items()}
        yield "exp-avg-dtype", names[values["exp_avg_bytes"]]
        yield "exp-avg-sq-dtype", names[values["exp_avg_sq_bytes"]]
        narrow = kind == "precision_aware" and values["main_param_bytes"] == 2
        if narrow and explanation.choices["precision"] == "fp16":
            yield "main-params-dtype", "fp16"
        if kind == "precision_aware_core" and explanation.choices["fp8"] == "none":
            yield "fp8-recipe", "tensorwise"
    elif kind in _WORDS and kind != "adamw":  # without a word the file would be read back as Adam, and is refused
        yield "optimizer", _WORDS[kind]
    if percent := values["optimizer_offload_percent"]:
        yield ("optimizer-cpu-offload",)
        if explanation.choices[HOST_AXIS] != KEEPS_WEIGHTS:
            yield ("use-precision-aware-optimizer",)
        yield "optimizer-offload-fraction", f"{percent / 100:.15g}"


def _recompute(explanation: Explanation) -> Iterator[Flag]:
    values = explanation.inputs
    if values["recompute_full"]:
        block = explanation.choices["recompute_method"] == "block"
        yield "recompute-granularity", "full"
        yield "recompute-method", "block" if block else "uniform"
        yield "recompute-num-layers", str(values["recompute_num_layers"])
        return
    regions = [region for region, switch in RECOMPUTE_REGIONS.items() if values[switch]]
    if regions:
        yield "recompute-granularity", "selective"
        yield "recompute-modules", *(_key(MODULES, region) for region in regions)


def _parallel(explanation: Explanation, layout: Sequence[int] | None) -> Iterator[Flag]:
    values = explanation.inputs
    always = ("tensor_parallel", "pipeline_parallel")
    for name, flag in SIZES.items():
        default = 0 if name in _ZERO else 1
        if name in always or values[name] != default:
            yield flag, str(values[name])
    if values["expert_tensor_parallel"] != values["tensor_parallel"] and explanation.model.num_experts:
        yield "expert-tensor-parallel-size", str(values["expert_tensor_parallel"])
    if values["sequence_parallel"]:
        yield ("sequence-parallel",)
    for name, flag in SWITCHES.items():
        if {**values, **explanation.switches}[name]:
            yield (flag,)
    if layout is not None:
        stages = ["t" * layers for layers in layout]
        yield "pipeline-model-parallel-layout", f"E{'|'.join(stages)}{'m' * explanation.model.num_mtp_layers}L"
    elif values["virtual_pipeline"] > 1:
        yield "num-virtual-stages-per-pipeline-rank", str(values["virtual_pipeline"])
    if explanation.choices["context"] != "ring":
        yield "cp-comm-type", _key(CONTEXTS, explanation.choices["context"])


_ZERO = ("first_stage_layers", "last_stage_layers", "microbatch_group", "cpu_offloading_num_layers")
