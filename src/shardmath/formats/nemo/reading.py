"""YAML of NeMo (``model``, ``trainer``) and Megatron-Bridge (``model``, ``train``, ``ddp``), as flags of Megatron-LM.

Both name most settings as Megatron-Core's configuration classes do; the tables below have the others.
``shardmath.formats.megatron.reading`` alone knows what the flags mean.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from shardmath.errors import ABSENT, InputError
from shardmath.formats.bridge.wheel import in_force
from shardmath.formats.megatron.reading import run_of
from shardmath.formats.nemo.adapters import adapters_of, merged
from shardmath.formats.options import Options
from shardmath.formats.run import Run

#: Keys that a flag of another name stands for.
FLAG_OF = {
    "model.encoder_seq_length": "seq-length", "model.num_moe_experts": "num-experts",
    "model.moe_router_topk": "moe-router-topk", "model.normalization": "normalization",
    "model.tokenizer.type": "tokenizer-model", "model.tokenizer.model": "tokenizer-model",
    "model.num_layers_in_first_pipeline_stage": "decoder-first-pipeline-num-layers",
    "model.num_layers_in_last_pipeline_stage": "decoder-last-pipeline-num-layers",
    "model.virtual_pipeline_model_parallel_size": "num-virtual-stages-per-pipeline-rank",
    "model.microbatch_group_size_per_vp_stage": "microbatch-group-size-per-virtual-pipeline-stage",
    "model.activations_checkpoint_granularity": "recompute-granularity",
    "model.activations_checkpoint_method": "recompute-method",
    "model.activations_checkpoint_num_layers": "recompute-num-layers",
    "model.rotary_percentage": "rotary-percent", "model.fp8": "fp8-format", "model.fp8_params": "fp8-param-gather",
    "model.fp8_param": "fp8-param-gather", "mixed_precision.fp8": "fp8-format",
    "mixed_precision.fp8_param": "fp8-param-gather", "mixed_precision.fp8_param_gather": "fp8-param-gather",
    "mixed_precision.fp8_recipe": "fp8-recipe", "mixed_precision.bf16": "bf16", "mixed_precision.fp16": "fp16",
    "mixed_precision.fp8_amax_history_len": "fp8-amax-history-len", "mixed_precision.fp4": "fp4-format",
    "mixed_precision.fp4_recipe": "fp4-recipe", "model.fp4": "fp4-format", "model.fp4_param": "fp4-param-gather",
    "mixed_precision.first_last_layers_bf16": "first-last-layers-bf16",
    "mixed_precision.num_layers_at_start_in_bf16": "num-layers-at-start-in-bf16",
    "mixed_precision.num_layers_at_end_in_bf16": "num-layers-at-end-in-bf16",
    "mixed_precision.reuse_grad_buf_for_mxfp8_param_ag": "reuse-grad-buf-for-mxfp8-param-ag",
    "comm_overlap.tp_comm_overlap": "tp-comm-overlap",
    "comm_overlap.overlap_moe_expert_parallel_comm": "overlap-moe-expert-parallel-comm",
    "ddp.grad_reduce_in_fp32": "accumulate-allreduce-grads-in-fp32",
    "mixed_precision.grad_reduce_in_fp32": "accumulate-allreduce-grads-in-fp32",
    "dataset.sequence_length": "seq-length", "dataset.seq_length": "seq-length", "model.data.seq_length": "seq-length",
    "model.ub_tp_comm_overlap": "tp-comm-overlap", "optimizer.optimizer": "optimizer",
    "optimizer.optimizer_cpu_offload": "optimizer-cpu-offload",
    "model.cp_comm_type": "cp-comm-type", "model.gated_linear_unit": "swiglu",
    "model.rope_scaling": "use-rope-scaling", "model.scale_positional_embedding": "use-rope-scaling",
    "model.seq_len_interpolation_factor": "rotary-seq-len-interpolation-factor",
    "model.layernorm_epsilon": "norm-epsilon",
}
#: Keys whose flag says the opposite.
OPPOSITE = {
    "model.bias": "disable-bias-linear", "model.add_bias_linear": "disable-bias-linear",
    "model.share_embeddings_and_output_weights": "untie-embeddings-and-output-weights",
    "model.gradient_accumulation_fusion": "no-gradient-accumulation-fusion",
    "model.apply_rope_fusion": "no-rope-fusion", "model.bias_activation_fusion": "no-bias-swiglu-fusion",
    "model.masked_softmax_fusion": "no-masked-softmax-fusion",
    "dataset.create_attention_mask": "no-create-attention-mask-in-dataloader",
}
#: Words of NeMo, and those of Megatron-LM.
_NORMS = {"rmsnorm": "RMSNorm", "layernorm": "LayerNorm", "layernorm1p": "LayerNorm"}
_ACTIVATIONS = {
    "swiglu": "swiglu", "fast-swiglu": "swiglu", "gelu": "", "fast-gelu": "", "squared-relu": "squared-relu",
}
_BRIDGE_ACTIVATIONS = {"silu": "swiglu", "gelu": "", "squared_relu": "squared-relu"}
_PRECISIONS = {"bf16": "bf16", "bf16-mixed": "bf16", "bf16_mixed": "bf16", "16": "fp16", "16-mixed": "fp16",
               "fp16_mixed": "fp16"}
_OPTIMIZERS = {
    "mcore_distributed_optim": ("adam", True), "distributed_fused_adam": ("adam", True), "fused_adam": ("adam", False),
    "adam": ("adam", False), "adamw": ("adam", False),
}
#: Types of PyTorch, as objects that a file asks for, and the words of flags.
TORCH_TYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "uint8": "fp8"}
#: Sections whose keys may change memory; all others say how a job is started, logged and saved.
_SECTIONS = ("model.", "trainer.", "train.", "ddp.", "optimizer.", "mixed_precision", "dataset.", "tokenizer.")
_WITHOUT_EFFECT = re.compile(
    r"model\.(data|optim|nsys_profile|tokenizer|restore|resume_from|exp_manager|ub_tp_comm_overlap_cfg)\b|trainer\."
    r"|dataset\.|tokenizer\.|train\.|optimizer\.(lr|min_lr|weight_decay|adam_|clip_grad|betas|sgd_|log_|barrier|timers|"
    r"overlap_param|loss_scale|initial_loss|min_loss|hysteresis|decoupled)"
    r"|ddp\.(overlap|average|check_for|bucket|align|data_parallel_sharding|num_distributed_optimizer_instances$)"
    r"|model\.(mcore_gpt|name|apex_|native_amp|hysteresis|grad_|gradient_as|use_cpu|onnx|sync_batch|pre_process|"
    r"post_process|persist_|layernorm_eps|init_method|use_scaled|do_layer|transformer_engine|transformer_block|headscale|"
    r"normalize_attention|attention_type|scale_positional|openai|fp8_margin|fp8_interval|fp8_amax_compute|fp8_e4m3|"
    r"fp8_hybrid|fp8_wgrad|use_flash|overlap_p2p|batch_p2p|gc_interval|seed|tp_comm_|bias_dropout|use_te_rng|"
    r"perform_init|async_tensor|pipeline_dtype|params_dtype|autocast|enable_autocast|deallocate|variable_seq|"
    r"rotary_base|seq_len_interp|rope_|scale_factor|layernorm_|softmax_|attention_softmax|inference_|flash_decode|"
    r"num_micro_batches_with|activations_checkpoint_layers_per|hf_model_id|generation_config|should_pad|timers|"
    r"finalize_|no_sync|barrier_with|test_mode|reduce_amax|tp_only_amax|cpu_offloading$|"
    r"cpu_offloading_(act|wei|dou|num)|batch_invariant|gather_|fp16_lm_cross_entropy|parallel_output|disable_param|memory_eff|megatron_amp_O2)"
)


def read(path: str, name: str, options: Options, unknown: tuple[str, ...] = ()) -> Run:
    """Return the run of the configuration that ``options`` have by dotted keys. Raises InputError that blames a key.

    Values of ``unknown`` keys or sections could be anything: they are refused where something follows from them.
    """
    words = _resolved(options.words)
    if not any(key.startswith("model.") for key in words):
        raise InputError("model", ABSENT, "must be a section of the file, with hidden_size and the like")
    nemo = any(key.startswith("trainer.") for key in words)
    stated, words = words, words if nemo else in_force(words)
    asked, keys = _flags(words, nemo)
    translated = Options(asked, shown=lambda flag: keys.get(flag, f"model.{flag.replace('-', '_')}"), source=path)
    translated.warnings += options.warnings
    if nemo:
        _of_nemo(translated, words)
    else:
        _of_bridge(translated, words)
    run = run_of(translated, name, num_gpus=_gpus(words), format="nemo")
    _refuse_unknown(unknown, translated)
    adapted, of_adapters = adapters_of(words)
    used = {*run.understood, *_READ_HERE, *of_adapters}
    rest = [key for key in stated if key not in used and key not in run.without_effect and key not in run.unknown]
    idle = [key for key in (*rest, *run.unknown) if not key.startswith(_SECTIONS) or _WITHOUT_EFFECT.match(key)
            or key.endswith("_target_")]
    return Run(
        "nemo", path, run.model, merged(run.arguments, adapted), tuple(key for key in stated if key in used),
        (*(key for key in run.without_effect if key in stated), *idle),
        tuple(key for key in run.unknown if key not in idle and key in stated), run.warnings,
        run.replica_batch,
    )


def _refuse_unknown(unknown: tuple[str, ...], options: Options) -> None:
    """Raise InputError for a setting without a known value of which the reader asked."""
    for key in unknown:
        flag = OPPOSITE.get(key, FLAG_OF.get(key, key.rpartition(".")[2].replace("_", "-")))
        if "." not in key or key in _READ_HERE or key.startswith("peft.") or flag in options.asked:
            raise InputError(key, "unknown", f"must be known without running the file: give it with --set {key}=VALUE")


#: Keys that are read in this file.
_READ_HERE = (
    "trainer.devices", "trainer.num_nodes", "trainer.precision", "model.precision", "model.activation",
    "model.activation_func", "model.optim.name", "model.optim.grad_sync_dtype", "mixed_precision",
    "model.megatron_amp_O2", "model.fp8_hybrid", "model.vocab_size",
)


def _flags(words: Mapping[str, tuple[str, ...]], nemo: bool) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """Return flags with their words, and the key that each comes from."""
    flags: dict[str, tuple[str, ...]] = {}
    keys: dict[str, str] = {}
    for key, stated in words.items():
        section, _, own = key.rpartition(".")
        value = stated
        if key in OPPOSITE:
            flag, value = OPPOSITE[key], ("false" if stated == ("true",) else "true",)
        elif key in FLAG_OF:
            flag = FLAG_OF[key]
        elif section in ("model", "train", "ddp", "optimizer", "tokenizer") and key not in _READ_HERE[:-1]:
            flag = own.replace("_", "-")
        else:
            continue
        if flag not in flags or (section == "model" and key not in FLAG_OF):
            flags[flag], keys[flag] = value, key
    return flags, keys


def _of_nemo(options: Options, words: Mapping[str, tuple[str, ...]]) -> None:
    """Put in what NeMo means by its own words and by what it leaves out."""
    flags = options.words
    _choose(options, words, "trainer.precision", _PRECISIONS, "32")
    if words.get("model.megatron_amp_O2") != ("true",):
        raise InputError("model.megatron_amp_O2", " ".join(words.get("model.megatron_amp_O2", ("absent",))),
                         "must be true: fp32 weights with autocast are not counted yet", "true")
    activation = _choose(options, words, "model.activation", _ACTIVATIONS, "gelu")
    if activation in ("fast-swiglu", "fast-gelu"):
        flags["no-bias-swiglu-fusion"] = ("false",)
    norm = " ".join(flags.get("normalization", ("layernorm",))).lower()
    if norm not in _NORMS:
        raise InputError("model.normalization", norm, f"must be one of {', '.join(_NORMS)}: others are not counted yet")
    flags["normalization"] = (_NORMS[norm],)
    optimizer = " ".join(words.get("model.optim.name", ("fused_adam",)))
    if optimizer not in _OPTIMIZERS:
        rule = f"must be one of {', '.join(_OPTIMIZERS)}: others are not counted yet"
        raise InputError("model.optim.name", optimizer, rule)
    if _OPTIMIZERS[optimizer][1]:
        flags["use-distributed-optimizer"] = ("true",)
    if optimizer == "distributed_fused_adam":
        options.warnings.append("model.optim.name: Apex's distributed Adam is counted as Megatron's distributed one")
    if words.get("model.optim.grad_sync_dtype", ("",))[0] in ("bf16", "bfloat16"):
        flags["grad-reduce-in-bf16"] = ()
    flags["accumulate-allreduce-grads-in-fp32"] = ("true",) if "grad-reduce-in-bf16" not in flags else ("false",)
    flags.setdefault("no-gradient-accumulation-fusion", ())
    flags.setdefault("no-rope-fusion", ())
    if flags.get("tokenizer-model") and flags["tokenizer-model"][0].endswith("Tokenizer"):
        flags["tokenizer-type"] = flags.pop("tokenizer-model")
    _of_both(options, words)


def _of_bridge(options: Options, words: Mapping[str, tuple[str, ...]]) -> None:
    """Put in what Megatron-Bridge means by its own words and by what it leaves out."""
    flags = options.words
    if "bf16" not in flags and "fp16" not in flags:
        _choose(options, words, "mixed_precision", _PRECISIONS, "bf16_mixed")
    glu = flags.get("swiglu") == ("true",)
    activation = " ".join(words.get("model.activation_func", ("silu" if glu else "gelu",)))
    if activation.rsplit(".", 1)[-1] == "quick_gelu" and glu:
        del flags["swiglu"]
        flags["quick-geglu"] = ()
    elif activation not in _BRIDGE_ACTIVATIONS or (activation == "silu") != glu:
        raise InputError("model.activation_func", activation,
                         "must be silu with gated_linear_unit, or gelu or squared_relu without")
    if activation == "squared_relu":
        flags["squared-relu"] = ()
    if "grad-reduce-in-bf16" not in flags and flags.get("accumulate-allreduce-grads-in-fp32") == ("false",):
        flags["grad-reduce-in-bf16"] = ()
    if words.get("model.cpu_offloading") != ("true",):
        flags.pop("cpu-offloading-num-layers", None)  # their number has no effect by itself
    flags.setdefault("no-rope-fusion", ())
    flags.setdefault("no-bias-swiglu-fusion", ())
    flags.setdefault("cross-entropy-loss-fusion", ())
    flags.setdefault("fp8-recipe", ("tensorwise",))
    flags.setdefault("rope-scaling-factor", ("1",))
    if "model.vocab_size" in words:
        flags.pop("tokenizer-type", None)  # the size is that of the model, whatever the tokenizer has
    _of_both(options, words)


def _of_both(options: Options, words: Mapping[str, tuple[str, ...]]) -> None:
    flags = options.words
    if "num-query-groups" in flags:
        flags["group-query-attention"] = ()
    if flags.get("fp8-format") == ("true",):
        flags["fp8-format"] = ("hybrid",)
    elif flags.get("fp8-format") == ("false",):
        flags["fp8-format"] = ("none",)
    if flags.get("attention-backend", ("",))[0] not in ("", "auto", "flash", "fused", "unfused"):
        flags["attention-backend"] = ("auto",)
    flags.setdefault("no-create-attention-mask-in-dataloader", ())
    flags.setdefault("rotary-scaling-factor", ("40",))
    flags.setdefault("kv-lora-rank", ("512",))
    for flag in ("moe-router-dtype", "exp-avg-dtype", "exp-avg-sq-dtype", "main-params-dtype", "main-grads-dtype"):
        if flag in flags:
            flags[flag] = tuple(TORCH_TYPES.get(word, word) for word in flags[flag])
    flags.setdefault("max-position-embeddings", flags.get("seq-length", ()) or ("1",))
    if "virtual_pipeline_model_parallel_size" in "".join(words) and flags.get("pipeline-model-parallel-layout"):
        flags.pop("num-virtual-stages-per-pipeline-rank", None)


def _choose(
    options: Options, words: Mapping[str, tuple[str, ...]], key: str, known: Mapping[str, str], default: str,
) -> str:
    """Switch on the flag that the word of a key stands for; the word."""
    word = " ".join(words.get(key, (default,)))
    if word not in known:
        raise InputError(key, word, f"must be one of {', '.join(known)}: others are not counted yet")
    if known[word]:
        options.words[known[word]] = ()
    return word


def _gpus(words: Mapping[str, tuple[str, ...]]) -> int | None:
    sizes = ["".join(words.get(f"trainer.{name}", ())) for name in ("devices", "num_nodes")]
    if not all(size.isascii() and size.isdecimal() and len(size) < 8 for size in sizes):
        return None
    return int(sizes[0]) * int(sizes[1]) or None


_REFERENCE = re.compile(r"\$\{([A-Za-z0-9_.]+)\}")


def _resolved(words: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """Return the words with references to other keys, such as ``${.seq_length}``, put in once."""
    resolved = dict(words)
    for key, value in words.items():
        reference = _REFERENCE.fullmatch(value[0]) if len(value) == 1 else None
        if reference is not None:
            target = reference[1]
            whole = f"{key.rpartition('.')[0]}{target}" if target.startswith(".") else target
            resolved[key] = words.get(whole, words.get(whole.partition(".")[2], value))
    return resolved
