"""The precision, the optimizer and the kernels that flags of Megatron-LM ask for, as arguments of ``explain``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardmath.formats.megatron import offload
from shardmath.formats.options import Options
from shardmath.generated.definitions import ASKED, TORCH_WORKSPACES, WORDS
from shardmath.models.model import Model

#: Words of flags, and the options that they are here.
FP8_RECIPES = {"delayed": "delayed", "tensorwise": "current", "mxfp8": "mx", "blockwise": "block"}
FP4_RECIPES = {"nvfp4": "nvfp4"}
LOSSES = {"native": "native_fused", "te": "te_fused"}
CONTEXTS = {"p2p": "ring", "a2a": "all_to_all", "all_gather": "all_gather"}
#: Backends of Megatron-Core's flex dispatcher, which are called so here too.
BACKENDS = ("deepep", "hybridep")
MOMENT_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1}
#: The axis of an optimizer on the host, and its option that keeps fp32 weights on the GPU.
HOST_AXIS, KEEPS_WEIGHTS = ASKED["optimizer_offload_percent"][0], "cpu_moments"
#: Widths that Megatron-Core has with its precision-aware optimizer alone.
_WIDTHS = ("main-grads-dtype", "main-params-dtype", "exp-avg-dtype", "exp-avg-sq-dtype")
_ATTENTION = ("auto", "flash", "fused", "unfused", "local")
#: Copies of attention's output: FlashAttention is called with the batch first, cuDNN is not.
_COPIES = {"flash": 1, "fused": 0}
_AUXILIARY = ("aux_loss", "seq_aux_loss", "global_aux_loss")
_SINKHORN = "sinkhorn"
#: Tokens that those of a rank's experts are padded to, over their mean; room of a stash over it by default.
_ROOM, _STASH = "moe-expert-rank-capacity-factor", 1.1
#: With this variable PyTorch's workspaces of cuBLAS have a size of their own.
_WORKSPACE_VARIABLE, _CONFIGURED = "CUBLAS_WORKSPACE_CONFIG", ":4096:8"


def precision_of(options: Options) -> dict[str, Any]:
    """Gradients, sharded states and dropout. Raises InputError that blames a flag."""
    half = options.is_on("fp16")
    if not half and not options.is_on("bf16"):
        raise options.error("bf16", "must be given, or --fp16: training in fp32 is not counted yet")
    if half and options.is_on("bf16"):
        raise options.error("bf16", "must not be given together with --fp16")
    whole = options.is_on("accumulate-allreduce-grads-in-fp32")
    main = options.word("main-grads-dtype", "fp32", ("fp32", "bf16"))
    if half:
        gradients = "fp32" if whole else "bf16"  # fp16 has as many bytes as bf16
    else:
        gradients = "bf16" if options.is_on("grad-reduce-in-bf16") or (main == "bf16" and not whole) else "fp32"
    precision: dict[str, Any] = {
        "gradients": gradients, "distributed_optimizer": options.is_on("use-distributed-optimizer"),
        **_optimizer(options, half),
    }
    precision |= {f"{of}_dropout": 1 for of in ("hidden", "attention") if options.real(f"{of}-dropout", 0.1)}
    if "padded-vocab-size" in options or options.is_on("no-pad-vocab-size"):
        return {**precision, "vocab_multiple": 1}
    return {**precision, "vocab_multiple": options.size("make-vocab-size-divisible-by", 128)}


def _optimizer(options: Options, half: bool) -> dict[str, Any]:
    """Return states of the optimizer that have a width or a place of their own."""
    if options.is_on("optimizer-cpu-offload"):
        for flag in ("exp-avg-dtype", "exp-avg-sq-dtype", "main-params-dtype"):
            options.word(flag, "fp32", ("fp32",), " where the optimizer is on the host")
        options.is_on("use-precision-aware-optimizer")
        return {"optimizer_offload_percent": _percent(options, "optimizer-offload-fraction", 1.0)}
    if not options.is_on("use-precision-aware-optimizer"):
        for flag in _WIDTHS:
            options.word(flag, "fp32", ("fp32",), f" without {options.shown('use-precision-aware-optimizer')}")
        options.asked.add("store-param-remainders")
        return {}
    if _keeps_weights_in_core(options):
        options.asked.add("store-param-remainders")
        return _moments(options)
    whole = "store-param-remainders" in options and not options.is_on("store-param-remainders")
    main = options.word("main-params-dtype", "fp32", ("fp32", "fp16"))
    # bf16 weights are the upper halves of fp32 ones, of which only the lower halves are kept.
    return {**_moments(options), "main_param_bytes": 4 if main == "fp32" and (half or whole) else 2}


def _moments(options: Options) -> dict[str, int]:
    return {f"{name}_bytes": MOMENT_BYTES[options.word(f"{name.replace('_', '-')}-dtype", "fp32", MOMENT_BYTES)]
            for name in ("exp_avg", "exp_avg_sq")}


def _keeps_weights_in_core(options: Options) -> bool:
    """Tell if fp32 master weights are Megatron-Core's where Transformer Engine's optimizer has moments of any width.

    ``OptimizerConfig.__post_init__`` of Megatron-Core 0.16.1: they are with an FP8 recipe but delayed scaling, also
    where nothing is in FP8. Megatron-LM's recipe is delayed scaling unless a flag says otherwise. Megatron-Bridge's
    ``MixedPrecisionConfig`` has another, which it copies to the optimizer before that.
    """
    narrow = options.word("main-params-dtype", "fp32", ("fp32", "fp16")) != "fp32"
    return not narrow and options.word("fp8-recipe", "delayed") not in ("delayed", "none", "null")


def kernels_of(options: Options, model: Model) -> dict[str, str]:
    """Return choices of kernels, for ``kernels`` of ``explain``. Raises InputError that blames a flag."""
    chosen: dict[str, str] = {"precision": "fp16"} if options.is_on("fp16") else {}
    chosen |= _attention(options) | _optimizer_kind(options) | _fp8(options)
    if options.is_on("cross-entropy-loss-fusion"):
        chosen["loss"] = LOSSES[options.word("cross-entropy-fusion-impl", "native", LOSSES)]
    else:
        options.asked.add("cross-entropy-fusion-impl")
    for flag, axis, option in (
        ("no-gradient-accumulation-fusion", "weight_gradient", "separate"),
        ("no-bias-swiglu-fusion", "swiglu", "unfused"), ("no-rope-fusion", "rope", "unfused"),
    ):
        if options.is_on(flag):
            chosen[axis] = option
    if not options.is_on("no-create-attention-mask-in-dataloader"):
        chosen["mask"] = "dataloader"
    if words := options.all("cp-comm-type"):
        if len(set(words)) > 1 or words[0] not in CONTEXTS:
            raise options.error("cp-comm-type", f"must be one of {', '.join(CONTEXTS)} for all layers")
        chosen["context"] = CONTEXTS[words[0]]
    moved = offload.kernels_of(options)
    return chosen | (_experts(options, model, chosen) | moved if model.num_experts else {})


def libraries_of(options: Options, environment: Mapping[str, object]) -> dict[str, int]:
    """Return library choices that a flag or an environment variable makes, not the GPU."""
    configured = environment.get(_WORKSPACE_VARIABLE) == _CONFIGURED
    workspaces = {"torch_workspace_bytes": TORCH_WORKSPACES["configured"]} if configured else {}
    backend = options.word("attention-backend", "auto", _ATTENTION)
    return workspaces | ({"attention_copies_output": _COPIES[backend]} if backend in _COPIES else {})


def _attention(options: Options) -> dict[str, str]:
    """Kernel of attention; on what GPU ``auto`` means which is a matter of ``attention_copies_output``."""
    backend = options.word("attention-backend", "auto", _ATTENTION)
    fused_softmax = not options.is_on("no-masked-softmax-fusion")
    if options.word("transformer-impl", "transformer_engine", ("transformer_engine", "local")) == "local":
        return {"peak": "megatron_local", "attention": "fused_softmax" if fused_softmax else "unfused"}
    return {"attention": "te_unfused"} if backend == "unfused" else {}


def _optimizer_kind(options: Options) -> dict[str, str]:
    """Return the optimizer, unless it is Adam; without momentum, ``sgd`` is another one.

    Where Adam works on the host without the precision-aware optimizer, master weights stay on the GPU.
    """
    kind = options.word("optimizer", "adam", WORDS["optimizer"], ": others are not counted yet")
    if kind == "sgd" and not options.real("sgd-momentum", 0.9):
        return {"optimizer": "sgd"}
    options.asked.add("sgd-momentum")
    if kind != "adam":
        return {"optimizer": WORDS["optimizer"][kind]}
    aware = options.is_on("use-precision-aware-optimizer")
    if options.is_on("optimizer-cpu-offload"):
        return {} if aware else {HOST_AXIS: KEEPS_WEIGHTS}
    return {"optimizer": "precision_aware_core"} if aware and _keeps_weights_in_core(options) else {}


def _fp8(options: Options) -> dict[str, str]:
    without = options.word("fp8-format", "none") in ("none", "null")
    if without:
        options.asked |= {"fp8-recipe", "fp8-param-gather", "fp8-amax-history-len"}
    if options.word("fp4-format", "none") not in ("none", "null"):
        return _fp4(options, without)
    options.asked |= {"fp4-recipe", "fp4-param-gather"}
    if without:
        return {}
    options.asked.add("fp8-amax-history-len")
    recipe = FP8_RECIPES[options.word("fp8-recipe", "delayed", FP8_RECIPES, ": others are not counted yet")]
    return {"fp8": recipe, **({"fp8_weights": "primary"} if options.is_on("fp8-param-gather") else {})}


def _fp4(options: Options, without_fp8: bool) -> dict[str, str]:
    if not without_fp8:
        raise options.error("fp4-format", f"must not be given together with {options.shown('fp8-format')}")
    if options.is_on("fp4-param-gather"):
        rule = "must not be given: FP4 weights without 16-bit ones are not counted yet"
        raise options.error("fp4-param-gather", rule)
    return {"fp8": FP4_RECIPES[options.word("fp4-recipe", "nvfp4", FP4_RECIPES, ": others are not counted yet")]}


def amax_history_of(options: Options, kernels: Mapping[str, str]) -> dict[str, int]:
    """Return steps of which FP8 with delayed scaling keeps the largest magnitudes."""
    steps = options.number("fp8-amax-history-len") if kernels.get("fp8") == "delayed" else None
    return {} if steps is None else {"fp8_amax_history_len": steps}


def _experts(options: Options, model: Model, chosen: Mapping[str, str]) -> dict[str, str]:
    dispatch = _dispatch(options)
    return {
        "dispatch": dispatch,
        **(_turns(options) if dispatch == "alltoall" and _are_counted_in_turns(options, model, chosen) else {}),
        "permute": "fused" if options.is_on("moe-permute-fusion") else "unfused",
        "router": "fused" if options.is_on("moe-router-fusion") else "unfused",
        "router_precision": _router_precision(options, dispatch),
        "balance": _balance(options),
        "expert_products": "grouped" if options.is_on("moe-grouped-gemm") else "sequential",
        "weighting": "fused" if _weighs_in_activation(options) else "separate",
    }


def _router_precision(options: Options, dispatch: str) -> str:
    """Return the precision of a router; DeepEP and HybridEP send fp32 weights, whatever it computes in."""
    precision = options.word("moe-router-dtype", "bf16", ("bf16", "fp32"), ": others are not counted yet")
    if precision == "bf16" and dispatch in BACKENDS:
        options.warnings.append(f"{options.shown('moe-router-dtype')}: a router in bf16 is counted as one in fp32 with"
                                f" {dispatch}, which sends its weights in fp32")
        return "fp32"
    return precision


def _are_counted_in_turns(options: Options, model: Model, chosen: Mapping[str, str]) -> bool:
    """Tell whether passes of two micro-batches in turns are counted with what else a run has."""
    alone = options.number("expert-tensor-parallel-size") or options.number("tensor-model-parallel-size") or 1
    grouped = options.is_on("moe-grouped-gemm") and "fp8" not in chosen and "peak" not in chosen
    return grouped and alone == 1 and model.mlp == "swiglu" and not model.num_mtp_layers


def _turns(options: Options) -> dict[str, str]:
    return {"expert_passes": "combined"} if options.is_on("overlap-moe-expert-parallel-comm") else {}


def _dispatch(options: Options) -> str:
    """Return how tokens reach experts; ``--moe-enable-deepep`` is an older word for the backend of ``flex``."""
    dispatchers = {"allgather": "allgather", "alltoall": "alltoall", "alltoall_seq": "alltoall", "flex": "flex"}
    kind = dispatchers[options.word("moe-token-dispatcher-type", "allgather", dispatchers)]
    backend = options.word("moe-flex-dispatcher-backend", "deepep", BACKENDS)
    older = options.is_on("moe-enable-deepep")
    if older and kind != "flex":
        raise options.error("moe-enable-deepep", "must be given with --moe-token-dispatcher-type flex")
    if older and backend != "deepep":
        raise options.error("moe-enable-deepep", "must not be given with another backend")
    return backend if kind == "flex" else kind


def _weighs_in_activation(options: Options) -> bool:
    """Tell whether one kernel computes the square of ReLU and its product with the weights of tokens."""
    return options.is_on("use-fused-weighted-squared-relu") and options.is_on("squared-relu")


def _balance(options: Options) -> str:
    kinds = options.all("moe-router-load-balancing-type", ("aux_loss",))
    weights = options.all("moe-aux-loss-coeff", ("0",))
    for kind in kinds or ("",):
        if kind not in (*_AUXILIARY, "none", _SINKHORN) or (kind == _SINKHORN and len(kinds) > 1):
            raise options.error("moe-router-load-balancing-type",
                              f"must be some of {', '.join(_AUXILIARY)}, or {_SINKHORN}, or none")
    try:
        numbers = [float(weight) for weight in weights]
    except ValueError:
        raise options.error("moe-aux-loss-coeff", "must be a number") from None
    weighed = any(numbers)
    if kinds[0] == _SINKHORN:
        if weighed:
            raise options.error("moe-aux-loss-coeff", f"must be 0 with {_SINKHORN}")
        return _SINKHORN
    loss, bias = weighed and any(kind in _AUXILIARY for kind in kinds), options.is_on("moe-router-enable-expert-bias")
    return {(False, False): "none", (True, False): "loss", (False, True): "bias", (True, True): "both"}[loss, bias]


def capacity_of(options: Options, model: Model) -> dict[str, int]:
    """Return the tokens that every expert is padded to, in percent. Raises InputError for unknown numbers."""
    pads = options.is_on("moe-pad-expert-input-to-capacity")
    if options.word("moe-expert-capacity-factor", "none") in ("none", "null") or not model.num_experts:
        return {}
    factor = _percent(options, "moe-expert-capacity-factor", 0.0)
    if not pads and factor != 100:
        rule = "must be 1 without --moe-pad-expert-input-to-capacity: how many tokens stay below is not known"
        raise options.error("moe-expert-capacity-factor", rule)
    return {"expert_capacity_percent": factor}


def load_of(options: Options, model: Model) -> dict[str, int]:
    """Return the tokens that HybridEP pads those of a rank's experts to, in percent of the mean.

    A paged stash keeps what the backward pass needs without that padding, in room of its own, which is not counted: a
    warning says so. Raises InputError for a wrong number.
    """
    stashed = options.is_on("moe-paged-stash")
    factor = options.real("moe-paged-stash-buffer-size-factor-cuda", _STASH)
    if options.word(_ROOM, "none") in ("none", "null") or not model.num_experts:
        if stashed and model.num_experts:
            raise options.error("moe-paged-stash", f"must be given with {options.shown(_ROOM)}")
        return {}
    if _dispatch(options) != "hybridep":
        options.warnings.append(f"{options.shown(_ROOM)}: HybridEP alone pads tokens to it, which these settings do not"
                                " choose: no tokens are padded here")
        return {}
    room = _percent(options, _ROOM, 0.0)
    if room < 100:
        raise options.error(_ROOM, "must be at least 1: how many tokens stay below is not known")
    if not stashed:
        options.warnings.append(f"{options.shown(_ROOM)}: experts are counted with {room / 100:g} times the mean number"
                                " of tokens, which HybridEP pads them to: their time is that of as many tokens")
        return {"expert_load_percent": room}
    options.warnings.append(
        f"{options.shown('moe-paged-stash')} is not counted yet: its room for {abs(factor):g} times the mean number"
        f" of tokens, and rows of one layer padded to {room / 100:g} times it: experts are counted with the mean")
    return {}


def _percent(options: Options, name: str, default: float) -> int:
    percent = options.real(name, default) * 100
    if abs(percent - round(percent)) > 1e-9 * max(1.0, abs(percent)):
        raise options.error(name, "must be a whole number of percent")
    return round(percent)
