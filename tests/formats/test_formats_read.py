"""Published launch scripts and configurations are the models and the layouts that their publishers say they are."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import pytest

from shardmath import explain
from shardmath.errors import InputError
from shardmath.formats import read
from shardmath.formats.torchtitan.writing import configuration
from shardmath.models.model import Model

DATA = Path(__file__).parents[1] / "data" / "formats"
#: What does not belong to the shape: names, and lengths that are not a tensor.
NAMES = {"name", "source", "note", "max_seq_length"}
#: Settings that a file leaves to whoever runs it.
SETTINGS: dict[str, dict[str, str]] = {
    "megatron_deepseek_v3.sh": {"USE_MEGATRON_FSDP": "0"},
    "nemo_gpt.yaml": {"model.megatron_amp_O2": "true"},
}


def shape(model: Model, **changes: Any) -> dict[str, Any]:
    return model.model_dump(exclude=NAMES) | changes


@pytest.mark.parametrize(("file", "name", "changes"), [
    ("megatron_gpt3_175b.sh", "gpt-3-175b", {"gelu": "fused", "norm_epsilon": 1e-5}),  # of Megatron-Core
    ("megatron_llama3_8b_fp8.sh", "llama-3.1-8b",  # a vocabulary of NullTokenizer, and another rotary embedding
     {"vocab_size": 128257, "rope_base": 1_000_000, "rope_scaling": None}),
    ("megatron_mixtral_8x7b.sh", "mixtral-8x7b", {}),
    ("megatron_deepseek_v3.sh", "deepseek-v3", {}),
    ("nemo_llama3.1_70b.yaml", "llama-3.1-70b", {"rope_base": 10_000, "rope_scaling": None}),  # NeMo's default
    ("nemo_mixtral_8x7b.yaml", "mixtral-8x7b", {"rope_base": 10_000}),
    ("bridge_llama3_8b.yaml", "llama-3-8b", {}),
    ("torchtitan_llama3_8b.toml", "llama-3.1-8b", {}),
    ("torchtitan_llama3_70b.toml", "llama-3.1-70b", {}),
])
def test_published_files_have_the_shape_of_the_catalogue(file: str, name: str, changes: dict[str, Any]) -> None:
    found = read(DATA / file, SETTINGS.get(file)).model
    expected = shape(Model.named(name), **changes)
    if found.learned_positions:
        expected["learned_positions"] = found.max_seq_length
    assert shape(found) == expected


@pytest.mark.parametrize(("file", "arguments", "kernels"), [
    ("megatron_gpt3_175b.sh",
     {"tensor_parallel": 8, "pipeline_parallel": 16, "global_batch_size": 1536, "gradients": "bf16",
      "distributed_optimizer": False, "sequence_parallel": False, "hidden_dropout": 1, "attention_dropout": 1,
      "recompute": "none", "seq_length": 2048},
     {"precision": "fp16", "mask": "dataloader"}),
    ("megatron_llama3_8b_fp8.sh",
     {"num_gpus": 8, "gradients": "bf16", "distributed_optimizer": True, "fp8_amax_history_len": 1024,
      "global_batch_size": 128, "seq_length": 8192},
     {"fp8": "delayed", "fp8_weights": "primary", "loss": "native_fused"}),
    ("megatron_mixtral_8x7b.sh",
     {"pipeline_parallel": 4, "expert_parallel": 8, "gradients": "fp32", "distributed_optimizer": True},
     {"mask": "dataloader", "dispatch": "alltoall", "permute": "unfused", "router": "unfused",
      "router_precision": "bf16", "balance": "loss", "expert_products": "grouped", "weighting": "separate"}),
    ("megatron_deepseek_v3.sh",
     {"expert_parallel": 8, "expert_tensor_parallel": 1, "recompute": "mlp+moe+mla_up_proj+layernorm",
      "vocab_multiple": 3232, "micro_batch_size": 4},
     {"dispatch": "hybridep", "permute": "fused", "router": "unfused", "router_precision": "fp32", "balance": "both",
      "expert_products": "grouped", "weighting": "separate"}),
    ("megatron_test_tp2_pp2.yaml",
     {"tensor_parallel": 2, "pipeline_parallel": 2, "micro_batch_size": 4, "global_batch_size": 32,
      "torch_workspace_bytes": 8 * 4096 * 1024, "distributed_optimizer": False},
     {"attention": "te_unfused", "weight_gradient": "separate", "mask": "dataloader"}),
    ("nemo_llama3.1_70b.yaml",
     {"num_gpus": 1024, "tensor_parallel": 4, "pipeline_parallel": 4, "virtual_pipeline": 10, "context_parallel": 2,
      "sequence_parallel": True, "gradients": "fp32", "distributed_optimizer": True},
     {"loss": "native_fused"}),
    ("nemo_mixtral_8x7b.yaml",
     {"num_gpus": 64, "gradients": "bf16", "expert_capacity_percent": 100, "virtual_pipeline": 8},
     {"dispatch": "alltoall", "permute": "unfused", "router": "unfused", "router_precision": "bf16",
      "balance": "loss", "expert_products": "sequential", "weighting": "separate"}),
    ("nemo_gpt.yaml",
     {"gradients": "fp32", "distributed_optimizer": False, "seq_length": 512, "micro_batch_size": 4},
     {"precision": "fp16", "weight_gradient": "separate", "rope": "unfused"}),
    ("bridge_llama3_8b.yaml",
     {"context_parallel": 2, "gradients": "fp32", "distributed_optimizer": True, "global_batch_size": 512},
     {"loss": "te_fused"}),
    ("torchtitan_llama3_8b.toml", {"recompute": "selective", "micro_batch_size": 1, "seq_length": 8192},
     {"optimizer_kernel": "fused", "reshard": "default"}),
    ("torchtitan_llama3_70b.toml", {"recompute": "full", "micro_batch_size": 8, "tensor_parallel": 8},
     {"optimizer_kernel": "fused", "reshard": "default"}),
    ("torchtitan_debug_model.toml", {"recompute": "full", "recompute_num_layers": 2, "seq_length": 2048},
     {"optimizer_kernel": "fused", "reshard": "default"}),
])
def test_published_files_ask_for_their_layout(file: str, arguments: dict[str, Any], kernels: dict[str, str]) -> None:
    found = read(DATA / file, SETTINGS.get(file))
    assert {name: found.arguments.get(name) for name in arguments} == arguments
    assert found.arguments["kernels"] == kernels
    assert found.unknown == ()


@pytest.mark.slow
@pytest.mark.parametrize("file", sorted(path.name for path in DATA.iterdir()))
def test_published_files_are_accounted_for(file: str) -> None:
    run = read(DATA / file, SETTINGS.get(file))
    sizes = ("tensor_parallel", "context_parallel", "pipeline_parallel", "expert_parallel")
    found = run.explain("h100-80gb", num_gpus=prod(run.arguments.get(name, 1) for name in sizes))
    assert found.peak.total > 0
    assert found.inputs["num_layers"] == run.model.num_layers


def test_every_flag_of_a_published_file_has_its_place() -> None:
    run = read(DATA / "megatron_llama3_8b_fp8.sh")
    assert not set(run.understood) & set(run.without_effect)
    assert {"--num-layers", "--fp8-format", "--sequence-parallel", "--no-create-attention-mask-in-dataloader",
            "--rotary-base", "--overlap-grad-reduce"} <= set(run.understood)
    assert {"--use-mcore-models", "--save", "--mock-data"} <= set(run.without_effect)
    assert run.warnings == ()


def test_gpus_of_a_launcher_that_cannot_hold_the_layout_are_said() -> None:
    (warning,) = read(DATA / "megatron_gpt3_175b.sh").warnings
    assert warning.startswith("the 8 GPUs of the launcher are not a multiple of TP * CP * PP = 128")


def test_what_nobody_counted_is_said() -> None:
    warnings = read(DATA / "nemo_llama3.1_70b.yaml").warnings
    assert "model.ub_tp_comm_overlap is not counted yet: buffers that overlap tensor-parallel communication" in warnings


@pytest.mark.parametrize(("file", "field", "rule"), [
    ("megatron_deepseek_v3.sh", "--use-megatron-fsdp",
     "must not be given with experts or latent attention: Megatron-FSDP with them is not counted yet"),
    ("nemo_gpt.yaml", "model.megatron_amp_O2", "must be true: fp32 weights with autocast are not counted yet"),
])
def test_what_is_not_supported_is_refused_by_name(file: str, field: str, rule: str) -> None:
    with pytest.raises(InputError) as caught:
        read(DATA / file)
    assert (caught.value.field, caught.value.rule) == (field, rule)


def test_the_number_of_gpus_decides_a_batch_that_is_per_rank() -> None:
    run = read(DATA / "torchtitan_llama3_70b.toml")
    assert run.changed({"num_gpus": 64})["global_batch_size"] == 64
    assert run.changed({"data_parallel": 3})["global_batch_size"] == 24
    assert run.changed({"global_batch_size": 16, "num_gpus": 64})["global_batch_size"] == 16


def test_changes_win_and_kernels_are_merged() -> None:
    run = read(DATA / "megatron_llama3_8b_fp8.sh")
    changed = run.changed({"data_parallel": 2, "kernels": {"loss": "te_fused"}})
    assert "num_gpus" not in changed
    assert changed["kernels"] == {**run.arguments["kernels"], "loss": "te_fused"}


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must end in one of"):
        read(tmp_path / "run.ini")
    with pytest.raises(InputError, match="must be the path of an existing file"):
        read(tmp_path / "run.sh")
    (tmp_path / "list.yaml").write_text("- 1\n")
    with pytest.raises(InputError, match="must hold a table"):
        read(tmp_path / "list.yaml")
    (tmp_path / "large.sh").write_text("x" * 2**17)
    with pytest.raises(InputError, match="at most 65536 bytes"):
        read(tmp_path / "large.sh")


@pytest.mark.parametrize(("values", "field", "part"), [
    ({"model.name": "flux"}, "model.name", "other models of torchtitan are not counted yet"),
    ({"model.flavor": "9B"}, "model.flavor", "must be one of debugmodel, 8B, 70B, 405B, 1B, 3B of llama3"),
    ({"parallelism.expert_parallel_comm_backend": "deepep"}, "parallelism.expert_parallel_comm_backend",
     "DeepEP sends tokens to are not counted yet"),
    ({"model.converters": "float8"}, "model.converters", "FP8, FP4 and adapters are not counted yet with torchtitan"),
    ({"training.seq_len": "x"}, "training.seq_len", "must be an integer"),
    ({"training.enable_cpu_offload": "true"}, "training.enable_cpu_offload", "must be false"),
    ({"parallelism.pipeline_parallel_degree": "4", "parallelism.pipeline_parallel_schedule": "GPipe"},
     "parallelism.pipeline_parallel_first_stage_less_layers", "must let 4 stages share out the layers evenly"),
    ({"parallelism.pipeline_parallel_degree": "4", "parallelism.pipeline_parallel_schedule": "LoopedBFS"},
     "parallelism.pipeline_parallel_schedule", "must be one of 1F1B"),
    ({"activation_checkpoint.mode": "memory_budget"}, "activation_checkpoint.mode", "others are not counted yet"),
    ({"parallelism.data_parallel_shard_degree": "1", "parallelism.data_parallel_replicate_degree": "8"},
     "parallelism.data_parallel_shard_degree", "DistributedDataParallel is not counted yet"),
])
def test_keys_of_torchtitan_are_checked(values: dict[str, str], field: str, part: str) -> None:
    with pytest.raises(InputError) as caught:
        read(DATA / "torchtitan_llama3_8b.toml", values)
    assert caught.value.field == field
    assert part in caught.value.rule


@pytest.mark.parametrize(("name", "flavor", "ranks", "model", "degrees"), [
    ("deepseek_v3", "16B", "8", "deepseek-v2-lite", (8, 1)), ("deepseek_v3", "671B", "1", "deepseek-v3", (1, 4)),
    ("qwen3", "30B-A3B", "8", "qwen3-30b-a3b", (8, 1)), ("llama4", "17bx16e", "16", "llama-4-scout-17b-16e", (16, 1)),
])
def test_models_with_experts_of_torchtitan(
    name: str, flavor: str, ranks: str, model: str, degrees: tuple[int, int]
) -> None:
    run = read(DATA / "torchtitan_llama3_8b.toml", {
        "model.name": name, "model.flavor": flavor, "parallelism.expert_parallel_degree": ranks,
        "parallelism.tensor_parallel_degree": "4",
    })
    assert (run.model.name, run.model.num_mtp_layers) == (model, 0)
    assert (run.arguments["expert_parallel"], run.arguments["expert_tensor_parallel"]) == degrees


@pytest.mark.parametrize(("flavor", "stages", "schedule", "arguments"), [
    ("405B", "8", "1F1B", {"account_for_embedding": 1, "account_for_loss": 1}),
    ("405B", "8", "Interleaved1F1B", {"account_for_embedding": 1, "account_for_loss": 1, "virtual_pipeline": 2}),
    ("8B", "4", "1F1B", {"pipeline_layout": "8,9,8,7"}),
])
def test_stages_with_embedding_and_head_as_layers(
    flavor: str, stages: str, schedule: str, arguments: dict[str, Any]
) -> None:
    """torchtitan 0.2.2 shares out 8B so itself: ``generate_llm_fqn_per_model_part(4, 32, 1, 1)``."""
    run = read(DATA / "torchtitan_llama3_8b.toml", {
        "model.flavor": flavor, "parallelism.pipeline_parallel_degree": stages,
        "parallelism.pipeline_parallel_schedule": schedule,
    })
    assert {name: run.arguments[name] for name in arguments} == arguments


def test_a_pipeline_of_torchtitan() -> None:
    values = {f"parallelism.pipeline_parallel_{end}_stage_less_layers": "0" for end in ("first", "last")}
    values |= {"parallelism.pipeline_parallel_degree": "4", "training.local_batch_size": "16",
               "parallelism.pipeline_parallel_schedule": "Interleaved1F1B"}
    run = read(DATA / "torchtitan_llama3_8b.toml", values)
    assert {name: run.arguments[name] for name in ("schedule", "virtual_pipeline", "micro_batch_size")} == {
        "schedule": "interleaved", "virtual_pipeline": 2, "micro_batch_size": 1}
    assert run.changed({"num_gpus": 8})["global_batch_size"] == 32


@pytest.mark.parametrize(("values", "compiled", "warned"), [
    ({}, ("layers", "dtensor_compiled"), ()),
    ({"compile.components": "loss"}, (None, "dtensor_compiled"), ()),
    ({"compile.components": "model"}, ("layers", None), ()),
    ({"parallelism.pipeline_parallel_degree": "4", "parallelism.pipeline_parallel_schedule": "1F1B"},
     ("layers", None), ("loss",)),
    ({"model.name": "deepseek_v3", "model.flavor": "16B"}, (None, "dtensor_compiled"), ("model",)),
])
def test_what_torchtitan_compiles(
    values: dict[str, str], compiled: tuple[str | None, str | None], warned: tuple[str, ...],
) -> None:
    run = read(DATA / "torchtitan_llama3_8b.toml", {"compile.enable": "true", **values})
    assert tuple(run.arguments["kernels"].get(axis) for axis in ("compile", "loss")) == compiled
    assert run.warnings == tuple(
        f"compile.enable of {part} is not counted yet: what compilation changes" for part in warned)


@pytest.mark.slow
def test_an_optimizer_in_the_backward_pass_is_read_and_written(tmp_path: Path) -> None:
    run = read(DATA / "torchtitan_llama3_8b.toml", {"optimizer.early_step_in_backward": "true"})
    assert run.arguments["kernels"]["optimizer_step"] == "backward"
    made = explain(run.model, "h100-80gb", **run.changed({"num_gpus": 8}))
    (path := tmp_path / "written.toml").write_text(configuration(made, None))
    assert "early_step_in_backward = true" in path.read_text()
    assert read(path).arguments["kernels"]["optimizer_step"] == "backward"
    with pytest.raises(InputError, match="with optimizer_step = backward: gradients of several micro-batches"):
        explain(run.model, "h100-80gb", **{**run.changed({"num_gpus": 8}), "global_batch_size": 16})


@pytest.mark.parametrize("mode", ["inference", "rl"])
def test_functional_tests_that_do_not_train_are_refused(mode: str, tmp_path: Path) -> None:
    text = (DATA / "megatron_test_tp2_pp2.yaml").read_text()
    (tmp_path / "pretraining.yaml").write_text(f"{text}\nMODE: pretraining\n")
    assert read(tmp_path / "pretraining.yaml").arguments["tensor_parallel"] == 2
    (tmp_path / "other.yaml").write_text(f"{text}\nMODE: {mode}\n")
    with pytest.raises(InputError, match=f"MODE = '{mode}': must be pretraining"):
        read(tmp_path / "other.yaml")


def test_keys_of_earlier_releases_of_torchtitan(tmp_path: Path) -> None:
    file = tmp_path / "early.toml"
    file.write_text('[model]\nname = "llama3"\nflavor = "8B"\n[training]\nbatch_size = 2\nseq_len = 4096\n'
                    "tensor_parallel_degree = 4\ncompile = true\n[activation_checkpoint]\nmode = 'none'\n")
    run = read(file)
    arguments = run.arguments
    assert run.warnings == ("training.compile is not counted yet: what compilation changes",)
    assert (arguments["micro_batch_size"], arguments["tensor_parallel"]) == (2, 4)
