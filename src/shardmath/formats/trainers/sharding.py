"""Precision and sharding that settings of Hugging Face's trainers ask for: one GPU, DDP, FSDP or DeepSpeed's ZeRO."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardmath.errors import InputError
from shardmath.formats.options import Options
from shardmath.models.model import Model

#: Words of FSDP's strategies, by their old and their new names, and what is freed after the forward pass.
STRATEGIES = {
    "full_shard": "always", "1": "always", "true": "always", "shard_grad_op": "never", "2": "never", "false": "never",
    "hybrid_shard": "always", "4": "always", "hybrid_shard_zero2": "never", "5": "never", "no_shard": "", "3": "",
}
_HYBRID = ("hybrid_shard", "hybrid_shard_zero2", "4", "5")
#: Attention beside which Axolotl leaves the ends of a model in fp32.
_FP32_ENDS = ("sdpa", "eager")
_ENDS_IN_16 = ("embedding, head and norms are fp32 without flash-attn and cut_cross_entropy: they are counted in 16"
               " bits, with gradients and AdamW's states 8 bytes less for each of their parameters")
_EMBEDDING_APART = ("the embedding is counted as a part of the model's own unit, which is gathered for the whole pass:"
                    " it is one of its own, gathered before the first layer alone")
#: Warning of training in fp16.
FP16 = "fp16 is counted as bf16, which is as wide: a scaler of the loss keeps three numbers more"
_ZERO = "deepspeed.zero_optimization."
#: Kinds of tensors that DeepSpeed keeps on the host, and their settings.
OFFLOADED = {"optimizer": "offload_optimizer", "parameters": "offload_param"}
#: Sizes of a mesh of GPUs: copies of the shards (HSDP), and GPUs that share out one copy.
_REPLICAS, _SHARDS = "parallelism_config.dp_replicate_size", "parallelism_config.dp_shard_size"
#: Sizes of DeepSpeed, and what they are here; with ``auto`` Transformers puts in what follows from the hidden size.
SIZES = {
    "reduce_bucket_size": "reduce_bucket_size", "stage3_prefetch_bucket_size": "prefetch_bucket_size",
    "stage3_param_persistence_threshold": "param_persistence_threshold",
    "stage3_max_live_parameters": "max_live_parameters", "stage3_max_reuse_distance": "max_reuse_distance",
    "sub_group_size": "sub_group_size",
}
#: Sizes below which DeepSpeed does the same: a subgroup has one parameter at least.
_SMALLEST = {"sub_group_size": 1}


def sharding_of(
    options: Options, model: Model, num_gpus: int | None, weights: str, adapted: bool,
) -> dict[str, Any]:
    """Return arguments of ``explain`` for precision and sharding; ``weights`` is the dtype that they are loaded in.

    Raises InputError for what is not counted.
    """
    half = autocast_of(options)
    if f"{_ZERO}stage" in options:
        return _deepspeed(options, model, half)
    if half == "fp16":
        options.warnings.append(FP16)
    if options.is_on("fsdp"):
        if options.is_on("fsdp_embedding_apart") and not model.tied_embeddings:
            options.warnings.append(_EMBEDDING_APART)
        return _fsdp(options, num_gpus, half, weights, adapted) | _mesh(options, num_gpus)
    if options.size(_SHARDS, 1) > 1:
        raise options.error(_SHARDS, "must be 1 without FSDP, which shards over a mesh", "1")
    return {"kernels": {"precision": _unsharded(options, half, weights, adapted)}}


def autocast_of(options: Options) -> str:
    """Return the 16-bit type of a trainer's autocast, empty without one; ``auto`` is what the GPU can do.

    Where weights follow the autocast, ``bf16`` that is asked for wins over ``fp16``. A program without an autocast has
    that of its sharding: FSDP2's, or DeepSpeed's where its file leaves it open.
    """
    if "fsdp_in_bf16" in options:
        if options.is_on("fsdp"):
            return "bf16" if options.is_on("fsdp_in_bf16") else ""
        is_open = options.words.get("deepspeed.bf16.enabled", ("auto",)) == ("auto",)
        return "bf16" if f"{_ZERO}stage" in options and is_open else ""
    automatic = "bf16" in options and options.words["bf16"] == ("auto",)
    bf16 = not automatic and options.is_on("bf16")
    if options.is_on("fp16") and not (bf16 and follows_autocast(options)):
        return "fp16"
    return "bf16" if automatic or bf16 or options.is_on("bfloat16") else ""


def follows_autocast(options: Options) -> bool:
    """Tell whether weights are loaded in the type of the autocast, as Axolotl does."""
    return options.is_on("weights_of_autocast")


def _unsharded(options: Options, half: str, weights: str, adapted: bool) -> str:
    if weights == "bfloat16":
        if half == "fp16" and not adapted:
            raise _unscalable(options)
        if not adapted and _has_fp32_ends(options):
            options.warnings.append(_ENDS_IN_16)
        return "bf16"
    if not half:
        return "fp32"
    quantised = options.is_on("load_in_4bit") or options.is_on("load_in_8bit")
    return "bf16" if adapted and quantised else "autocast"


def _has_fp32_ends(options: Options) -> bool:
    """Tell whether a program makes fp32 of embedding, head and norms of 16-bit weights, as Axolotl does."""
    is_plain = options.word("attn_implementation", "sdpa") in _FP32_ENDS
    return options.is_on("fp32_ends") and is_plain and not options.is_on("cut_loss")


def _unscalable(options: Options) -> InputError:
    """Return the error of 16-bit weights that are trained under fp16: its scaler takes no fp16 gradients."""
    if follows_autocast(options):
        rule = ("must be false, or with adapters: it loads fp16 weights, at whose gradients the scaler stops"
                " (Attempting to unscale FP16 gradients)")
    else:
        rule = "must be false, or dtype = float32: weights of 16 bits under fp16 are not counted yet"
    return options.error("fp16", rule, "false")


def _fsdp(options: Options, num_gpus: int | None, half: str, weights: str, adapted: bool) -> dict[str, Any]:
    """FSDP as Accelerate starts it: weights that are trained are fp32 shards, gathered and reduced in bf16.

    With ``fsdp2_as_loaded`` FSDP2's shards have the type of the loaded weights: only FSDP1 makes them fp32. With
    ``fsdp2_widens_frozen`` weights beside adapters are fp32 shards too, but for those in 4 bits.
    """
    strategy = options.word("fsdp_config.reshard_after_forward", "full_shard").lower()
    if strategy not in STRATEGIES:
        rule = f"must be one of {', '.join(STRATEGIES)}"
        raise options.error("fsdp_config.reshard_after_forward", rule)
    if is_fsdp1(options):
        options.warnings.append("FSDP1 is counted as FSDP2: its flat parameters are padded otherwise")
    if not STRATEGIES[strategy]:
        return {"kernels": {"precision": _unsharded(options, half, weights, adapted)}}
    if options.is_on("fsdp_config.activation_checkpointing"):
        recompute: dict[str, Any] = {"recompute": "full"}
    else:
        recompute = {}
    kernels = {"data_parallel": "fsdp", **_units(options, STRATEGIES[strategy])}
    if options.is_on("fsdp_config.offload_params"):
        if STRATEGIES[strategy] == "never":
            rule = "must be full_shard with offload_params: parameters that stay gathered are not counted yet with it"
            raise options.error("fsdp_config.reshard_after_forward", rule, "full_shard")
        kernels |= {"zero_offload": "fsdp", **_pinned(options, {"all": "fsdp_config.offload_pinned"})}
    if strategy in _HYBRID:
        nodes = options.number("num_nodes")
        if nodes is None or num_gpus is None:
            rule = "must be full_shard where the number of nodes is not known: give --set num_nodes=N"
            raise options.error("fsdp_config.reshard_after_forward", rule)
        recompute["data_parallel_replicas"] = nodes
    if adapted:
        widens = options.is_on("fsdp2_widens_frozen") and not (is_fsdp1(options) or options.is_on("load_in_4bit"))
    else:
        widens = is_fsdp1(options) or not options.is_on("fsdp2_as_loaded") or weights == "float32"
        if half == "fp16" and not widens:
            raise _unscalable(options)
    if half and widens:
        kernels["precision"] = "mixed"
        recompute |= {"gradients": "fp32"} if options.is_on("fsdp_sums_fp32") else {}
    elif weights == "bfloat16" or adapted:
        kernels["precision"] = "bf16"
    else:
        kernels["precision"] = "fp32"
    return {**recompute, "kernels": kernels}


def is_fsdp1(options: Options) -> bool:
    """Tell whether a run with FSDP has its first version."""
    return options.word("fsdp_config.fsdp_version", "2", ("1", "2")) == "1"


def _units(options: Options, freed: str) -> dict[str, str]:
    """Return what FSDP gathers at once, and what stays gathered, where it is not as Accelerate has it from 1.14 on."""
    if options.is_on("fsdp_root_unit") or is_fsdp1(options):
        return {"units": "root", "reshard": freed}
    return {"reshard": "never"} if freed == "never" else {}


def _mesh(options: Options, num_gpus: int | None) -> dict[str, int]:
    """Return copies of the shards and all GPUs of a mesh. Raises InputError for one that is not of all GPUs."""
    if _REPLICAS not in options and _SHARDS not in options:
        return {}
    if is_fsdp1(options):
        rule = "must be 2 with a mesh of GPUs: Accelerate has it there alone"
        raise options.error("fsdp_config.fsdp_version", rule, "2")
    replicas = options.size(_REPLICAS, 1)
    rest = num_gpus // replicas if num_gpus is not None and replicas > 0 else None
    shards = options.number(_SHARDS, rest)
    if replicas < 1:
        raise options.error(_REPLICAS, "must be 1 or more", "1")
    if shards is None:
        raise options.error(_SHARDS, "must be given where the number of GPUs is not: those that share out one copy")
    if shards < 2:
        raise options.error(_SHARDS, "must be 2 or more: FSDP shards over no other GPUs", "2")
    if num_gpus is not None and replicas * shards != num_gpus:
        rule = f"times {replicas} copies must be the {num_gpus} GPUs"
        raise options.error(_SHARDS, rule, str(max(num_gpus // replicas, 2)))
    return {"num_gpus": replicas * shards, **({"data_parallel_replicas": replicas} if replicas > 1 else {})}


def _deepspeed(options: Options, model: Model, half: str) -> dict[str, Any]:
    """ZeRO with 16-bit weights and gradients, and fp32 master weights and moments; or all of it in fp32."""
    stage = options.size(f"{_ZERO}stage", 0)
    offload = _offloaded(options, stage)
    bf16, fp16 = (_enabled(options, kind, half) for kind in ("bf16", "fp16"))
    if fp16 and not bf16:
        options.warnings.append(FP16)
    kernels = {"precision": "mixed" if bf16 or fp16 or half else "fp32"}
    sizes: dict[str, int] = {}
    square = model.hidden_size**2
    automatic = {"reduce_bucket_size": square, "stage3_prefetch_bucket_size": square * 9 // 10,
                 "stage3_param_persistence_threshold": 10 * model.hidden_size}
    for key, name in SIZES.items():
        if f"{_ZERO}{key}" in options and options.words[f"{_ZERO}{key}"] == ("auto",):
            sizes |= {name: automatic[key]} if key in automatic else {}
        elif (size := options.number(f"{_ZERO}{key}")) is not None:
            sizes[name] = max(size, _SMALLEST.get(name, 0))
    sizes["overlap_comm"] = int(options.is_on(f"{_ZERO}overlap_comm"))  # off in DeepSpeed's stages 1 and 2 by default
    if stage == 0:
        return {"zero_stage": 0, "kernels": {**kernels, "data_parallel": "deepspeed"}}
    kernels |= offload
    of_stage = {"overlap_comm", "reduce_bucket_size"} if stage < 3 else {*SIZES.values()} - {"reduce_bucket_size"}
    return {"zero_stage": stage, **{name: size for name, size in sizes.items() if name in of_stage},
            "kernels": {**kernels, "data_parallel": "deepspeed"}}


def _offloaded(options: Options, stage: int) -> dict[str, str]:
    """Return the choice of what rests on the host. Raises InputError for what is not counted."""
    rests = {}
    for part in OFFLOADED.values():
        device = options.word(f"{_ZERO}{part}.device", "none").lower()
        if device not in ("none", "false", "null", "cpu") or (device == "cpu" and stage != 3):
            rule = "must be none, or cpu in stage 3: other offload is not counted yet"
            raise options.error(f"{_ZERO}{part}.device", rule, "none")
        rests[part] = device == "cpu"
    if rests["offload_param"] and not rests["offload_optimizer"]:
        raise options.error(f"{_ZERO}offload_optimizer.device", "must be cpu where parameters are on the"
                            " host: these alone are not counted yet", "cpu")
    if not rests["offload_optimizer"]:
        return {}
    switches = {option: f"{_ZERO}{part}.pin_memory" for option, part in OFFLOADED.items() if rests[part]}
    return {"zero_offload": "parameters" if rests["offload_param"] else "optimizer", **_pinned(options, switches)}


def _pinned(options: Options, switches: Mapping[str, str]) -> dict[str, str]:
    """Return the choice of what is in pinned memory where that is not all: a switch that is absent is on."""
    on = [option for option, switch in switches.items() if switch not in options or options.is_on(switch)]
    return {} if len(on) == len(switches) else {"pinned": on[0] if on else "none"}


def _enabled(options: Options, kind: str, half: str) -> bool:
    """Tell whether DeepSpeed's own switch of a precision is on; ``auto`` is that of the trainer."""
    name = f"deepspeed.{kind}.enabled"
    if name in options and options.words[name] == ("auto",):
        return half == kind
    return options.is_on(name)
