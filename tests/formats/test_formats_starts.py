"""A written launch script starts: bash reads it, Megatron-LM's parser knows every flag, and no assertion fails."""

from __future__ import annotations

import csv
import json
import subprocess
from math import gcd
from pathlib import Path
from typing import Any

import pytest
from families import DATA
from megatron_starting import TABLE, launched, refuse_what_does_not_start

import shardmath
from shardmath.catalogue import read as catalogued
from shardmath.errors import InputError
from shardmath.formats import read, written
from shardmath.formats.megatron import flags as megatron_flags
from shardmath.formats.megatron.layout import SIZES, SWITCHES
from shardmath.models.model import Model

GPU = "h100-80gb"
#: Models of which Megatron-Core has not the architecture, and the first part of it that it lacks.
NOT_IN_MEGATRON = {
    "gpt-neox-20b": "residual = parallel", "pythia-6.9b": "residual = parallel", "pythia-1.4b": "residual = parallel",
    **dict.fromkeys(("olmo-2-1124-7b", "olmo-2-0325-32b", "olmo-3-1025-7b", "olmo-3-1125-32b"),
                    "no norms of whole queries and keys beside norms behind attention"),
    "minimax-m2": "norms of whole keys that several heads share",
    "apertus-8b-2509": "mlp = xielu", "c4ai-command-r-v01": "normalisation = layer_unbiased",
    "c4ai-command-a-03-2025": "normalisation = layer_unbiased",
    "c4ai-command-r7b-12-2024": "normalisation = layer_unbiased",
    "phi-1_5": "residual = parallel_one", "phi-2": "residual = parallel_one",
    "bloom-7b1": "positions = alibi", "bloom-176b": "positions = alibi",
    "gemma-4-31b": "heads = two_widths", "falcon-7b": "residual = parallel_one", "falcon-40b": "residual = parallel",
}
#: Models that Megatron-Core trains, and of which no flag of Megatron-LM says the part.
NO_FLAG = {
    "k-exaone-236b-a23b": "write = 'megatron': must be a format that can say dense_mtp_layers = True",
    **dict.fromkeys(("exaone-4.0-32b", "exaone-4.0-1.2b"),
                    "write = 'megatron': must be a format that can say norms = post"),
    "olmoe-1b-7b-0924": "write = 'megatron': must be a format that can say qk_norms = width",
    "opt-6.7b": "write = 'megatron': must be a format that can say mlp = relu",
    "starcoder2-3b": "write = 'megatron': must be a format that can say rope_base = 999999",
    **dict.fromkeys(("gemma-7b", "gemma-2-2b", "gemma-2-9b", "gemma-2-27b", "gemma-3-1b", "gemma-3-4b", "gemma-3-12b",
                     "gemma-3-27b"),
                    "mlp = 'geglu': must be another one: Megatron-LM has no flag for it"),
    **dict.fromkeys(("glm-4-9b-0414", "glm-4-32b-0414"),
                    "write = 'megatron': must be a format that can say norms = both"),
}
#: Models with a test of their own: GPT-OSS says its peak anew, and no flag says the scaling of Kimi K2.
APART = ("gpt-oss-20b", "gpt-oss-120b", "kimi-k2-instruct")
MODELS = [name for name in catalogued("models") if name not in (*NOT_IN_MEGATRON, *NO_FLAG, *APART)]


def layouts(model: Model) -> list[dict[str, Any]]:
    """Legal layouts of a model: one GPU, tensor parallelism, a pipeline over nodes, and experts shared out."""
    length = min(model.max_seq_length, 2048)
    tensor = max(size for size in (1, 2, 4, 8) if model.num_attention_heads % size == 0
                 and (model.num_kv_heads % size == 0 or size % model.num_kv_heads == 0))
    stages = next(size for size in (4, 3, 2, 1) if model.num_layers % size == 0)
    found: list[dict[str, Any]] = [
        {"num_gpus": 1}, {"num_gpus": 2 * tensor, "tensor_parallel": tensor},
        {"num_gpus": 8 * stages, "tensor_parallel": 2 - tensor % 2, "pipeline_parallel": stages,
         "context_parallel": 1 if model.attention_window else 2, "global_batch_size": 32 * stages},
    ]
    if model.num_experts:
        found += [{"num_gpus": 16, "expert_parallel": gcd(8, model.num_experts), "tensor_parallel": 2},
                  {"num_gpus": 16, "expert_parallel": 4, "tensor_parallel": 2, "expert_tensor_parallel": 1}]
    return [{"seq_length": length, **layout} for layout in found]


def again(text: str, folder: Path, found: shardmath.Explanation) -> None:
    """Assert that a script is the run that it was written for, field by field."""
    file = folder / "run.sh"
    file.write_text(text, encoding="utf-8")
    run = read(file)
    assert run.unknown == ()
    account = run.explain(GPU, node_size=found.inputs["node_size"])
    assert account.inputs == found.inputs
    assert account.choices == found.choices
    assert account.switches == found.switches
    assert account.ranks == found.ranks
    names = {"name", "source", "note", "max_seq_length", "gelu", "own_router", "model_type"}
    if found.model.norm_epsilon is None:
        names.add("norm_epsilon")
    assert run.model.model_dump(exclude=names) == found.model.model_dump(exclude=names)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_every_model_of_the_catalogue_starts_and_is_read_back(name: str, tmp_path: Path) -> None:
    for layout in layouts(Model.named(name)):
        found = shardmath.explain(name, GPU, **layout)
        text = written("megatron", found)
        flags = refuse_what_does_not_start(text)
        again(text, tmp_path, found)
        model = found.model
        assert flags.get("norm-epsilon") == model.norm_epsilon
        assert flags.get("rotary-base", 0) == model.rope_base
        if model.num_experts:
            assert flags["moe-router-load-balancing-type"] != ["none"] or "moe-router-enable-expert-bias" in flags


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::shardmath.errors.InputWarning")
def test_sinks_windows_and_bounded_gates_are_read_back(tmp_path: Path) -> None:
    """GPT-OSS, whose moments of a step are not counted, so that ``peak`` is said anew."""
    config = json.loads((DATA / "public_configs.json").read_text())["openai/gpt-oss-20b"]["config"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = shardmath.explain(tmp_path / "config.json", GPU, num_gpus=16, expert_parallel=8, seq_length=2048)
    file = tmp_path / "run.sh"
    file.write_text(written("megatron", found))
    run = read(file)
    assert run.unknown == ()
    model = run.model.model_dump(include={"attention_window", "full_attention_step", "attention_sinks", "mlp"})
    assert model == {"attention_window": 128, "full_attention_step": 2, "attention_sinks": True,
                     "mlp": "swiglu_clamped"}
    assert run.explain(GPU, kernels={"peak": "saved"}).ranks == found.ranks


@pytest.mark.slow
@pytest.mark.parametrize("name", APART)
def test_scripts_of_gpt_oss_start_and_that_of_kimi_k2_is_refused(name: str) -> None:
    found = shardmath.explain(name, GPU, num_gpus=16, expert_parallel=8, tensor_parallel=2, expert_tensor_parallel=1,
                              seq_length=2048)
    if name == "kimi-k2-instruct":
        with pytest.raises(InputError, match="must be a format that can say rope_scaling with kind = yarn"):
            written("megatron", found)
    else:
        assert "disable-bias-linear" not in refuse_what_does_not_start(written("megatron", found))


@pytest.mark.slow
@pytest.mark.parametrize("name", NO_FLAG)
def test_what_no_flag_says_is_refused(name: str) -> None:
    with pytest.raises(InputError) as caught:
        written("megatron", shardmath.explain(name, GPU, implementation="megatron", seq_length=2048))
    assert str(caught.value).startswith(NO_FLAG[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", NOT_IN_MEGATRON)
def test_what_megatron_has_not_is_refused(name: str) -> None:
    """By name with its own implementation, and by what is missing where Megatron-Core is asked for."""
    rule = "must be a format of the implementation, and this one is megatron's"
    with pytest.raises(InputError) as caught:
        written("megatron", shardmath.explain(name, GPU, seq_length=2048))
    assert str(caught.value) == f"write = 'megatron': {rule}; nearest legal: trl or accelerate or deepspeed"
    with pytest.raises(InputError) as caught:
        shardmath.explain(name, GPU, implementation="megatron", seq_length=2048)
    assert str(caught.value).startswith(f"implementation = 'megatron': must be one that has {name}")
    assert NOT_IN_MEGATRON[name] in str(caught.value)
    assert "; nearest legal: huggingface" in str(caught.value)


#: What a layout of Megatron-LM may have of its own, each on the smallest model that has it.
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "interleaved": ("llama-3.2-1b", {
        "num_gpus": 8, "pipeline_parallel": 2, "virtual_pipeline": 4, "tensor_parallel": 2}),
    "groups of micro-batches": ("llama-3.2-1b", {
        "num_gpus": 4, "pipeline_parallel": 4, "virtual_pipeline": 2, "microbatch_group": 8, "global_batch_size": 16}),
    "first and last stage": ("llama-3.2-1b", {
        "num_gpus": 4, "pipeline_parallel": 4, "first_stage_layers": 3, "last_stage_layers": 5}),
    "embedding and loss": ("llama-3.2-3b", {
        "num_gpus": 3, "pipeline_parallel": 3, "account_for_embedding": 1, "account_for_loss": 1}),
    "listed stages": ("llama-3.2-1b", {"num_gpus": 4, "pipeline_parallel": 4, "pipeline_layout": (3, 5, 5, 3)}),
    "listed stages with MTP": ("deepseek-v3", {
        "num_gpus": 64, "pipeline_parallel": 8, "expert_parallel": 8, "pipeline_layout": (7, 8, 8, 8, 8, 8, 8, 6)}),
    "ETP above TP": ("mixtral-8x7b-v0.1", {"num_gpus": 16, "expert_parallel": 4, "expert_tensor_parallel": 2}),
    "both overlaps": ("llama-3.2-1b", {"num_gpus": 8, "overlap_grad_reduce": 1, "overlap_param_gather": 1}),
    "no overlap": ("llama-3.2-1b", {"num_gpus": 8, "overlap_grad_reduce": 0}),
    "all overlaps": ("llama-3.2-1b", {"num_gpus": 8, "tensor_parallel": 2, "tp_comm_overlap": 1}),
    "no sequence parallelism": ("llama-3.2-1b", {"num_gpus": 8, "tensor_parallel": 2, "sequence_parallel": False}),
    "full recompute": ("llama-3.2-1b", {"num_gpus": 2, "recompute": "full"}),
    "every other layer": ("llama-3.2-1b", {"num_gpus": 2, "recompute": "full", "recompute_num_layers": 2}),
    "blocks": ("llama-3.2-1b", {
        "num_gpus": 2, "recompute": "full", "recompute_num_layers": 3, "kernels": {"recompute_method": "block"}}),
    "modules": ("llama-3.2-1b", {"num_gpus": 2, "recompute": "core_attention+mlp"}),
    "modules of experts": ("deepseek-v2-lite", {
        "num_gpus": 8, "expert_parallel": 8, "recompute": "moe_act+layernorm+mla_up_proj+shared_experts"}),
    "fp8": ("llama-3.2-1b", {"num_gpus": 2, "kernels": {"fp8": "delayed", "fp8_weights": "primary"},
                             "fp8_amax_history_len": 1024}),
    "fp4": ("llama-3.2-1b", {"num_gpus": 2, "kernels": {"fp8": "nvfp4"}}),
    "blocks of fp8": ("llama-3.2-1b", {"num_gpus": 2, "kernels": {"fp8": "block"}}),
    "fp16": ("llama-3.2-1b", {"num_gpus": 2, "kernels": {"precision": "fp16"}}),
    "gradients in bf16": ("llama-3.2-1b", {"num_gpus": 2, "gradients": "bf16"}),
    "precision-aware Adam": ("llama-3.2-1b", {
        "num_gpus": 2, "kernels": {"optimizer": "precision_aware"}, "exp_avg_bytes": 2, "exp_avg_sq_bytes": 1}),
    "Muon": ("llama-3.2-1b", {"num_gpus": 2, "kernels": {"optimizer": "muon"}, "distributed_optimizer": False}),
    "Muon of some parameters each": ("llama-3.2-1b", {
        "num_gpus": 2, "kernels": {"optimizer": "dist_muon"}, "distributed_optimizer": False}),
    "SGD": ("llama-3.2-1b", {"num_gpus": 2, "kernels": {"optimizer": "sgd"}}),
    "offloaded states": ("llama-3.2-1b", {"num_gpus": 2, "optimizer_offload_percent": 50}),
    "offloaded layers": ("llama-3.2-1b", {"num_gpus": 2, "cpu_offloading_num_layers": 2}),
    "replicas": ("llama-3.2-1b", {"num_gpus": 8, "data_parallel_replicas": 2}),
    "plain data parallelism": ("llama-3.2-1b", {"num_gpus": 2, "distributed_optimizer": False}),
    "kernels": ("llama-3.2-1b", {"num_gpus": 4, "context_parallel": 2, "kernels": {
        "weight_gradient": "separate", "swiglu": "unfused", "rope": "unfused", "mask": "dataloader",
        "loss": "te_fused", "context": "all_to_all"}}),
    "local kernels": ("llama-3.2-1b", {
        "num_gpus": 2, "kernels": {"peak": "megatron_local", "attention": "unfused"}}),
    "dropout": ("gpt2", {"num_gpus": 2, "seq_length": 1024, "hidden_dropout": 1, "attention_dropout": 1}),
    "capacity": ("mixtral-8x7b-v0.1", {
        "num_gpus": 8, "expert_parallel": 8, "expert_capacity_percent": 125,
        "kernels": {"permute": "unfused", "router_precision": "bf16"}}),
    "inputs of experts on the host": ("mixtral-8x7b-v0.1", {
        "num_gpus": 8, "expert_parallel": 8, "kernels": {"module_offload": "expert_fc1"}}),
    "fused router": ("deepseek-v3", {"num_gpus": 64, "expert_parallel": 64, "kernels": {
        "router": "fused", "balance": "both"}}),
    "GPUs that no full nodes hold": ("llama-3.2-1b", {"num_gpus": 12, "tensor_parallel": 2}),
}


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_megatron_starts_and_is_read_back(way: str, tmp_path: Path) -> None:
    name, layout = WAYS[way]
    found = shardmath.explain(name, GPU, **{"seq_length": 2048, **layout})
    text = written("megatron", found, layout.get("pipeline_layout"))
    refuse_what_does_not_start(text)
    again(text, tmp_path, found)


@pytest.mark.process
def test_llama_3_1_has_its_base_and_its_scaling() -> None:
    flags = refuse_what_does_not_start(written("megatron", shardmath.explain("llama-3.1-8b", GPU, num_gpus=8)))
    assert (flags["rotary-base"], flags["norm-epsilon"]) == (500_000, 1e-5)
    assert flags["use-rope-scaling"]
    assert flags["rope-scaling-factor"] == 8


def test_a_factor_that_megatron_does_not_build_with_is_said() -> None:
    eight, other = (written("megatron", shardmath.explain(name, GPU)) for name in ("llama-3.1-8b", "llama-3.2-1b"))
    assert "gpt_builders.py" not in eight
    assert "pretrain_gpt.py builds its model with factor 8" in other


@pytest.mark.slow
def test_deepseek_has_yarn_and_the_scale_of_its_experts() -> None:
    text = written("megatron", shardmath.explain("deepseek-v3", GPU, num_gpus=64, expert_parallel=64))
    flags = refuse_what_does_not_start(text)
    assert (flags["rotary-scaling-factor"], flags["mscale"], flags["mscale-all-dim"]) == (40, 1, 1)
    assert flags["moe-router-topk-scaling-factor"] == 2.5
    assert flags["moe-router-enable-expert-bias"]


@pytest.mark.process
@pytest.mark.parametrize(("gpu", "layout", "set_to_one"), [
    (GPU, {"num_gpus": 8}, False), (GPU, {"num_gpus": 8, "tensor_parallel": 2}, True),
    (GPU, {"num_gpus": 8, "context_parallel": 2}, True), ("b200", {"num_gpus": 8, "tensor_parallel": 2}, False),
    ("a100-80gb", {"num_gpus": 8, "tensor_parallel": 2}, True),
])
def test_one_queue_exactly_where_megatron_asserts_it(gpu: str, layout: dict[str, Any], set_to_one: bool) -> None:
    text = written("megatron", shardmath.explain("llama-3.1-8b", gpu, **layout))
    assert ("export CUDA_DEVICE_MAX_CONNECTIONS=1\n" in text) == set_to_one
    refuse_what_does_not_start(text, before_blackwell=gpu != "b200")


@pytest.mark.process
@pytest.mark.parametrize(("gpu", "gpus", "processes", "nodes"), [
    (GPU, 8, 8, 1), (GPU, 4, 4, 1), (GPU, 64, 8, 8), (GPU, 12, 6, 2), ("gb200", 72, 4, 18),
])
def test_a_process_for_each_gpu_of_each_server(gpu: str, gpus: int, processes: int, nodes: int) -> None:
    text = written("megatron", shardmath.explain("llama-3.2-1b", gpu, num_gpus=gpus))
    assert f"    --nproc_per_node {processes}\n    --nnodes {nodes}\n" in text
    assert launched(text)[1].num_gpus == gpus
    assert ("--master_addr" in text) == ("--node_rank" in text) == (nodes > 1)


@pytest.mark.process
def test_nodes_need_a_rank_and_an_address(tmp_path: Path) -> None:
    """bash itself says what is missing, and starts nothing."""
    file = tmp_path / "run.sh"
    file.write_text(written("megatron", shardmath.explain("llama-3.2-1b", GPU, num_gpus=16)))
    program = tmp_path / "torchrun"
    program.write_text('#!/bin/bash\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)

    def run(**environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["bash", str(file)], env={"PATH": f"{tmp_path}:/usr/bin:/bin", **environment}, text=True,
                              capture_output=True, check=False)

    assert "set NODE_RANK, from 0 to 1" in run().stderr
    assert "set MASTER_ADDR" in run(NODE_RANK="1").stderr
    assert run(NODE_RANK="1").stdout == ""
    words = run(SLURM_NODEID="1", MASTER_ADDR="first").stdout.split("\n")
    assert words[:10] == ["--nproc_per_node", "8", "--nnodes", "2", "--node_rank", "1", "--master_addr", "first",
                          "--master_port", "29500"]
    assert words[10:12] == ["pretrain_gpt.py", "--num-layers"]


def test_placeholders_are_marked() -> None:
    lines = written("megatron", shardmath.explain("llama-3.1-8b", GPU)).splitlines()
    marked = {lines[place + 1].split()[0] for place, line in enumerate(lines) if line.startswith("    # REPLACE")}
    assert marked == {"--mock-data", "--tokenizer-type", "--lr", "--train-iters"}


def test_what_a_script_leaves_out_of_the_model_is_said() -> None:
    text = written("megatron", shardmath.explain("mistral-small-3.1-24b-base-2503", GPU, num_gpus=8))
    left_out = "the language model of a model of images: its image encoder and the projection from it are not counted"
    assert f"# Not in this file: {left_out}.\n" in text


@pytest.mark.slow
@pytest.mark.parametrize(("name", "layout", "line"), [
    ("llama-3.2-1b", {"overlap_param_gather": 1, "overlap_grad_reduce": 0},
     "overlap_param_gather = 1: must be given with overlap_grad_reduce: Megatron-LM asserts it"),
    ("llama-3.2-1b", {"overlap_param_gather": 1, "overlap_grad_reduce": 1, "distributed_optimizer": False},
     "overlap_param_gather = 1: must be given with distributed_optimizer: Megatron-LM asserts it"),
    ("llama-3.2-1b", {"tp_comm_overlap": 1, "tensor_parallel": 2, "num_gpus": 2, "sequence_parallel": False},
     "tp_comm_overlap = 1: must be given with sequence_parallel: Megatron-LM asserts it"),
    ("mixtral-8x7b-v0.1", {"kernels": {"balance": "bias"}},
     "balance = 'bias': must be loss or none where scores are no sigmoids: Megatron-LM asserts it"),
])
def test_what_would_not_start_is_refused(name: str, layout: dict[str, Any], line: str) -> None:
    with pytest.raises(InputError) as caught:
        written("megatron", shardmath.explain(name, GPU, **layout))
    assert str(caught.value) == line


@pytest.mark.parametrize("changes", [
    {"rope_scaling": {"kind": "linear", "factor": 2}}, {"rope_scaling": {"kind": "yarn", "factor": 4}},
    {"rope_base": 10_000.5},
])
def test_a_rotary_embedding_that_no_flag_says_is_refused(changes: dict[str, Any]) -> None:
    model = Model(**{**Model.named("llama-2-7b").model_dump(), **changes})
    with pytest.raises(InputError, match="must be a format that can say rope_"):
        written("megatron", shardmath.explain(model, GPU, seq_length=2048))


def test_the_parser_has_the_flags_that_are_read() -> None:
    """Of each size and switch that is read there is a flag in the release; older and newer flags are read too."""
    with open(TABLE, newline="") as table:
        known = {row["flag"] for row in csv.DictReader(table)}
    assert {*SIZES.values(), *SWITCHES.values()} <= known
    assert len(megatron_flags.WITHOUT_EFFECT & known) > 250
