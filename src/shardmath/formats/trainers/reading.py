"""Settings of Hugging Face's trainers as a run: the vocabulary of all formats that end in ``transformers.Trainer``.

Names as in ``TrainingArguments`` (transformers 5), TRL's ``ModelConfig`` and ``SFTConfig``, and DeepSpeed's
configuration under ``deepspeed.``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from shardmath.errors import InputError
from shardmath.formats.options import Options
from shardmath.formats.trainers.adapters import adapters_of, precision_of
from shardmath.formats.trainers.sharding import autocast_of, follows_autocast, is_fsdp1, sharding_of
from shardmath.models.model import Model, load_model, stands_for

DTYPES = ("auto", "bfloat16", "float16", "float32")
#: Words of ``attn_implementation``; FlashAttention keeps what PyTorch's attention does.
_ATTENTION = {
    "sdpa": "sdpa", "flash_attention_2": "sdpa", "flash_attention_3": "sdpa", "auto": "sdpa", "eager": "eager",
    "kernels-community/flash-attn2": "sdpa", "kernels-community/flash-attn": "sdpa",
    "kernels-community/flash-attn3": "sdpa", "kernels-community/vllm-flash-attn3": "sdpa",
}
#: Kernels of Liger. Its norms and activations keep what fused ones do: their input and one number a row, gate and up.
LIGER = {"liger_loss": ("loss", "liger"), "liger_glu": ("swiglu", "fused"), "liger_norm": ("norm", "fused")}
#: Losses that settings switch on one by one; those of pairs have logits of their own, whatever head is asked for.
LOSSES = {"rewards": "reward", "scores": "scores",
          "trl_logits": "trl_dpo", "kto_logits": "trl_kto", "orpo_logits": "trl_orpo", "cpo_logits": "trl_orpo",
          "swift_kto_logits": "swift_kto", "swift_logits": "swift_dpo",
          "log_probs": "log_probs", "log_probs_kto": "log_probs_kto", "log_probs_sft": "log_probs_sft",
          "cut_loss": "cut", "trl_loss": "trl"}
#: Losses on logits as a model returns them, and the same on 16-bit ones.
_NARROW = {"trl_dpo": "trl_dpo_16", "trl_kto": "trl_kto_16", "trl_orpo": "trl_orpo_16", "trl_simpo": "trl_simpo_16",
           "swift_dpo": "swift_dpo_16", "swift_kto": "swift_kto_16"}
_FUSED, _TORCHAO, _8BIT = {"optimizer": "adamw"}, {"optimizer": "adamw_8bit_torchao"}, {"optimizer": "adamw_8bit"}
#: The optimizer of bitsandbytes where no trainer asks it for wider moments of embeddings.
_8BIT_ALONE = {"optimizer": "adamw_8bit_alone"}
#: PyTorch's choice where nobody asks for a fused kernel.
_LISTED = {"optimizer": "adamw", "optimizer_kernel": "foreach"}
#: Words of ``optim``, and the optimizers that they are here.
OPTIMIZERS: dict[str, dict[str, str]] = {
    "adamw_torch": _LISTED, "adamw_torch_fused": _FUSED, "adamw_hf": _FUSED, "adamw": _FUSED, "adam": _FUSED,
    "paged_adamw_32bit": _FUSED, "paged_adamw": _FUSED, "adamw_apex_fused": _FUSED,
    "adamw_torch_8bit": _TORCHAO, "adamw_8bit": _8BIT, "adamw_bnb_8bit": _8BIT, "paged_adamw_8bit": _8BIT,
    "adafactor": {"optimizer": "adafactor"}, "muon": {"optimizer": "muon"},
    "sgd": {"optimizer": "sgd"},
}


#: Said of a file whose documents have no length.
_PACKED = ("packed documents are counted as full sequences: give the mean length of one with"
           " --set document_length=TOKENS, for attention within each")
#: Said of documents that a mask of all pairs of tokens keeps apart.
_MASKED = ("without flash-attn keeps documents apart by a 16-bit mask of all pairs of tokens, beside which keys and"
           " values are repeated for all heads: neither is counted yet, and real memory is higher")
#: Said of inputs of recomputed layers that are kept on the host.
_ON_HOST = "keeps inputs of recomputed layers on the host: they are counted on the GPU, whose real memory is lower"
#: Said of logits that are made of tokens with labels alone, whose number no setting has.
_LABELLED = ("makes logits of labels alone, and no setting says how many tokens have one: logits of all tokens are"
             " counted, which are more than real ones where prompts are masked")
#: Said of files that do not name their kind of training.
_SUPERVISED = "counted as `llamafactory-cli sft` trains: no key of the file tells it from dpo and rm"
_ONE_SEQUENCE = ("packed documents are one sequence, of whose logits no copy is made: 4 bytes of each are counted that"
                 " real ones do not need")
#: Losses of a model's own, of ms-swift's DPO and of its KTO, which read logits of labels; others read all.
_OF_LABELS = ("", "swift_dpo", "swift_kto")


def described(options: Options, name: str, num_gpus: int | None) -> tuple[Model, dict[str, Any], int]:
    """Return the model, the arguments of ``explain`` and the sequences of a replica and step. Raises InputError."""
    if options.is_on("predicts") and not options.is_on("trains"):
        raise options.error("predicts", "must not be given without do_train: this file does not train", "false")
    model = model_of(options)
    micro = options.needed("per_device_train_batch_size") * (2 if options.is_on("pairs") else 1)
    passes = _passes(options)
    kernels: dict[str, str] = dict(_optimizer(options)) | _attention(options) | _liger(options) | _losses(options)
    arguments: dict[str, Any] = {
        "implementation": "huggingface", "seq_length": _length(options), "micro_batch_size": micro,
        "recompute": "full" if options.is_on("gradient_checkpointing") else "none", **_gpus(options, num_gpus),
    }
    if length := options.size("document_length", 0):
        arguments |= _flattened(options, length, arguments["seq_length"] * micro)
        micro = 1
    elif _packs(options):
        options.warnings.append(_PACKED)
    if options.is_on("block_documents") and not _packs(options):
        options.warnings.append(f"{options.shown('block_documents')} {_MASKED}")
    if options.is_on("host_checkpoints") and options.is_on("gradient_checkpointing"):
        options.warnings.append(f"{options.shown('host_checkpoints')} {_ON_HOST}")
    if options.is_on("logits_of_labels") and kernels.get("loss", "") in _OF_LABELS:
        options.warnings.append(f"{options.shown('logits_of_labels')} {_LABELLED}")
    if options.is_on("log_probs_sft"):
        options.warnings.append(_SUPERVISED)
        if _packs(options) and micro > 1:
            options.warnings.append(_ONE_SEQUENCE)
    if options.is_on("scores"):
        options.warnings += _scores(options, model.hidden_size)
    adapted = adapters_of(options)
    if options.is_on("host_activations"):
        _refuse_on_host(options, bool(adapted))
        options.warnings.append(f"{options.shown('host_activations')} {_ON_HOST}")
    if options.is_on("reference") and not (adapted or _has_reference(options)):
        kernels["reference"] = "copy"
    sharded = sharding_of(options, model, arguments.get("num_gpus"), weights_of(options), bool(adapted))
    for part in (adapted, sharded):
        kernels |= part.pop("kernels", {})
        arguments |= part
    half = bool(autocast_of(options))
    kernels |= precision_of(options, kernels, half) | _returned_logits(options, kernels, half)
    return model, {**arguments, "kernels": kernels}, micro * passes


def _scores(options: Options, hidden_size: int) -> tuple[str, ...]:
    """Return what is said of a classifier's labels, of which one is counted. Raises InputError for none."""
    labels = options.needed("num_labels")
    if labels < 1:
        raise options.error("num_labels", "must be 1 or more", "1")
    return (f"{options.shown('num_labels')} = {labels}: the head is counted with one output, which has"
            f" {hidden_size * (labels - 1):,} weights less",) if labels > 1 else ()


def _refuse_on_host(options: Options, is_adapted: bool) -> None:
    """Raise InputError for saved tensors on the host that are no inputs of recomputed layers."""
    if not options.is_on("gradient_checkpointing"):
        raise options.error("host_activations", "must not be given without gradient_checkpointing", "false")
    if is_adapted:
        raise options.error("host_activations", "must be false with adapters: beside them it takes the place of"
                            " recompute, which is not counted yet", "false")


def _passes(options: Options) -> int:
    """Return the micro-batches of a step, said as that or by the sequences of a rank. Raises InputError for both."""
    if _is_auto(options, "gradient_accumulation_steps"):
        return 1
    passes = options.number("gradient_accumulation_steps")
    sequences = options.number("replica_batch_size")
    if sequences is None:
        return 1 if passes is None else passes
    if passes:
        raise options.error("replica_batch_size", "must not be given with gradient_accumulation_steps")
    micro = options.needed("per_device_train_batch_size")
    if sequences < micro:
        raise options.error("replica_batch_size", f"must be {micro} or more: sequences of a micro-batch", str(micro))
    return sequences // micro


def model_of(options: Options) -> Model:
    """Return the named model of the catalogue, a folder or a ``config.json``. Raises InputError for other names."""
    key = "model_name_or_path"
    named = options.word(key)
    if not named:
        raise options.error(key, f"must be given: give it with --set {options.shown(key)}=NAME")
    beside = os.path.join(os.path.dirname(options.source), named)
    for path in (named, beside):
        if os.path.isfile(config := os.path.join(path, "config.json")):
            return Model.from_config(config)
        if path.endswith(".json") and os.path.isfile(path):
            return Model.from_config(path)
    try:
        model = load_model(named)
    except InputError as error:
        rule = f"{error.rule}; give --set {options.shown(key)}=PATH of its config.json"
        raise InputError(options.shown(key), named, rule, error.nearest) from None
    if stands_for(model, named):
        options.warnings.append(f"{named} is taken to have the shape of {model.name}")
    if model.note:
        options.warnings.append(f"{model.name}: {model.note}")
    return model


def weights_of(options: Options) -> str:
    """Return the type of loaded weights, ``float32`` or ``bfloat16``; 16 bits of either kind are the latter."""
    if options.is_on("pure_bf16"):
        return "bfloat16"
    if follows_autocast(options):
        return "bfloat16" if autocast_of(options) or options.is_on("load_in_8bit") else "float32"
    dtype = options.word("dtype", "auto", DTYPES, ": others are not counted yet")
    if dtype == "auto":
        if "dtype" not in options.words:
            options.warnings.append("weights are taken to be loaded in 16 bits, as Transformers 5 does; releases before"
                                    " it load fp32 unless dtype is given")
        return "bfloat16"
    return "float32" if dtype == "float32" else "bfloat16"


def _length(options: Options) -> int:
    """Return tokens of a sequence, which are counted as full."""
    length = options.number("max_length")
    if length is None:
        key = options.shown("max_length")
        raise options.error("max_length", f"must be given: the longest sequence, with --set {key}=TOKENS")
    return length


def _packs(options: Options) -> bool:
    """Say whether a micro-batch is one sequence of packed documents. Raises InputError for blocks of several ones."""
    if options.is_on("block_documents") and "flash" in options.word("attn_implementation", "sdpa"):
        if options.needed("per_device_train_batch_size") != 1:
            raise options.error("per_device_train_batch_size",
                                f"must be 1 with {options.shown('block_documents')} and flash-attn")
        return True
    return options.is_on("packing") or options.is_on("padding_free")


def _flattened(options: Options, document: int, tokens: int) -> dict[str, int]:
    """Return a micro-batch as one sequence of packed documents. Raises InputError for files that do not pack."""
    if not _packs(options):
        raise options.error("document_length", "must be given with packing or padding_free alone, of which blocks kept"
                            " apart by a mask are none")
    if "global_batch_size" in options:
        raise options.error("global_batch_size", "must not be given with document_length: a step has as many sequences"
                            " of packed documents as ranks and passes")
    return {"seq_length": tokens, "micro_batch_size": 1, "document_length": document}


def _gpus(options: Options, launched: int | None) -> dict[str, int]:
    gpus = launched if launched is not None else options.number("num_gpus")
    return {} if gpus is None else {"num_gpus": gpus}


def _optimizer(options: Options) -> dict[str, str]:
    kind = options.word("optim", "adamw_torch_fused")
    if kind.startswith("paged_"):
        options.warnings.append(f"{options.shown('optim')} = {kind}: its states are counted as on the GPU, where they"
                                " stay unless its memory is full")
    options.word("optim", "adamw_torch_fused", OPTIMIZERS, ": others are not counted yet")
    if options.is_on("optimizer_alone") and OPTIMIZERS[kind] is _8BIT:
        return _8BIT_ALONE
    return OPTIMIZERS[kind]


def _attention(options: Options) -> dict[str, str]:
    kind = options.word("attn_implementation", "sdpa", _ATTENTION, ": others are not counted yet")
    return {} if _ATTENTION[kind] == "sdpa" else {"attention": _ATTENTION[kind]}


def _liger(options: Options) -> dict[str, str]:
    """Return kernels of Liger: all of them, or those that are named one by one."""
    whole = options.is_on("use_liger_kernel")
    return {axis: option for name, (axis, option) in LIGER.items() if options.is_on(name) or whole}


def _losses(options: Options) -> dict[str, str]:
    chosen = [loss for name, loss in LOSSES.items() if options.is_on(name)]
    if options.is_on("cpo_logits") and options.word("cpo_alpha", "1") in ("0", "0.0"):
        return {"loss": "trl_simpo"}  # no cross entropy of the better sequences
    return {"loss": chosen[0]} if chosen else {}


def _returned_logits(options: Options, kernels: Mapping[str, str], half: bool) -> dict[str, str]:
    """Return the loss on 16-bit logits where a model returns these: ``half`` without Accelerate's autocast to fp32.

    ZeRO and FSDP2 have none of it. FSDP2 gathers weights in 16 bits, however wide its shards are.
    """
    loss, sharding = kernels.get("loss", ""), kernels.get("data_parallel", "")
    gathered = half and sharding == "fsdp" and not is_fsdp1(options)
    cast = half and sharding != "deepspeed" and not gathered
    wide = weights_of(options) == "float32" and not gathered
    if loss not in _NARROW or cast or wide or kernels.get("precision") == "fp32":
        return {}
    return {"loss": _NARROW[loss]}


def _has_reference(options: Options) -> bool:
    """Tell whether preference training does without a model as reference: computed before, or a loss without one."""
    return options.is_on("precompute_ref_log_probs") or options.is_on("without_reference")


def _is_auto(options: Options, name: str) -> bool:
    return name in options and options.words[name] == ("auto",)
