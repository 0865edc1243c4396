"""Settings of torchtune (YAML) as a run, in the vocabulary of Hugging Face's trainers.

torchtune has modules of its own, sharded by FSDP2 in its distributed recipes; they are counted as those of
Transformers. Weights, gradients and states of the optimizer have the one ``dtype`` of the file.
"""

from __future__ import annotations

from typing import Any

from shardmath.formats.options import Options
from shardmath.formats.trainers import reading as trainer
from shardmath.models.model import Model

#: Names of builders without the adapters in front, and the models of the catalogue that they are.
BUILDERS = {
    "llama2_7b": "llama-2-7b", "llama2_13b": "llama-2-13b", "llama2_70b": "llama-2-70b",
    "llama3_8b": "llama-3-8b", "llama3_70b": "llama-3-70b", "llama3_1_8b": "llama-3.1-8b",
    "llama3_1_70b": "llama-3.1-70b", "llama3_1_405b": "llama-3.1-405b", "llama3_2_1b": "llama-3.2-1b",
    "llama3_2_3b": "llama-3.2-3b", "llama3_3_70b": "llama-3.1-70b", "mistral_7b": "mistral-7b-v0.1",
    "qwen2_5_0_5b": "qwen2.5-0.5b", "qwen2_5_1_5b": "qwen2.5-1.5b", "qwen2_5_3b": "qwen2.5-3b",
    "qwen2_5_7b": "qwen2.5-7b", "qwen2_5_14b": "qwen2.5-14b", "qwen2_5_32b": "qwen2.5-32b",
    "qwen2_5_72b": "qwen2.5-72b",
}
#: Classes of optimizers, and the words of ``optim`` that they are.
OPTIMIZERS = {
    "torch.optim.AdamW": "adamw_torch", "torch.optim.Adam": "adamw_torch", "torch.optim.SGD": "sgd",
    "bitsandbytes.optim.PagedAdamW": "paged_adamw_32bit", "bitsandbytes.optim.PagedAdamW8bit": "paged_adamw_8bit",
    "bitsandbytes.optim.AdamW8bit": "adamw_bnb_8bit", "torchao.prototype.low_bit_optim.AdamW8bit": "adamw_torch_8bit",
    "torchao.optim.AdamW8bit": "adamw_torch_8bit",
}
_CROSS_ENTROPY, _CHUNKED = "torch.nn.CrossEntropyLoss", "torchtune.modules.loss.CEWithChunkedOutputLoss"
#: Classes of losses, and what they are as they stand and under ``compile``. Without one it is a recipe's usual one.
LOSSES = {
    _CROSS_ENTROPY: ("torchtune", "torchtune_compiled"),
    _CHUNKED: ("torchtune_chunks", "torchtune_chunks_compiled"),
    "torchtune.modules.loss.LinearCrossEntropyLoss": ("torchtune_linear", "torchtune_linear_compiled"),
}
#: Optimizers of PyTorch with one kernel for all, where a file asks for it.
_FUSED = {"adamw_torch": "adamw_torch_fused"}
#: Settings of FSDP2, and what they are called by Accelerate.
_FSDP = {"fsdp_cpu_offload": "fsdp_config.offload_params",
         "fsdp_reshard_after_forward": "fsdp_config.reshard_after_forward"}
#: Projections with an adapter in torchtune's names and in PEFT's.
_PROJECTIONS = {"output_proj": "o_proj"}
_MLP = ("gate_proj", "up_proj", "down_proj")
#: Suffix of recipes on a single GPU; a file does not say which recipe reads it.
_ALONE = "_single_device"


def described(options: Options, name: str, num_gpus: int | None) -> tuple[Model, dict[str, Any], int]:
    """Return the model, the arguments of ``explain`` and the sequences of a replica and step. Raises InputError."""
    words: dict[str, tuple[str, ...]] = {"bf16": ("false",), "dtype": ("bfloat16",), "lora_dtype": ("bfloat16",),
                                         "optimizer_alone": ("true",)}
    builder = options.word("model._component_").rpartition(".")[2]
    plain = builder.removeprefix("q").removeprefix("lora_") if "lora_" in builder else builder
    plain = plain.removesuffix("_instruct").removesuffix("_base")
    if plain not in BUILDERS:
        raise options.error("model._component_", f"must build one of {', '.join(BUILDERS)}: others are not counted yet")
    words["model_name_or_path"] = (BUILDERS[plain],)
    options.word("dtype", "bf16", ("bf16",), ": training in fp32 is not counted yet")
    optimizer = OPTIMIZERS[options.word("optimizer._component_", "torch.optim.AdamW", OPTIMIZERS,
                                        ": others are not counted yet")]
    in_backward, is_fused = (options.is_on(key) for key in ("optimizer_in_bwd", "optimizer.fused"))
    words["optim"] = (_FUSED.get(optimizer, optimizer) if in_backward or is_fused else optimizer,)
    alone = _ALONE in options.source or (num_gpus or 0) == 1
    words |= {"fsdp": ("false" if alone else "true",), "fsdp_root_unit": ("true",)}
    if "lora_" in builder:
        attention = options.all("model.lora_attn_modules", ("q_proj", "v_proj"))
        mlp = _MLP if options.is_on("model.apply_lora_to_mlp") else ()
        words |= {"use_peft": ("true",), "lora_r": (str(options.size("model.lora_rank", 8)),),
                  "lora_target_modules": (*(_PROJECTIONS.get(part, part) for part in attention), *mlp)}
        if builder.startswith("qlora_") or options.is_on("model.quantize_base"):
            words["load_in_4bit"] = ("true",)
            options.warnings.append("NF4 of torchao is counted as that of bitsandbytes")
    options.warnings.append("torchtune's modules are counted as those of Transformers")
    words |= {own: options.words[key] for key, own in _FSDP.items() if key in options}
    for key, own in (("batch_size", "per_device_train_batch_size"), ("gradient_accumulation_steps",) * 2,
                     ("enable_activation_checkpointing", "gradient_checkpointing")):
        if key in options:
            words[own] = options.words[key]
    length = "max_length" if "max_length" in options else "tokenizer.max_seq_len"
    if length in options:
        words["max_length"] = options.words[length]
    inner = Options(words, shown=lambda own: _KEYS.get(own, own), source=options.source)
    model, arguments, replica = trainer.described(inner, name, num_gpus)
    options.warnings += inner.warnings
    arguments["kernels"] |= {"loss": _loss_of(options)}
    if in_backward:
        arguments["kernels"] |= {"optimizer_step": "backward"}
        if optimizer in _FUSED and not is_fused:
            options.warnings.append(f"{options.shown('optimizer_in_bwd')} is counted with fused optimizers: temporaries"
                                    " of one parameter at a time are not counted yet")
    return model, arguments, replica


def _loss_of(options: Options) -> str:
    """Return the loss that the file names, compiled or not. Raises InputError for one that is not counted."""
    kind = options.word("loss._component_", _CHUNKED, LOSSES, ": others are not counted yet")
    plain, compiled = LOSSES[kind]
    loss = compiled if options.is_on("compile") else plain
    if options.is_on("compile"):
        options.warnings.append(f"{options.shown('compile')} is counted in the loss alone: what compilation changes in"
                                " layers is not counted yet")
    options.warnings.append(f"{options.shown('loss._component_')} is counted as loss = {loss}, in 8 chunks if in any")
    return loss


#: Keys of torchtune behind settings of the trainer, for errors.
_KEYS = {
    "per_device_train_batch_size": "batch_size", "gradient_checkpointing": "enable_activation_checkpointing",
    "max_length": "tokenizer.max_seq_len", "lora_target_modules": "model.lora_attn_modules",
    "lora_r": "model.lora_rank", "model_name_or_path": "model._component_", **{own: key for key, own in _FSDP.items()},
}
