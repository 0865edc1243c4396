"""The precision, the optimizer and the kernels that flags of Megatron-LM ask for, as arguments of ``explain``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardmath.formats.given import Given
from shardmath.generated.definitions import TORCH_WORKSPACES
from shardmath.models.model import Model

#: Words of flags, and the options that they are here.
FP8_RECIPES = {"delayed": "delayed", "tensorwise": "current", "mxfp8": "mx", "blockwise": "block"}
LOSSES = {"native": "native_fused", "te": "te_fused"}
CONTEXTS = {"p2p": "ring", "a2a": "all_to_all"}
MOMENT_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1}
_ATTENTION = ("auto", "flash", "fused", "unfused", "local")
#: Whether the output of attention is copied: FlashAttention is called with the batch first, cuDNN is not.
_COPIES = {"flash": 1, "fused": 0}
_AUXILIARY = ("aux_loss", "seq_aux_loss", "global_aux_loss")
#: With this variable PyTorch's workspaces of cuBLAS have a size of their own.
_WORKSPACE_VARIABLE, _CONFIGURED = "CUBLAS_WORKSPACE_CONFIG", ":4096:8"


def precision_of(given: Given) -> dict[str, Any]:
    """Gradients, sharded states and dropout. Raises InputError that blames a flag."""
    half = given.is_on("fp16")
    if not half and not given.is_on("bf16"):
        raise given.error("bf16", "must be given, or --fp16: training in fp32 is not counted yet")
    if half and given.is_on("bf16"):
        raise given.error("bf16", "must not be given together with --fp16")
    whole = given.is_on("accumulate-allreduce-grads-in-fp32")
    main = given.word("main-grads-dtype", "fp32", ("fp32", "bf16"))
    if half:
        gradients = "fp32" if whole else "bf16"  # fp16 has as many bytes as bf16
    else:
        gradients = "bf16" if given.is_on("grad-reduce-in-bf16") or (main == "bf16" and not whole) else "fp32"
    found: dict[str, Any] = {
        "gradients": gradients, "distributed_optimizer": given.is_on("use-distributed-optimizer"),
        **_optimizer(given, half),
    }
    found |= {f"{of}_dropout": 1 for of in ("hidden", "attention") if given.real(f"{of}-dropout", 0.1)}
    if "padded-vocab-size" in given or given.is_on("no-pad-vocab-size"):
        return {**found, "vocab_multiple": 1}
    return {**found, "vocab_multiple": given.size("make-vocab-size-divisible-by", 128)}


def _optimizer(given: Given, half: bool) -> dict[str, Any]:
    """States of the optimizer that have a width or a place of their own."""
    if given.is_on("optimizer-cpu-offload"):
        for flag in ("exp-avg-dtype", "exp-avg-sq-dtype", "main-params-dtype"):
            given.word(flag, "fp32", ("fp32",), " where the optimizer is on the host")
        given.is_on("use-precision-aware-optimizer")
        return {"optimizer_offload_percent": _percent(given, "optimizer-offload-fraction", 1.0)}
    if not given.is_on("use-precision-aware-optimizer"):
        given.asked |= {"exp-avg-dtype", "exp-avg-sq-dtype", "main-params-dtype"}
        return {}
    main = given.word("main-params-dtype", "fp32", ("fp32", "fp16"))
    moments = {f"{name}_bytes": MOMENT_BYTES[given.word(f"{name.replace('_', '-')}-dtype", "fp32", MOMENT_BYTES)]
               for name in ("exp_avg", "exp_avg_sq")}
    # bf16 weights are the upper halves of fp32 ones, of which only the lower halves are kept.
    return {**moments, "main_param_bytes": 4 if main == "fp32" and half else 2}


def kernels_of(given: Given, model: Model) -> dict[str, str]:
    """Choices of kernels, for ``kernels`` of ``explain``. Raises InputError that blames a flag."""
    chosen: dict[str, str] = {"precision": "fp16"} if given.is_on("fp16") else {}
    chosen |= _attention(given) | _optimizer_kind(given) | _fp8(given)
    if given.is_on("cross-entropy-loss-fusion"):
        chosen["loss"] = LOSSES[given.word("cross-entropy-fusion-impl", "native", LOSSES)]
    else:
        given.asked.add("cross-entropy-fusion-impl")
    for flag, axis, option in (
        ("no-gradient-accumulation-fusion", "weight_gradient", "separate"),
        ("no-bias-swiglu-fusion", "swiglu", "unfused"), ("no-rope-fusion", "rope", "unfused"),
    ):
        if given.is_on(flag):
            chosen[axis] = option
    if not given.is_on("no-create-attention-mask-in-dataloader"):
        chosen["mask"] = "dataloader"
    if words := given.all("cp-comm-type"):
        if len(set(words)) > 1 or words[0] not in CONTEXTS:
            raise given.error("cp-comm-type", f"must be one of {', '.join(CONTEXTS)} for all layers")
        chosen["context"] = CONTEXTS[words[0]]
    return chosen | (_experts(given) if model.num_experts else {})


def libraries_of(given: Given, environment: Mapping[str, object]) -> dict[str, int]:
    """Return library choices that a flag or an environment variable makes, not the GPU."""
    configured = environment.get(_WORKSPACE_VARIABLE) == _CONFIGURED
    found = {"torch_workspace_bytes": TORCH_WORKSPACES["configured"]} if configured else {}
    backend = given.word("attention-backend", "auto", _ATTENTION)
    return found | ({"attention_copies_output": _COPIES[backend]} if backend in _COPIES else {})


def _attention(given: Given) -> dict[str, str]:
    """Kernel of attention; on what GPU ``auto`` means which is a matter of ``attention_copies_output``."""
    backend = given.word("attention-backend", "auto", _ATTENTION)
    fused_softmax = not given.is_on("no-masked-softmax-fusion")
    if given.word("transformer-impl", "transformer_engine", ("transformer_engine", "local")) == "local":
        return {"peak": "megatron_local", "attention": "fused_softmax" if fused_softmax else "unfused"}
    return {"attention": "te_unfused"} if backend == "unfused" else {}


def _optimizer_kind(given: Given) -> dict[str, str]:
    kind = given.word("optimizer", "adam", ("adam", "sgd", "muon"), ": others are not counted yet")
    if kind == "sgd":
        return {"optimizer": "sgd_momentum" if given.real("sgd-momentum", 0.9) else "sgd"}
    given.asked.add("sgd-momentum")
    if kind == "muon":
        return {"optimizer": "muon"}
    return {}


def _fp8(given: Given) -> dict[str, str]:
    if given.word("fp8-format", "none") in ("none", "null"):
        given.asked |= {"fp8-recipe", "fp8-param-gather", "fp8-amax-history-len"}
        return {}
    given.asked.add("fp8-amax-history-len")
    recipe = FP8_RECIPES[given.word("fp8-recipe", "delayed", FP8_RECIPES, ": others are not counted yet")]
    return {"fp8": recipe, **({"fp8_weights": "primary"} if given.is_on("fp8-param-gather") else {})}


def amax_history_of(given: Given, kernels: Mapping[str, str]) -> dict[str, int]:
    """Steps of which FP8 with delayed scaling keeps the largest magnitudes."""
    steps = given.number("fp8-amax-history-len") if kernels.get("fp8") == "delayed" else None
    return {} if steps is None else {"fp8_amax_history_len": steps}


def _experts(given: Given) -> dict[str, str]:
    dispatchers = {"allgather": "allgather", "alltoall": "alltoall", "alltoall_seq": "alltoall"}
    why = ": buffers of DeepEP are not counted yet"
    precisions = {"bf16": "bf16", "fp32": "fp32"}
    return {
        "dispatch": dispatchers[given.word("moe-token-dispatcher-type", "allgather", dispatchers, why)],
        "permute": "fused" if given.is_on("moe-permute-fusion") else "unfused",
        "router": "fused" if given.is_on("moe-router-fusion") else "unfused",
        "router_precision": precisions[
            given.word("moe-router-dtype", "bf16", precisions, ": others are not counted yet")
        ],
        "balance": _balance(given),
    }


def _balance(given: Given) -> str:
    kinds = given.all("moe-router-load-balancing-type", ("aux_loss",))
    weights = given.all("moe-aux-loss-coeff", ("0",))
    for kind in kinds:
        if kind not in (*_AUXILIARY, "none"):
            raise given.error("moe-router-load-balancing-type",
                              f"must be some of {', '.join(_AUXILIARY)}, none: others are not counted yet")
    try:
        weighed = any(float(weight) for weight in weights)
    except ValueError:
        raise given.error("moe-aux-loss-coeff", "must be a number") from None
    loss, bias = weighed and any(kind in _AUXILIARY for kind in kinds), given.is_on("moe-router-enable-expert-bias")
    return {(False, False): "none", (True, False): "loss", (False, True): "bias", (True, True): "both"}[loss, bias]


def capacity_of(given: Given, model: Model) -> dict[str, int]:
    """Tokens that every expert is padded to, in percent of the average."""
    pads = given.is_on("moe-pad-expert-input-to-capacity")
    if given.word("moe-expert-capacity-factor", "none") in ("none", "null") or not model.num_experts:
        return {}
    factor = _percent(given, "moe-expert-capacity-factor", 0.0)
    if not pads and factor != 100:
        rule = "must be 1 without --moe-pad-expert-input-to-capacity: how many tokens stay below is not known"
        raise given.error("moe-expert-capacity-factor", rule)
    return {"expert_capacity_percent": factor}


def _percent(given: Given, name: str, default: float) -> int:
    percent = given.real(name, default) * 100
    if abs(percent - round(percent)) > 1e-9 * max(1.0, abs(percent)):
        raise given.error(name, "must be a whole number of percent")
    return round(percent)
