"""Tables of formats: what becomes of a key and of its words, files that name others, and scripts around them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from shardmath.errors import InputError
from shardmath.formats import describes_a_run, read
from shardmath.formats.described import tables
from shardmath.formats.run import Run

AXOLOTL = {"base_model": "llama-3.1-8b", "micro_batch_size": 1, "sequence_len": 2048}
CUT = "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin"
TRAINER = {"model_name_or_path": "llama-3.1-8b", "per_device_train_batch_size": 2, "max_length": 2048, "bf16": True}
ACCELERATE = {"distributed_type": "FSDP", "num_processes": 16, "mixed_precision": "bf16",
              "fsdp_config": {"fsdp_version": 2}}
GIVEN = {"model_name_or_path": "llama-3.1-8b", "max_length": "2048"}
FACTORY = {"model_name_or_path": "Qwen/Qwen3-8B", "stage": "sft", "finetuning_type": "full", "cutoff_len": 1024,
           "bf16": True}
FACTORY_1 = {"model": "Qwen/Qwen3-4B", "model_class": "llm", "train_dataset": "x.yaml"}
CLASSIFIER = {"model": "Qwen/Qwen2.5-0.5B", "tuner_type": "lora", "max_length": 2048}
#: Linear layers of a language model beside an image encoder, as examples of Axolotl name them.
PATTERN = r"model.language_model.layers.[\d]+.(mlp|cross_attn|self_attn).(up|down|gate|q|k|v|o)_proj"
NANOTRON = {
    "parallelism": {"dp": 2, "tp": 2, "pp": 2, "pp_engine": "1f1b", "tp_mode": "REDUCE_SCATTER"},
    "tokens": {"sequence_length": 1024, "micro_batch_size": 1, "batch_accumulation_per_replica": 4},
    "optimizer": {"zero_stage": 1, "accumulate_grad_in_fp32": True},
    "model": {"dtype": "bfloat16", "model_config": {
        "is_llama_config": True, "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 8,
        "vocab_size": 1024, "num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 1024}},
}


def run(folder: Path, settings: dict[str, Any], name: str = "run.yaml", **given: str) -> Run:
    (folder / name).write_text(json.dumps(settings), encoding="utf-8")
    return read(folder / name, {key.replace("__", "."): value for key, value in given.items()})


def script(folder: Path, text: str, **given: str) -> Run:
    (folder / "run.sh").write_text(text, encoding="utf-8")
    return read(folder / "run.sh", given)


@pytest.mark.parametrize(("settings", "kernels", "arguments"), [
    ({**AXOLOTL}, {"precision": "bf16", "optimizer": "adamw"}, {"recompute": "none"}),
    ({**AXOLOTL, "gradient_checkpointing": True}, {}, {"recompute": "full"}),
    ({**AXOLOTL, "reward_model": True}, {"loss": "reward"}, {"micro_batch_size": 2}),
    ({**AXOLOTL, "bf16": True, "fp16": True}, {"precision": "bf16"}, {}),
    ({**AXOLOTL, "bf16": False, "float16": True}, {"precision": "bf16"}, {}),
    ({**AXOLOTL, "bf16": False}, {"precision": "fp32"}, {}),
    ({**AXOLOTL, "fp16": True, "adapter": "lora", "lora_r": 4}, {"precision": "bf16", "adapter_precision": "fp32"}, {}),
    ({**AXOLOTL, "fp16": True, "deepspeed": "zero3.json"}, {"precision": "mixed", "data_parallel": "deepspeed"}, {}),
    ({**AXOLOTL, "bf16": False, "adapter": "lora", "lora_r": 4}, {"precision": "fp32", "adapter_precision": None}, {}),
    ({**TRAINER, "dtype": "float32", "bf16": False, "fp16": True, "fsdp": "full_shard auto_wrap"},
     {"precision": "mixed", "data_parallel": "fsdp"}, {}),
    ({**AXOLOTL, "adapter": "qlora", "lora_r": 4, "lora_target_modules": ["q_proj", "v_proj"]},
     {"adapters": "q_v", "base_weights": "nf4", "precision": "bf16"}, {"lora_rank": 4}),
    ({**AXOLOTL, "adapter": "lora", "lora_r": 4, "peft_use_dora": True},
     {"adapter_kind": "dora", "adapter_precision": None}, {}),
    ({**AXOLOTL, "adapter": "lora", "lora_r": 4}, {"adapter_precision": "fp32"}, {}),
    ({**AXOLOTL, "adapter": "lora", "lora_target_linear": True, "lora_target_modules": ["q_proj"]},
     {"adapters": "all_linear"}, {}),
    *(({**AXOLOTL, "adapter": "qlora", "rl": rl}, {"base_weights": "nf4", "adapter_precision": adapters}, {})
      for rl, adapters in (("dpo", None), ("ipo", None), ("kto", None), ("orpo", "fp32_uncopied"))),
    ({**TRAINER, "lora_r": 4, "use_peft": True, "load_in_4bit": True},
     {"base_weights": "nf4", "adapter_precision": None}, {}),
    ({**TRAINER, "lora_r": 4, "use_peft": True}, {"adapter_precision": "fp32"}, {}),
    ({**AXOLOTL, "fsdp_config": {"offload_params": True}},
     {"data_parallel": "fsdp", "zero_offload": "fsdp", "pinned": None}, {}),
    ({**AXOLOTL, "fsdp_config": {"offload_params": True, "cpu_offload_pin_memory": False}},
     {"zero_offload": "fsdp", "pinned": "none"}, {}),
    ({**AXOLOTL, "adapter": "lora", "lora_r": 4, "load_in_8bit": True, "lora_target_linear": True},
     {"base_weights": "int8", "adapter_precision": "fp32_uncopied"}, {}),
    ({**AXOLOTL, "bf16": False, "fp16": True, "adapter": "lora", "lora_r": 4, "load_in_8bit": True},
     {"base_weights": "int8", "precision": "bf16"}, {}),
    ({**AXOLOTL, "fsdp": ["full_shard", "auto_wrap"]}, {"data_parallel": "fsdp", "precision": "mixed"}, {}),
    ({**AXOLOTL, "fsdp": ["full_shard"], "fsdp_config": {"fsdp_version": 2}},
     {"data_parallel": "fsdp", "precision": "bf16"}, {}),
    ({**AXOLOTL, "fsdp_version": 2, "fsdp_config": {"auto_wrap_policy": "TRANSFORMER_BASED_WRAP"}},
     {"data_parallel": "fsdp", "precision": "bf16", "reshard": "always"}, {}),
    ({**AXOLOTL, "fsdp_config": {"activation_checkpointing": True}},
     {"data_parallel": "fsdp", "precision": "mixed"}, {"recompute": "full"}),
    ({**AXOLOTL, "fsdp_version": 2, "fsdp_config": {}}, {"data_parallel": None}, {}),
    ({**AXOLOTL, "plugins": [CUT]}, {"loss": "cut"}, {}),
    ({**AXOLOTL, "plugins": [CUT], "cut_cross_entropy": False}, {"loss": None}, {}),
    ({**AXOLOTL, "cut_cross_entropy": False, "plugins": ["some.Other", CUT]}, {"loss": None}, {}),
    ({**AXOLOTL, "bf16": False, "fp16": True, "fsdp": ["full_shard"]}, {"precision": "mixed"}, {}),
    ({**TRAINER, "fsdp": "full_shard"}, {"data_parallel": "fsdp", "precision": "mixed"}, {"gradients": None}),
    ({**TRAINER, "bf16": False, "fsdp": "full_shard"}, {"data_parallel": "fsdp", "precision": "bf16"}, {}),
    ({**FACTORY, "fsdp": "full_shard"}, {"data_parallel": "fsdp", "precision": "mixed"}, {}),
    ({**FACTORY, "finetuning_type": "lora", "fsdp": "full_shard"}, {"data_parallel": "fsdp", "precision": "mixed"}, {}),
    ({**FACTORY, "finetuning_type": "lora", "fsdp": "full_shard", "fsdp_config": {"version": 1}},
     {"precision": "bf16"}, {}),
    ({**FACTORY, "finetuning_type": "lora", "fsdp": "full_shard", "quantization_bit": 4}, {"precision": "bf16"}, {}),
    ({**AXOLOTL, "adapter": "lora", "lora_r": 4, "fsdp": ["full_shard"]}, {"precision": "bf16"}, {}),
    ({**FACTORY, "pure_bf16": True, "fsdp": "full_shard"}, {"data_parallel": "fsdp", "precision": "mixed"}, {}),
    ({**FACTORY, "bf16": False, "pure_bf16": True, "fsdp": "full_shard"},
     {"data_parallel": "fsdp", "precision": "bf16"}, {}),
    ({**AXOLOTL, "fsdp": ["full_shard"], "fsdp_config": {"reshard_after_forward": False}}, {"reshard": "never"}, {}),
    ({**TRAINER}, {"precision": "bf16"}, {"micro_batch_size": 2}),
    ({**TRAINER, "dtype": "float32"}, {"precision": "autocast"}, {}),
    ({**TRAINER, "use_liger_kernel": True}, {"loss": "liger", "swiglu": "fused", "norm": "fused"}, {}),
    ({**AXOLOTL, "liger_fused_linear_cross_entropy": True, "liger_rms_norm": False}, {"loss": "liger", "norm": None},
     {}),
    ({**TRAINER, "dtype": "float32", "fsdp": "full_shard auto_wrap"},
     {"precision": "mixed", "data_parallel": "fsdp"}, {}),
    ({**TRAINER, "optim": "adamw_torch"}, {"optimizer": "adamw", "optimizer_kernel": "foreach"}, {}),
    ({**TRAINER, "optim": "adamw_torch_fused"}, {"optimizer": "adamw", "optimizer_kernel": None}, {}),
    ({**TRAINER, "optim": "adafactor", "attn_implementation": "eager"},
     {"optimizer": "adafactor", "attention": "eager"}, {}),
    ({"model": {"_component_": "torchtune.models.llama3_1.llama3_1_8b"}, "batch_size": 2, "dtype": "bf16",
      "tokenizer": {"max_seq_len": 512}, "checkpointer": {}, "optimizer_in_bwd": True,
      "optimizer": {"_component_": "bitsandbytes.optim.PagedAdamW8bit"}},
     {"optimizer": "adamw_8bit_alone", "optimizer_step": "backward"}, {"micro_batch_size": 2}),
    *(({"model": {"_component_": "torchtune.models.llama3_1.llama3_1_8b"}, "batch_size": 2, "dtype": "bf16",
        "tokenizer": {"max_seq_len": 512}, "checkpointer": {}, **more}, kernels, {"micro_batch_size": 2})
      for more, kernels in (
          ({"fsdp_cpu_offload": True}, {"zero_offload": "fsdp", "pinned": None, "reshard": "always"}),
          ({"fsdp_reshard_after_forward": False}, {"zero_offload": None, "reshard": "never"}),
          ({}, {"optimizer": "adamw", "optimizer_kernel": "foreach"}),
          ({"optimizer_in_bwd": True}, {"optimizer_kernel": None, "optimizer_step": "backward"}),
          ({"optimizer": {"_component_": "torch.optim.AdamW", "fused": True}}, {"optimizer_kernel": None}))),
    ({**AXOLOTL, "optimizer": "adamw_8bit", "deepspeed": "zero2.json"},
     {"optimizer": "adamw_8bit", "data_parallel": "deepspeed"}, {"zero_stage": 2}),
    ({**FACTORY}, {"precision": "autocast"}, {"recompute": "full", "seq_length": 1024, "micro_batch_size": 8}),
    ({**FACTORY, "pure_bf16": True, "disable_gradient_checkpointing": True}, {"precision": "bf16"},
     {"recompute": "none"}),
    ({**FACTORY, "finetuning_type": "lora", "quantization_bit": 4}, {"adapters": "all_linear", "base_weights": "nf4"},
     {"lora_rank": 8}),
    ({**AXOLOTL, "adapter": "lora", "lora_r": 4, "lora_target_modules": PATTERN}, {"adapters": "all_linear"}, {}),
    ({**AXOLOTL, "adapter": "lora", "lora_r": 4, "lora_target_modules": PATTERN.replace("mlp|", "")},
     {"adapters": "attention"}, {}),
    ({**CLASSIFIER, "task_type": "seq_cls", "num_labels": 1}, {"loss": "scores", "adapter_precision": "fp32"}, {}),
    ({**FACTORY_1, "bf16": True}, {"precision": "fp32", "loss": "log_probs_sft", "optimizer_kernel": "foreach"},
     {"micro_batch_size": 1, "seq_length": 2048, "recompute": "full", "gradients": None}),
    ({**FACTORY_1, "dist_config": {"name": "fsdp2"}}, {"precision": "mixed", "units": "root"}, {"gradients": "fp32"}),
    ({**FACTORY_1, "bf16": False, "dist_config": {"name": "fsdp2"}}, {"precision": "fp32"}, {"gradients": None}),
    ({**FACTORY_1, "enable_activation_checkpointing": False, "peft_config": {"name": "lora"}},
     {"precision": "bf16", "adapters": "all_linear"}, {"recompute": "none", "lora_rank": 8}),
    ({**FACTORY_1, "dist_config": {"name": "fsdp2", "offload_params": True}}, {"zero_offload": "fsdp"}, {}),
    ({**FACTORY_1, "dist_config": {"name": "deepspeed", "config_file": "zero2.json"}},
     {"precision": "mixed", "data_parallel": "deepspeed"}, {"zero_stage": 2}),
    ({**NANOTRON}, {}, {"pipeline_layout": (5, 3), "schedule": "1f1b", "distributed_optimizer": True,
                        "global_batch_size": 8, "sequence_parallel": True}),
])
def test_settings_and_their_absence(
    settings: dict[str, Any], kernels: dict[str, str], arguments: dict[str, Any], tmp_path: Path,
) -> None:
    found = run(tmp_path, settings)
    assert {axis: found.arguments.get("kernels", {}).get(axis) for axis in kernels} == kernels
    assert {name: found.arguments.get(name) for name in arguments} == arguments
    assert found.unknown == ()


def test_a_pattern_of_targets_matches_what_it_is_read_as() -> None:
    """PEFT takes each module whose whole name a pattern of targets matches."""
    blocks = {"self_attn": "qkvo", "mlp": ("gate", "up", "down"), "cross_attn": ()}
    names = [f"model.language_model.layers.7.{block}.{part}_proj" for block, parts in blocks.items() for part in parts]
    assert len(names) == 7
    assert all(re.fullmatch(PATTERN, name) for name in names)
    assert not re.fullmatch(PATTERN, "model.vision_tower.encoder.layers.7.self_attn.q_proj")


@pytest.mark.parametrize(("settings", "field", "rule"), [
    ({**AXOLOTL, "rl": "grpo"}, "rl", "must not be given: of preference training dpo, ipo, kto, orpo and simpo"),
    ({**AXOLOTL, "adapter": "llama-adapter"}, "adapter", "must be one of lora, qlora"),
    ({**AXOLOTL, "unfrozen_parameters": ["lm_head.weight"]}, "unfrozen_parameters", "frozen weights without adapters"),
    ({"model": "Qwen/Qwen3-8B", "tuner_type": "full", "max_length": 9, "freeze_parameters_ratio": 0.9},
     "freeze_parameters_ratio", "frozen weights without adapters are not counted yet"),
    ({**TRAINER, "activation_offloading": True}, "activation_offloading", "activations on the host"),
    ({**TRAINER, "use_lora": True, "lora_rank": 64}, "use_lora", "give use_peft, lora_r and lora_target_modules"),
    ({**AXOLOTL, "adapter": "lora", "lora_modules_to_save": ["lm_head"]}, "lora_modules_to_save",
     "must be embed_tokens lm_head"),
    ({**AXOLOTL, "load_in_4bit": True}, "load_in_4bit", "must not be given without adapters"),
    ({**AXOLOTL, "optimizer": "lion_8bit"}, "optimizer", "others are not counted yet"),
    ({**TRAINER, "bf16": False, "fp16": True}, "fp16", "weights of 16 bits under fp16 are not counted yet"),
    ({**AXOLOTL, "fp16": True}, "fp16", "Attempting to unscale FP16 gradients"),
    ({**AXOLOTL, "bf16": False, "fp16": True}, "fp16", "Attempting to unscale FP16 gradients"),
    ({**AXOLOTL, "fp16": True, "fsdp_version": 2, "fsdp_config": {"reshard_after_forward": True}}, "fp16",
     "Attempting to unscale FP16 gradients"),
    ({**AXOLOTL, "gradient_checkpointing": True, "activation_offloading": True, "adapter": "lora"},
     "activation_offloading", "takes the place of recompute"),
    ({**AXOLOTL, "activation_offloading": True}, "activation_offloading", "without gradient_checkpointing"),
    ({"model": "Qwen/Qwen3-8B", "tuner_type": "lora", "max_length": 9, "target_modules": ["all-linear", "lm_head"]},
     "target_modules", "must not have lm_head beside all linear layers"),
    ({**AXOLOTL, "base_model": "no/such-model"}, "base_model", "give --set base_model=PATH of its config.json"),
    ({**AXOLOTL, "context_parallel_size": 2}, "context_parallel_size", "not counted yet"),
    ({**AXOLOTL, "fsdp": ["full_shard"], "fsdp_config": {"offload_params": True, "reshard_after_forward": False}},
     "fsdp_config.reshard_after_forward", "must be full_shard with offload_params"),
    ({**AXOLOTL, "batch_size": 8, "gradient_accumulation_steps": 2}, "batch_size",
     "must not be given with gradient_accumulation_steps"),
    ({**AXOLOTL, "micro_batch_size": 4, "batch_size": 2}, "batch_size", "must be 4 or more"),
    ({**AXOLOTL, "deepspeed": "other.json"}, "deepspeed", "must be the path of a file"),
    ({"model_name_or_path": "llama-3.1-8b", "per_device_train_batch_size": 1}, "max_length",
     "must be given: the longest sequence, with --set max_length=TOKENS"),
    ({"per_device_train_batch_size": 1}, "model_name_or_path", "must be given"),
    ({"base_model": "llama-3.1-8b", "sequence_len": 2048}, "micro_batch_size", "must be given"),
    ({**NANOTRON, "optimizer": {"zero_stage": 3, "accumulate_grad_in_fp32": True}}, "optimizer.zero_stage", "0 or 1"),
    ({**FACTORY_1, "pref_loss": "orpo"}, "pref_loss", "preference training of version 1 is not counted yet"),
    ({**FACTORY_1, "peft_config": {"name": "freeze"}}, "peft_config.name", "must be one of lora: others are not"),
    ({**FACTORY_1, "dist_config": {"name": "fsdpturbo"}}, "dist_config.name", "must be one of fsdp2, deepspeed"),
    ({**FACTORY_1, "cp_size": 2}, "cp_size", "context parallelism of version 1"),
    ({**FACTORY, "do_predict": True}, "do_predict", "must not be given without do_train"),
    ({**FACTORY, "do_train": True, "infer_backend": "vllm", "cutoff_len": "x"}, "cutoff_len", "must be"),
    ({**TRAINER, "document_length": 512}, "document_length", "must be given with packing or padding_free alone"),
    ({**TRAINER, "packing": True, "document_length": 512, "global_batch_size": 64}, "global_batch_size", "as many"),
    ({**FACTORY, "tensor_model_parallel_size": 4, "sequence_parallel": True}, "tensor_model_parallel_size",
     "Megatron-Core in LLaMA-Factory is not read yet"),
    ({**FACTORY, "pipeline_model_parallel_size": 1, "use_distributed_optimizer": True}, "use_distributed_optimizer",
     "Megatron-Core in LLaMA-Factory is not read yet"),
    ({**CLASSIFIER, "task_type": "reranker"}, "task_type", "samples are of several sequences"),
    ({**CLASSIFIER, "task_type": "seq_cls"}, "num_labels", "must be given"),
    ({**CLASSIFIER, "task_type": "seq_cls", "num_labels": 0}, "num_labels", "must be 1 or more"),
    ({"model": "Qwen/Qwen3-8B", "tuner_type": "full", "max_length": 9, "optimizer": "muonclip"}, "optimizer",
     "must be one of default, lorap, multimodal, muon"),
    ({"hidden": 1}, "model", "it has the keys of none"),
])
def test_refused_settings(settings: dict[str, Any], field: str, rule: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        run(tmp_path, settings)
    assert caught.value.field == field
    assert rule in str(caught.value)


@pytest.mark.parametrize(("settings", "mesh", "arguments"), [
    (ACCELERATE, {"replicate": 4, "shard": 4, "tp": 1}, {"data_parallel_replicas": 4, "num_gpus": 16}),
    (ACCELERATE, {"shard": 16}, {"data_parallel_replicas": None, "num_gpus": 16}),
    ({**AXOLOTL, "fsdp": ["full_shard"], "fsdp_version": 2}, {"replicate": 2, "shard": 8},
     {"data_parallel_replicas": 2, "num_gpus": 16}),
    ({**AXOLOTL, "fsdp": ["full_shard"], "fsdp_version": 2, "world_size": 8}, {"replicate": 2},
     {"data_parallel_replicas": 2, "num_gpus": 8}),
])
def test_meshes_of_replicas_and_shards(
    settings: dict[str, Any], mesh: dict[str, int], arguments: dict[str, Any], tmp_path: Path,
) -> None:
    found = _in_a_mesh(settings, mesh, tmp_path)
    assert found.arguments["kernels"]["data_parallel"] == "fsdp"
    assert {name: found.arguments.get(name) for name in arguments} == arguments
    assert found.unknown == ()
    assert not [text for text in found.warnings if "not counted" in text]


@pytest.mark.parametrize(("settings", "mesh", "field", "rule"), [
    (ACCELERATE, {"replicate": 4, "shard": 8}, "parallelism_config.parallelism_config_dp_shard_size",
     "times 4 copies must be the 16 GPUs; nearest legal: 4"),
    (ACCELERATE, {"replicate": 0, "shard": 8}, "parallelism_config.parallelism_config_dp_replicate_size", "1 or more"),
    (ACCELERATE, {"replicate": 16}, "parallelism_config.dp_shard_size", "must be 2 or more"),
    ({**ACCELERATE, "fsdp_config": {"fsdp_version": 1}}, {"shard": 16}, "fsdp_config.fsdp_version",
     "must be 2 with a mesh"),
    (ACCELERATE, {"tp": 2, "shard": 8}, "parallelism_config.parallelism_config_tp_size", "not counted yet"),
    ({**ACCELERATE, "distributed_type": "MULTI_GPU"}, {"shard": 8},
     "parallelism_config.parallelism_config_dp_shard_size", "must be 1 without FSDP"),
    ({**AXOLOTL, "fsdp": ["full_shard"], "fsdp_version": 2}, {"replicate": 2}, "dp_shard_size", "must be given"),
])
def test_refused_meshes(
    settings: dict[str, Any], mesh: dict[str, int], field: str, rule: str, tmp_path: Path,
) -> None:
    with pytest.raises(InputError) as caught:
        _in_a_mesh(settings, mesh, tmp_path)
    assert caught.value.field == field
    assert rule in str(caught.value)


def _in_a_mesh(settings: dict[str, Any], mesh: dict[str, int], folder: Path) -> Run:
    """Read settings with sizes of a mesh as Axolotl or Accelerate writes them."""
    sizes = {f"dp_{name}_size" if name != "tp" else "tp_size": size for name, size in mesh.items()}
    if "base_model" in settings:
        return run(folder, {**settings, **sizes})
    named = {f"parallelism_config_{name}": size for name, size in sizes.items()}
    return run(folder, {**settings, "parallelism_config": named}, **GIVEN)


def test_every_key_is_under_what_was_made_of_it(tmp_path: Path) -> None:
    found = run(tmp_path, {**AXOLOTL, "wandb_project": "x", "lora_r": 8, "plugins": ["axolotl.integrations.liger.X"],
                           "hub_model_id": "me/it", "made_up": 1, "tensor_parallel_size": 1})
    assert set(found.understood) == {*AXOLOTL}
    assert set(found.without_effect) == {"wandb_project", "hub_model_id", "lora_r", "tensor_parallel_size"}
    assert found.unknown == ("made_up",)
    assert [text for text in found.warnings if text.startswith("plugins is not counted yet")]


@pytest.mark.parametrize(("settings", "said", "is_said"), [
    ({"adapter": "lora"}, "fused kernels unless", True),
    ({"adapter": "qlora", "rl": "dpo"}, "fused kernels unless", False),
    ({"adapter": "lora", "lora_mlp_kernel": False}, "fused kernels unless", False),
    ({"adapter": "lora", "load_in_8bit": True}, "fused kernels unless", False),
    ({"adapter": "lora", "trust_remote_code": True}, "fused kernels unless", False),
    ({"adapter": "lora", "fsdp_config": {"offload_params": False}}, "fused kernels unless", False),
    ({"adapter": "lora", "fsdp_config": {"fsdp_version": 2}}, "fused kernels unless", True),
    ({}, "embedding, head and norms are fp32", True), ({"adapter": "lora"}, "embedding, head and norms", False),
    ({"plugins": [CUT]}, "embedding, head and norms", False),
    ({"attn_implementation": "flash_attention_2"}, "embedding, head and norms", False),
    ({"fsdp_config": {"fsdp_version": 2}}, "embedding, head and norms", False),
    *(({"gradient_checkpointing": word}, "inputs of recomputed layers on the host", True)
      for word in ("unsloth", "offload")),
    ({"gradient_checkpointing": True, "activation_offloading": True}, "inputs of recomputed layers on the host", True),
    ({"plugins": ["axolotl.integrations.liger.LigerPlugin"]}, "plugins is not counted", False),
])
def test_defaults_of_axolotl_that_are_not_counted_are_said(
    settings: dict[str, Any], said: str, is_said: bool, tmp_path: Path,
) -> None:
    assert any(said in warning for warning in run(tmp_path, {**AXOLOTL, **settings}).warnings) == is_said


def test_settings_win_over_the_file(tmp_path: Path) -> None:
    found = run(tmp_path, AXOLOTL, base_model="qwen2.5-7b", micro_batch_size="4")
    assert (found.model.name, found.arguments["micro_batch_size"]) == ("qwen2.5-7b", 4)
    with pytest.raises(InputError, match="micro_batch_size"):
        run(tmp_path, AXOLOTL, micro_batch_siz="4")


def test_a_model_beside_the_file(tmp_path: Path) -> None:
    config = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
              "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256, "max_position_embeddings": 512,
              "rms_norm_eps": 1e-5, "tie_word_embeddings": False}
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert run(tmp_path, {**AXOLOTL, "base_model": "mine"}).model.hidden_size == 64


@pytest.mark.parametrize(("named", "name"), [
    ("mistralai/Mistral-7B-Instruct-v0.2", "mistral-7b-v0.2"),
    ("swiss-ai/Apertus-8B-Instruct-2509", "apertus-8b-2509"),
    ("mistralai/Mistral-Small-24B-Instruct-2501", "mistral-small-24b-base-2501"),
    ("Qwen/Qwen3-4B-Instruct-2507", "qwen3-4b"), ("EleutherAI/pythia-1.4b-deduped", "pythia-1.4b"),
    ("hugging-quants/Meta-Llama-3.1-405B-BNB-NF4-BF16", "llama-3.1-405b"),
    ("agentica-org/DeepCoder-14B-Preview", "qwen2.5-14b"), ("katanemo/Plano-Orchestrator-4B", "qwen3-4b"),
    ("mistralai/Devstral-Small-2507", "mistral-small-24b-base-2501"), ("Qwen/Qwen2.5-Math-1.5B", "qwen2.5-1.5b"),
    ("allenai/Olmo-3-7B-Instruct-SFT", "olmo-3-1025-7b"),
])
def test_models_that_were_trained_further(named: str, name: str, tmp_path: Path) -> None:
    found = run(tmp_path, AXOLOTL, base_model=named)
    assert found.model.name == name
    assert f"{named} is taken to have the shape of {name}" in found.warnings


def test_the_text_of_a_model_of_images_is_said_to_be_all_that_is_counted(tmp_path: Path) -> None:
    found = run(tmp_path, AXOLOTL, base_model="google/gemma-3-12b-it")
    assert [warning for warning in found.warnings if "its image encoder" in warning and "are not counted" in warning]


def test_deepspeed_beside_the_trainer(tmp_path: Path) -> None:
    zero = {"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": "auto",
                                                                "sub_group_size": 1e9, "overlap_comm": True}}
    (tmp_path / "zero.json").write_text(json.dumps(zero), encoding="utf-8")
    found = run(tmp_path, {**TRAINER, "deepspeed": "zero.json"})
    assert found.arguments["zero_stage"] == 3
    assert found.arguments["prefetch_bucket_size"] == 9 * 4096**2 // 10
    assert found.arguments["kernels"] == {"optimizer": "adamw", "precision": "mixed", "data_parallel": "deepspeed"}
    inline = run(tmp_path, {**TRAINER, "deepspeed": zero})
    assert inline.arguments == found.arguments
    alone = run(tmp_path, zero, "zero3.json", model_name_or_path="llama-3.1-8b", max_length="2048", bf16="true",
                per_device_train_batch_size="2")
    assert alone.arguments == found.arguments


@pytest.mark.parametrize(("states", "parameters", "pinned"), [
    (None, None, None), (True, None, None), (False, False, "none"), (False, True, "parameters"),
    (None, False, "optimizer"), (False, "absent", "none"), (True, "absent", None),
])
def test_what_deepspeed_pins_on_the_host(
    states: bool | None, parameters: bool | str | None, pinned: str | None, tmp_path: Path,
) -> None:
    zero = {"stage": 3, **{f"offload_{part}": {"device": "cpu", **({} if asked is None else {"pin_memory": asked})}
                           for part, asked in (("optimizer", states), ("param", parameters)) if asked != "absent"}}
    found = run(tmp_path, {**TRAINER, "deepspeed": {"bf16": {"enabled": True}, "zero_optimization": zero}})
    assert found.arguments["kernels"].get("pinned") == pinned


@pytest.mark.parametrize(("stage", "optimizer", "parameters", "chosen"), [
    (3, "cpu", "cpu", "parameters"), (3, "cpu", "none", "optimizer"), (2, "none", "none", None),
])
def test_what_deepspeed_keeps_on_the_host(
    stage: int, optimizer: str, parameters: str, chosen: str | None, tmp_path: Path,
) -> None:
    zero = {"stage": stage, "offload_optimizer": {"device": optimizer}, "offload_param": {"device": parameters}}
    found = run(tmp_path, {**TRAINER, "deepspeed": {"bf16": {"enabled": True}, "zero_optimization": zero}})
    assert found.arguments["kernels"].get("zero_offload") == chosen
    named = run(tmp_path, {**TRAINER, "deepspeed": "elsewhere/ds_z3_offload_config.json"})
    assert named.arguments["kernels"]["zero_offload"] == "parameters"
    zero["stage"], zero["offload_optimizer"] = 2, {"device": "cpu"}
    with pytest.raises(InputError, match="must be none, or cpu in stage 3"):
        run(tmp_path, {**TRAINER, "deepspeed": {"bf16": {"enabled": True}, "zero_optimization": zero}})


@pytest.mark.parametrize(("text", "gpus", "micro"), [
    ("accelerate launch --config_file fsdp.yaml --num_processes 16 train.py --config x"
     " --model_name_or_path llama-3.1-8b --per_device_train_batch_size 4 --max_length 2048 --bf16", 16, 4),
    ("accelerate launch --config_file fsdp.yaml train.py --model_name_or_path llama-3.1-8b --bf16 true"
     " --per_device_train_batch_size 4 --max_length=2048", 8, 4),
    ("#SBATCH --nodes=4\n#SBATCH --gpus-per-node=8\nsrun torchrun --nnodes $SLURM_NNODES --nproc_per_node"
     " $SLURM_GPUS_ON_NODE train.py --model_name_or_path llama-3.1-8b --per-device-train-batch-size 1 --max_length 2048"
     " --per_device_train_batch_size 1", 32, 1),
    ("deepspeed --num_gpus 4 --num_nodes 2 train.py --model_name_or_path llama-3.1-8b --per_device_train_batch_size 1"
     " --max_length 2048 --bf16 --deepspeed zero2.json", 8, 1),
    ("NPROC_PER_NODE=2 swift sft --model Qwen/Qwen2.5-7B-Instruct --tuner_type lora --max_length 2048", 2, 1),
    ("axolotl train axolotl.yaml --micro-batch-size 3", None, 3),
    ("accelerate launch --num_processes 8 -m axolotl.cli.train axolotl.yaml", 8, 1),
    ("srun bash -c 'torchrun --nproc_per_node 8 --nnodes 2 run_train.py --config-file nanotron.yaml'", None, 1),
    ("llamafactory-cli train factory.yaml cutoff_len=4096 per_device_train_batch_size=1", None, 1),
])
def test_scripts(text: str, gpus: int | None, micro: int, tmp_path: Path) -> None:
    fsdp = {"distributed_type": "FSDP", "num_processes": 8, "mixed_precision": "bf16",
            "fsdp_config": {"fsdp_version": 2, "fsdp_reshard_after_forward": True}}
    for name, content in (("fsdp", fsdp), ("axolotl", AXOLOTL), ("nanotron", NANOTRON), ("factory", FACTORY)):
        (tmp_path / f"{name}.yaml").write_text(json.dumps(content), encoding="utf-8")
    found = script(tmp_path, text)
    assert (found.arguments.get("num_gpus"), found.arguments["micro_batch_size"]) == (gpus, micro)
    assert "fsdp.yaml" not in text or found.arguments["kernels"]["data_parallel"] == "fsdp"
    assert "cutoff_len" not in text or found.arguments["seq_length"] == 4096


@pytest.mark.parametrize(("before", "more", "spread"), [
    ("CUDA_VISIBLE_DEVICES=0", "", ""), ("CUDA_VISIBLE_DEVICES=0,1", "", "over 2 GPUs"),
    ("NPROC_PER_NODE=2 CUDA_VISIBLE_DEVICES=0,1", "", ""),
    ("NPROC_PER_NODE=2 CUDA_VISIBLE_DEVICES=0,1,2,3", "", "over 2 GPUs"),
    ("CUDA_VISIBLE_DEVICES=0,1", "--deepspeed zero3", ""), ("", "", ""),
])
def test_layers_that_are_spread_over_visible_gpus(before: str, more: str, spread: str, tmp_path: Path) -> None:
    """As ``get_default_device_map`` of ms-swift has it: ``auto`` where a process sees two GPUs or more."""
    found = script(tmp_path, f"{before} swift sft --model Qwen/Qwen2.5-7B-Instruct --max_length 2048 {more}".strip())
    warned = [warning for warning in found.warnings if warning.startswith("CUDA_VISIBLE_DEVICES")]
    assert [spread in warning for warning in warned] == [True] * bool(spread)


@pytest.mark.parametrize(("text", "field", "rule"), [
    ("swift rlhf --rlhf_type gkd --model x", "rlhf_type", "of ms-swift's preference training dpo, kto, orpo"),
    ("swift rlhf --precompute_ref_log_probs true --model x", "precompute_ref_log_probs", "has no log-probabilities"),
    ("axolotl train gone.yaml", "script", "must be the path of an existing file"),
    ("accelerate launch --config_file gone.yaml t.py --model_name_or_path x --per_device_train_batch_size 1",
     "config_file", "must be the path of an existing file"),
    ("torchrun t.py --model_name_or_path llama-3.1-8b --per_device_train_batch_size $(nvidia-smi) --max_length 9",
     "per_device_train_batch_size", "must not be the output of a command"),
])
def test_refused_scripts(text: str, field: str, rule: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        script(tmp_path, text)
    assert caught.value.field == field
    assert rule in str(caught.value)


@pytest.mark.parametrize(("flags", "kernels", "arguments"), [
    ("--mixed_precision bf16 --use_deepspeed --deepspeed_config_file zero.conf",
     {"data_parallel": "deepspeed", "precision": "mixed"}, {"zero_stage": 3, "sub_group_size": 7}),
    ("--use_deepspeed --mixed_precision=bf16", {"data_parallel": "deepspeed"}, {"zero_stage": 2}),
    ("--use-deepspeed --zero-stage 3 --offload_optimizer_device cpu",
     {"data_parallel": "deepspeed", "zero_offload": "optimizer", "precision": "fp32"}, {"zero_stage": 3}),
    ("--zero_stage 3", {"data_parallel": None, "precision": "bf16"}, {"zero_stage": None}),
    ("--use_fsdp --fsdp_version 2 --fsdp_reshard_after_forward false --mixed_precision bf16",
     {"data_parallel": "fsdp", "reshard": "never", "precision": "mixed"}, {}),
    ("--use_fsdp --fsdp_sharding_strategy FULL_SHARD --fsdp_activation_checkpointing true",
     {"data_parallel": "fsdp", "reshard": "always"}, {"recompute": "full"}),
    ("--config_file deep.yaml", {"data_parallel": "deepspeed"}, {"zero_stage": 3, "sub_group_size": 7}),
    ("--config_file deep.yaml --num_processes 4", {"data_parallel": "deepspeed"}, {"zero_stage": 3, "num_gpus": 4}),
    ("--config_file fsdp.yaml --fsdp_reshard_after_forward false", {"data_parallel": "fsdp", "reshard": "never"}, {}),
    ("--multi_gpu --num_processes 4", {"data_parallel": None}, {"num_gpus": 4}),
])
@pytest.mark.parametrize("around", ["", "python start.py --gpus 8 --num_nodes 2 -- ", "python start.py -- srun "])
def test_flags_of_accelerate(
    around: str, flags: str, kernels: dict[str, str | None], arguments: dict[str, Any], tmp_path: Path,
) -> None:
    """Scripts of open-instruct (e6c3044aa) start the training so, and their ``mason.py`` starts the launcher."""
    zero = {"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3, "sub_group_size": 7}}
    (tmp_path / "zero.conf").write_text(json.dumps(zero), encoding="utf-8")
    deep = {"distributed_type": "DEEPSPEED", "num_processes": 8, "mixed_precision": "bf16",
            "deepspeed_config": {"deepspeed_config_file": "zero.conf", "zero3_init_flag": True}}
    (tmp_path / "deep.yaml").write_text(json.dumps(deep), encoding="utf-8")
    (tmp_path / "fsdp.yaml").write_text(json.dumps({**ACCELERATE, "num_processes": 8}), encoding="utf-8")
    found = script(tmp_path, f"{around}accelerate launch {flags} train.py --model_name_or_path llama-3.1-8b"
                             " --per_device_train_batch_size 1 --max_length 2048")
    assert {axis: found.arguments["kernels"].get(axis) for axis in kernels} == kernels
    assert {name: found.arguments.get(name) for name in arguments} == arguments
    assert found.unknown == ()


@pytest.mark.parametrize(("flags", "field"), [
    ("--use_megatron_lm --megatron_lm_tp_degree 2", "megatron_lm_config"),
    ("--parallelism_config_tp_size 2", "parallelism_config.parallelism_config_tp_size"),
    ("--mixed_precision fp8", "mixed_precision"),
    ("--use_deepspeed --deepspeed_config_file gone.json", "deepspeed_config.deepspeed_config_file"),
])
def test_flags_of_accelerate_that_are_refused(flags: str, field: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        script(tmp_path, f"accelerate launch {flags} train.py --model_name_or_path llama-3.1-8b --max_length 2048"
                         " --per_device_train_batch_size 1")
    assert caught.value.field == field


def test_both_names_of_stage_3_in_deepspeed(tmp_path: Path) -> None:
    """Pydantic takes fields by name and by alias (``populate_by_name``); a subgroup has one parameter at least."""
    zero = {"stage": 3, "sub_group_size": 0, "max_live_parameters": 0, "prefetch_bucket_size": 7,
            "stage3_max_reuse_distance": 5, "param_persistence_threshold": "auto",
            "gather_16bit_weights_on_model_save": True}
    found = run(tmp_path, {"zero_optimization": zero, "train_micro_batch_size_per_gpu": 1}, **GIVEN)
    sizes = {"sub_group_size": 1, "max_live_parameters": 0, "prefetch_bucket_size": 7, "max_reuse_distance": 5,
             "param_persistence_threshold": 40960}
    assert {name: found.arguments[name] for name in sizes} == sizes
    assert found.unknown == ()
    host = {"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}, "train_micro_batch_size_per_gpu": 1}
    with pytest.raises(InputError, match="these alone are not counted yet; nearest legal: cpu"):
        run(tmp_path, host, **GIVEN)


def test_a_file_in_a_folder_that_only_a_run_could_tell(tmp_path: Path) -> None:
    """As of ``examples/train_tiny_llama.sh`` of nanotron (2411b022)."""
    (tmp_path / "tiny.yaml").write_text(json.dumps(NANOTRON), encoding="utf-8")
    start = "HERE=$(cd -- $(dirname $0); pwd -P)\npython -m torch.distributed.run --nproc_per_node 8 --nnodes 1"
    found = script(tmp_path, f"{start} $HERE/../run_train.py --config-file $HERE/tiny.yaml")
    assert (found.arguments["tensor_parallel"], found.format) == (2, "nanotron")
    assert found.warnings == ("$(...)/tiny.yaml: tiny.yaml is looked for from the script's folder",)
    with pytest.raises(InputError, match=r"script = '\$\(\.\.\.\)/gone.yaml': must be the path"):
        script(tmp_path, f"{start} $HERE/../run_train.py --config-file $HERE/gone.yaml")
    with pytest.raises(InputError, match=r"script = '\$\{CONFIG\}': must be the path of an existing file"):
        script(tmp_path, f"{start} run_train.py --config-file $CONFIG")


@pytest.mark.parametrize(("first", "second", "micro", "warnings"), [
    (2, 2, 2, []), (1, 2, 2, ["micro_batch_size is there twice: the last value is read"]),
])
def test_keys_that_are_there_twice(
    first: int, second: int, micro: int, warnings: list[str], tmp_path: Path,
) -> None:
    """The last value counts for PyYAML, and for argparse with what yq writes of a test of Megatron-LM."""
    text = f"base_model: llama-3.1-8b\nmicro_batch_size: {first}\nsequence_len: 2048\nmicro_batch_size: {second}\n"
    (tmp_path / "run.yaml").write_text(text, encoding="utf-8")
    for found in (read(tmp_path / "run.yaml"), script(tmp_path, "axolotl train run.yaml")):
        assert found.arguments["micro_batch_size"] == micro
        assert [warning for warning in found.warnings if "twice" in warning] == warnings


def test_json_is_a_run_or_a_model_by_its_keys(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(TRAINER), encoding="utf-8")
    (tmp_path / "config.json").write_text('{"model_type": "llama"}', encoding="utf-8")
    (tmp_path / "broken.json").write_text("{", encoding="utf-8")
    assert [describes_a_run(tmp_path / f"{name}.json") for name in ("run", "config", "broken", "gone")] == [
        True, False, False, False]


def test_a_key_has_one_row() -> None:
    for table in tables():
        rows = [*table.own, *table.means, *table.opposite, *table.idle, *table.refused]
        assert sorted(rows) == sorted(set(rows)), table.name
        assert table.title
        assert table.signs
        assert table.release


@pytest.mark.parametrize("settings", [
    {**TRAINER, "packing": True}, {**AXOLOTL, "micro_batch_size": 2, "sample_packing": True},
    {**TRAINER, "dataset_name": "x", "padding_free": True},
])
def test_packed_documents(settings: dict[str, Any], tmp_path: Path) -> None:
    """Two sequences of a micro-batch are full ones, or one of documents of the length that is given."""
    full, packed = run(tmp_path, settings), run(tmp_path, settings, document_length="512")
    sizes = ("seq_length", "micro_batch_size", "document_length")
    assert [full.arguments.get(name) for name in sizes] == [2048, 2, None]
    assert [packed.arguments.get(name) for name in sizes] == [4096, 1, 512]
    assert full.replica_batch == 2 * (packed.replica_batch or 0)
    assert len(full.warnings) == len(packed.warnings) + 1


FACTORY = {"model_name_or_path": "llama-3.1-8b", "stage": "sft", "finetuning_type": "full", "cutoff_len": 2048,
           "template": "llama3", "per_device_train_batch_size": 1, "bf16": True, "neat_packing": True}


def test_blocks_of_llamafactory(tmp_path: Path) -> None:
    """flash-attn takes the blocks as packed documents of one sequence; other attention has a mask, which is told."""
    told = [sum("16-bit mask of all pairs" in warning for warning in run(tmp_path, settings).warnings)
            for settings in (FACTORY, {**FACTORY, "flash_attn": "sdpa"}, {**FACTORY, "flash_attn": "fa2"},
                             {**FACTORY, "neat_packing": False}, {**FACTORY, "neat_packing": False, "packing": True})]
    assert told == [1, 1, 0, 0, 0]
    packed = run(tmp_path, {**FACTORY, "flash_attn": "fa2"}, document_length="512").arguments
    assert (packed["seq_length"], packed["micro_batch_size"], packed["document_length"]) == (2048, 1, 512)
    with pytest.raises(InputError, match=r"document_length = '512': .* kept apart by a mask are none"):
        run(tmp_path, FACTORY, document_length="512")
    with pytest.raises(InputError, match=r"per_device_train_batch_size = .2.: must be 1 with neat_packing"):
        run(tmp_path, {**FACTORY, "flash_attn": "fa2", "per_device_train_batch_size": 2})


def test_sequences_of_a_rank_are_its_micro_batches(tmp_path: Path) -> None:
    """Axolotl's older files say the sequences of a rank and step; a share of a micro-batch is left out, as there."""
    found = run(tmp_path, {**AXOLOTL, "micro_batch_size": 2, "batch_size": 7})
    assert (found.arguments["micro_batch_size"], found.replica_batch) == (2, 6)
    assert "batch_size" in found.understood


@pytest.mark.parametrize("command", ["swift infer --adapters out", "llamafactory-cli export merge.yaml"])
def test_commands_that_do_not_train_are_named(command: str, tmp_path: Path) -> None:
    words = " ".join(command.split()[:2])
    with pytest.raises(InputError, match=f"script = '{words}': must start a training: this command does not train"):
        script(tmp_path, f"CUDA_VISIBLE_DEVICES=0 {command}\n")
    trains = script(tmp_path, f"swift sft --model Qwen/Qwen3-8B --max_length 2048\n{command}\n")
    assert trains.model.name == "qwen3-8b"
