"""Megatron-SWIFT: defaults of its arguments, what they mean to Megatron-Core, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from shardmath.errors import InputError
from shardmath.formats import read
from shardmath.formats.run import Run

START = "NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen3-8B --max_length 4096"


def started(folder: Path, more: str = "", start: str = START) -> Run:
    (folder / "run.sh").write_text(f"{start} {more}", encoding="utf-8")
    return read(folder / "run.sh")


def test_defaults_of_its_arguments(tmp_path: Path) -> None:
    """As MegatronArguments (megatron_args.py of 3602360a56) and ModelConfig of mcore-bridge 1.6.5 have them."""
    run = started(tmp_path)
    assert (run.format, run.model.name, run.unknown) == ("swift_megatron", "qwen3-8b", ())
    assert run.arguments == {
        "implementation": "megatron", "seq_length": 4096, "micro_batch_size": 1, "global_batch_size": 16, "num_gpus": 8,
        "sequence_parallel": False, "recompute": "core_attention", "gradients": "fp32", "distributed_optimizer": True,
        "vocab_multiple": 1, "overlap_grad_reduce": 0, "overlap_param_gather": 0, "attention_copies_output": 1,
        "kernels": {"loss": "native_fused", "rope": "unfused"},
    }
    assert run.warnings == ("padding_free: sequences without padding are counted as long as they may be",)


@pytest.mark.parametrize(("more", "arguments", "kernels"), [
    ("--tensor_model_parallel_size 4 --sequence_parallel true", {"tensor_parallel": 4, "sequence_parallel": True}, {}),
    ("--recompute_granularity full --recompute_num_layers 2", {"recompute": "full", "recompute_num_layers": 2}, {}),
    ("--recompute_granularity none --attention_backend flash_3", {"recompute": "none"}, {}),
    ("--cross_entropy_fusion_impl te --apply_rope_fusion true", {}, {"loss": "te_fused", "rope": None}),
    ("--cross_entropy_loss_fusion false --masked_softmax_fusion true", {}, {"loss": None}),
    ("--bias_activation_fusion false --gradient_accumulation_fusion false", {},
     {"swiglu": "unfused", "weight_gradient": "separate"}),
    ("--optimizer dist_muon", {"distributed_optimizer": False}, {"optimizer": "dist_muon"}),
    ("--torch_dtype float16 --optimizer sgd --sgd_momentum 0", {}, {"precision": "fp16", "optimizer": "sgd"}),
    ("--use_precision_aware_optimizer true --exp_avg_dtype bf16 --exp_avg_sq_dtype bf16",
     {"exp_avg_bytes": 2, "exp_avg_sq_bytes": 2, "main_param_bytes": 2}, {}),
    ("--fp4_format e2m1 --fp4_recipe nvfp4", {}, {"fp8": "nvfp4"}),
    ("--fp8_format e4m3 --fp8_recipe blockwise --fp8_param_gather true", {},
     {"fp8": "block", "fp8_weights": "primary"}),
    ("--use_megatron_fsdp true --overlap_grad_reduce true", {"zero_stage": 3}, {"data_parallel": "megatron_fsdp"}),
])
def test_settings(more: str, arguments: dict[str, Any], kernels: dict[str, str | None], tmp_path: Path) -> None:
    run = started(tmp_path, more)
    assert {name: run.arguments.get(name) for name in arguments} == arguments
    assert {axis: run.arguments["kernels"].get(axis) for axis in kernels} == kernels
    assert run.unknown == ()


@pytest.mark.parametrize(("model", "more", "rank", "chosen", "warned"), [
    ("Qwen/Qwen3-8B", "", 8, {"adapters": "all_linear", "adapter_parts": "joined"}, True),
    ("Qwen/Qwen3-30B-A3B", "--lora_rank 16 --lora_dropout 0", 16,
     {"adapters": "all_linear", "expert_adapters": "each"}, False),
    ("Qwen/Qwen3-30B-A3B", "--target_modules linear_qkv linear_proj --recompute_granularity full", 8,
     {"adapters": "attention", "expert_adapters": None}, True),
])
def test_adapters(
    model: str, more: str, rank: int, chosen: dict[str, str | None], warned: bool, tmp_path: Path,
) -> None:
    """As ``prepare_adapter`` and LoraParallelLinear of mcore-bridge make them, with dropout unless it is 0."""
    run = started(tmp_path, more, f"megatron sft --model {model} --max_length 4096 --tuner_type lora")
    assert run.arguments["lora_rank"] == rank
    assert {axis: run.arguments["kernels"].get(axis) for axis in chosen} == chosen
    dropout = [warning for warning in run.warnings if warning.startswith("lora_dropout is not counted yet")]
    assert [warning.endswith("of the one layer that is computed again") for warning in dropout] == (
        ["--recompute_granularity full" in more] if warned else [])
    assert run.unknown == ()


@pytest.mark.parametrize(("model", "more", "balance", "precision", "predictions"), [
    ("Qwen/Qwen3-30B-A3B", "", "none", "fp32", 0),
    ("Qwen/Qwen3-30B-A3B", "--moe_aux_loss_coeff 1e-3", "loss", "fp32", 0),
    ("deepseek-ai/DeepSeek-V3", "--moe_router_dtype none", "bias", "bf16", 0),
    ("deepseek-ai/DeepSeek-V3", "--mtp_num_layers 1", "bias", "fp32", 1),
])
def test_experts(model: str, more: str, balance: str, precision: str, predictions: int, tmp_path: Path) -> None:
    """Scores by a sigmoid have a bias of experts in mcore-bridge; further predictions are there where asked for."""
    run = started(tmp_path, more, f"megatron pt --model {model} --max_length 4096 --expert_model_parallel_size 8")
    kernels = run.arguments["kernels"]
    assert run.arguments["expert_tensor_parallel"] == 1
    assert (kernels["balance"], kernels["router_precision"], run.model.num_mtp_layers) == (
        balance, precision, predictions)
    assert (kernels["dispatch"], kernels["expert_products"]) == ("alltoall", "grouped")


@pytest.mark.parametrize(("more", "start", "field", "rule"), [
    ("--tuner_type lora_llm", START, "tuner_type", "must be one of full, lora"),
    ("--adapters output/checkpoint", START, "adapters", "adapters of another run are trained further"),
    ("--tuner_type lora --modules_to_save output_layer", START, "modules_to_save", "are not counted yet"),
    ("--tuner_type lora --target_modules linear_proj", START, "target_modules", "must be all-linear, or linear_fc1"),
    ("--task_type seq_cls", START, "task_type", "must be one of causal_lm"),
    ("--freeze_parameters_ratio 0.5", START, "freeze_parameters_ratio", "frozen weights are not counted yet"),
    ("--packing_length 65536", START, "packing_length", "give max_length with packing"),
    ("", "megatron sft --model Qwen/Qwen3-8B", "max_length", "must be given: the longest sequence"),
    ("--rlhf_type dpo", "megatron rlhf --model Qwen/Qwen3-8B", "script", "preference training and reinforcement"),
])
def test_refused(more: str, start: str, field: str, rule: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        started(tmp_path, more, start)
    assert caught.value.field == field
    assert rule in str(caught.value)


def test_yaml_has_the_same_settings(tmp_path: Path) -> None:
    """As ``examples/yaml/megatron/sft.yaml``, which ``megatron sft`` is given."""
    settings = {"model": "Qwen/Qwen3-8B", "micro_batch_size": 2, "global_batch_size": 8, "max_length": 2048,
                "tuner_type": "full", "packing": True, "ENV": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}}
    (tmp_path / "sft.yaml").write_text(json.dumps(settings), encoding="utf-8")
    alone, named = read(tmp_path / "sft.yaml"), started(tmp_path, "", "megatron sft sft.yaml")
    assert alone.format == named.format == "swift_megatron"
    assert alone.arguments == named.arguments
    assert (alone.arguments["micro_batch_size"], alone.arguments["seq_length"]) == (2, 2048)
    assert alone.warnings == ("packed documents are counted as full sequences",)
    padded = started(tmp_path, "--padding_free false")
    assert padded.warnings == ("padding_free = false: the mask of padded sequences is not counted yet",)
