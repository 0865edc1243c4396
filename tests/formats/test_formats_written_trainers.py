"""Files of TRL, Accelerate, DeepSpeed and Megatron-Bridge that are written are read back as the same account."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import shardmath
from shardmath.errors import InputError
from shardmath.formats import read, written
from shardmath.formats.trainers.writing import settings_beside

GPU = "h100-80gb"
FSDP = {"data_parallel": "fsdp", "precision": "mixed"}
#: Jobs of Hugging Face, by the way in which they are sharded.
JOBS: dict[str, dict[str, Any]] = {
    "ddp": {}, "ddp in 8 bits": {"kernels": {"optimizer": "adamw_8bit"}, "recompute": "full", "micro_batch_size": 2},
    "fp32": {"kernels": {"precision": "fp32"}},
    "fsdp": {"kernels": FSDP},
    "fsdp without resharding": {"kernels": {**FSDP, "reshard": "never"}, "global_batch_size": 32},
    "fsdp with shards on the host": {"kernels": {**FSDP, "zero_offload": "fsdp"}},
    "fsdp of untied weights": {"kernels": FSDP, "model": "llama-3.1-8b"},
    "fsdp with adapters": {"kernels": {"data_parallel": "fsdp", "adapters": "q_v"}, "lora_rank": 8},
    "autocast": {"kernels": {"precision": "autocast"}, "model": "qwen3-0.6b"},
    "lora": {"kernels": {"adapters": "all_linear", "precision": "bf16", "adapter_precision": "fp32"}, "lora_rank": 8},
    "qlora": {"kernels": {"adapters": "q_v", "base_weights": "nf4", "precision": "bf16",
                          "adapter_precision": "fp32_uncopied"},
              "lora_rank": 16, "recompute": "full"},
    "8 bits": {"kernels": {"adapters": "all_linear", "base_weights": "int8", "precision": "bf16",
                           "adapter_precision": "fp32_uncopied"}, "lora_rank": 16},
    "dora": {"kernels": {"adapters": "all_linear", "adapter_kind": "dora", "precision": "bf16"}, "lora_rank": 8},
    "lora and ends": {"kernels": {"adapters": "all_linear", "precision": "bf16", "adapter_precision": "fp32",
                                  "adapter_ends": "copies"}, "lora_rank": 8, "model": "llama-3.1-8b"},
    "liger": {"kernels": {"loss": "liger", "swiglu": "fused", "norm": "fused", "precision": "bf16"}},
}
#: The same of TRL, which makes bf16 of adapters beside quantised weights.
OF_TRL = {name: {**JOBS[name], "kernels": {**JOBS[name]["kernels"], "adapter_precision": "low"}}
          for name in ("qlora", "8 bits")}
ZERO: dict[str, dict[str, Any]] = {
    "zero 1": {"zero_stage": 1, "reduce_bucket_size": 10**8}, "zero 2": {"zero_stage": 2},
    "zero 2 with one bucket": {"zero_stage": 2, "overlap_comm": 0},
    "zero 3 with the optimizer on the host": {"zero_stage": 3, "kernels": {"zero_offload": "optimizer"}},
    "zero 3 in fp32": {"zero_stage": 3, "kernels": {"precision": "fp32", "adapters": "all_linear"}, "lora_rank": 8},
    "zero 3": {"zero_stage": 3, "param_persistence_threshold": 10**4},
}


def account(job: dict[str, Any]) -> shardmath.Explanation:
    asked = {"implementation": "huggingface", "num_gpus": 8, "seq_length": 1024, **job}
    return shardmath.explain(asked.pop("model", "llama-3.2-1b"), GPU, **asked)


def read_back(text: str, file: Path, values: dict[str, str]) -> shardmath.Explanation:
    file.write_text(text, encoding="utf-8")
    run = read(file, values)
    assert run.unknown == ()
    return run.explain(GPU, **({} if "num_gpus" in run.arguments else {"num_gpus": 8}))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*JOBS, *ZERO])
def test_trl_goes_round(name: str, tmp_path: Path) -> None:
    asked = account({**JOBS, **ZERO, **OF_TRL}[name])
    text = written("trl", asked)
    again = read_back(text, tmp_path / "run.yaml", {})
    assert (again.ranks, again.choices, again.inputs) == (asked.ranks, asked.choices, asked.inputs)
    settings = yaml.safe_load(text)
    assert settings["model_name_or_path"] == asked.model.name
    assert settings["per_device_train_batch_size"] == asked.inputs["micro_batch_size"]
    assert ("deepspeed" in settings, "fsdp" in settings) == (name in ZERO, name.startswith("fsdp"))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*JOBS, "zero 2", "a mesh"])
def test_accelerate_goes_round_with_the_flags_of_its_head(name: str, tmp_path: Path) -> None:
    mesh = {**JOBS["fsdp"], "data_parallel_replicas": 2}
    asked = account({**JOBS, "zero 2": {"zero_stage": 2, "overlap_comm": 0}, "a mesh": mesh}[name])
    text = written("accelerate", asked)
    beside = settings_beside(asked)
    assert " ".join(f"--{key} {value}" for key, value in beside.items()) in text
    again = read_back(text, tmp_path / "run.yaml", beside)
    assert (again.ranks, again.choices) == (asked.ranks, asked.choices)
    assert yaml.safe_load(text)["num_processes"] == 8
    assert yaml.safe_load(text).get("parallelism_config") == ({
        "parallelism_config_dp_replicate_size": 2, "parallelism_config_dp_shard_size": 4} if name == "a mesh" else None)


@pytest.mark.slow
@pytest.mark.parametrize("name", ZERO)
def test_deepspeed_goes_round(name: str, tmp_path: Path) -> None:
    found = account(ZERO[name])
    text = written("deepspeed", found)
    again = read_back(text, tmp_path / "run.json", settings_beside(found))
    assert (again.ranks, again.inputs) == (found.ranks, found.inputs)
    assert json.loads(text)["zero_optimization"]["stage"] == ZERO[name]["zero_stage"]


@pytest.mark.slow
@pytest.mark.parametrize(("format", "job", "rule"), [
    ("deepspeed", {}, "must be of a run with --zero-stage"),
    ("accelerate", {"zero_stage": 2}, "must be deepspeed with overlap_comm = 1, which Accelerate's file cannot say; or"
                                      " give --no-overlap-comm; nearest legal: deepspeed"),
    ("trl", {"kernels": {"attention": "flash"}}, "must be a format that can say attention = flash"),
    ("trl", {**JOBS["fsdp"], "gradients": "fp32"}, "gradients = 'fp32': must be bf16, in which Accelerate sums what it"
                                                   " gathers in bf16; nearest legal: bf16"),
    ("trl", {"kernels": {**FSDP, "units": "root"}}, "kernel units = 'root': must be ends, as Accelerate 1.15 has it for"
                                                    " this model: give --kernel units=ends --kernel reshard=default;"
                                                    " nearest legal: ends"),
    ("accelerate", {"kernels": {**FSDP, "reshard": "always"}}, "kernel reshard = 'always': must be default, as"
                                                               " Accelerate 1.15"),
    ("trl", {**JOBS["fsdp"], "data_parallel_replicas": 2}, "must be a format that can say data_parallel_replicas = 2"),
    ("bridge", {}, "must be a format of the implementation"),
])
def test_what_a_format_cannot_say_is_refused(format: str, job: dict[str, Any], rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        written(format, account(job))


@pytest.mark.slow
@pytest.mark.parametrize("model", ["llama-3.1-8b", "mixtral-8x7b", "deepseek-v2-lite"])
def test_a_recipe_of_megatron_bridge_goes_round(model: str, tmp_path: Path) -> None:
    experts = {} if model.startswith("llama") else {"expert_parallel": 4, "recompute": "full"}
    found = shardmath.explain(model, GPU, num_gpus=8, seq_length=2048, global_batch_size=32, **experts)
    text = written("bridge", found)
    again = read_back(text, tmp_path / "run.py", {})
    assert (again.ranks, again.choices) == (found.ranks, found.choices)
    (function,) = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    assert function.name == "pretrain_config"
