"""What is written for a layout is read back as the same account, to the byte."""

from __future__ import annotations

import csv
import re
import sys
import tomllib
from math import prod
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from formats.test_formats_read import DATA, SETTINGS

import shardmath
from shardmath.errors import InputError
from shardmath.formats import FORMATS, read, written

GPU = "h100-80gb"
SIZES = ("tensor_parallel", "context_parallel", "pipeline_parallel", "expert_parallel")


def account(text: str, folder: Path, suffix: str, **changes: Any) -> shardmath.Explanation:
    file = folder / f"run{suffix}"
    file.write_text(text, encoding="utf-8")
    run = read(file)
    assert run.unknown == ()
    return run.explain(GPU, **changes)


@pytest.mark.slow
@pytest.mark.parametrize("format", ["megatron", "nemo", "bridge"])
@pytest.mark.parametrize("file", sorted(path.name for path in DATA.iterdir() if "torchtitan" not in path.name))
def test_published_runs_of_megatron_go_round(file: str, format: str, tmp_path: Path) -> None:
    run = read(DATA / file, SETTINGS.get(file))
    gpus = prod(run.arguments.get(name, 1) for name in SIZES)
    found = run.explain(GPU, num_gpus=gpus)
    workspaces = {"torch_workspace_bytes": found.inputs["torch_workspace_bytes"]}
    text = written(format, found)
    suffix = {"megatron": ".sh", "nemo": ".yaml", "bridge": ".py"}[format]
    again = account(text, tmp_path, suffix, num_gpus=gpus, **workspaces)
    assert again.ranks == found.ranks
    assert again.choices == found.choices
    # All but the names of the model and notes on it.
    assert [line for line in written(format, again).split("\n") if not line.startswith("# ")] == [
        line for line in text.split("\n") if not line.startswith("# ")]


@pytest.mark.slow
@pytest.mark.parametrize("file", ["torchtitan_llama3_8b.toml", "torchtitan_llama3_70b.toml"])
def test_published_runs_of_torchtitan_go_round(file: str, tmp_path: Path) -> None:
    found = read(DATA / file).explain(GPU, num_gpus=16)
    text = written("torchtitan", found)
    again = account(text, tmp_path, ".toml", num_gpus=16)
    assert again.ranks == found.ranks
    assert again.inputs == found.inputs
    assert written("torchtitan", again) == text


#: Layouts of models of the catalogue, each with what its implementation has of its own.
LAYOUTS: dict[str, dict[str, Any]] = {
    "llama-3.1-8b": {"tensor_parallel": 2, "pipeline_parallel": 2, "num_gpus": 8, "virtual_pipeline": 4,
                     "recompute": "core_attention+mlp"},
    "qwen2.5-7b": {"tensor_parallel": 2, "num_gpus": 4, "recompute": "full", "recompute_num_layers": 2},
    "gpt2-xl": {"num_gpus": 2, "seq_length": 1024, "kernels": {"attention": "te_unfused"}, "hidden_dropout": 1},
    "mixtral-8x7b": {"expert_parallel": 4, "num_gpus": 8, "kernels": {"balance": "loss", "dispatch": "allgather"}},
    "deepseek-v2-lite": {"expert_parallel": 8, "num_gpus": 8, "kernels": {"router": "fused", "dispatch": "deepep"}},
    "deepseek-v3": {"pipeline_parallel": 16, "expert_parallel": 8, "num_gpus": 128, "first_stage_layers": 4,
                    "last_stage_layers": 1},
    "qwen3-30b-a3b": {"expert_parallel": 8, "num_gpus": 8, "recompute": "moe_act+layernorm"},
    "llama-3.1-70b": {"tensor_parallel": 8, "pipeline_parallel": 4, "num_gpus": 32,
                      "pipeline_layout": (19, 21, 21, 19)},
    "llama-2-7b": {"num_gpus": 4, "gradients": "bf16", "kernels": {
        "optimizer": "precision_aware", "weight_gradient": "separate"}, "exp_avg_bytes": 2, "exp_avg_sq_bytes": 2},
    "llama-3.2-1b": {"num_gpus": 2, "kernels": {"fp8": "current", "fp8_weights": "primary", "loss": "te_fused"}},
    "llama-3-8b": {"num_gpus": 4, "optimizer_offload_percent": 50},
    "llama-4-scout-17b-16e": {"expert_parallel": 8, "num_gpus": 8, "kernels": {"balance": "loss"}},
    "llama-4-maverick-17b-128e": {"expert_parallel": 8, "num_gpus": 8, "kernels": {"dispatch": "hybridep"}},
    "qwen3-8b": {"num_gpus": 8, "tensor_parallel": 2, "context_parallel": 2, "kernels": {"context": "all_to_all"},
                 "data_parallel_replicas": 2},
}


@pytest.mark.slow
@pytest.mark.parametrize("format", ["megatron", "nemo"])
@pytest.mark.parametrize("name", sorted(LAYOUTS))
def test_layouts_of_megatron_go_round(name: str, format: str) -> None:
    layout = LAYOUTS[name].get("pipeline_layout")
    found = shardmath.explain(name, GPU, **LAYOUTS[name])
    assert written(format, found, layout)  # written() itself refuses a file that is read as another account


@pytest.mark.slow
@pytest.mark.parametrize("layout", [
    {"num_gpus": 64, "recompute": "selective", "kernels": {"loss": "dtensor_compiled"}},
    {"num_gpus": 64, "recompute": "selective", "kernels": {"loss": "dtensor_compiled", "compile": "layers"}},
    {"num_gpus": 64, "tensor_parallel": 8, "recompute": "full", "kernels": {"precision": "bf16"}},
    {"num_gpus": 64, "data_parallel_replicas": 4, "kernels": {"reshard": "never", "optimizer_kernel": "foreach"}},
    {"num_gpus": 64, "context_parallel": 2, "recompute": "full", "recompute_num_layers": 2},
    {"num_gpus": 8, "pipeline_parallel": 4, "schedule": "1f1b", "global_batch_size": 16},
    {"num_gpus": 8, "pipeline_parallel": 4, "schedule": "interleaved", "virtual_pipeline": 2,
     "global_batch_size": 32},
])
def test_layouts_of_torchtitan_go_round(layout: dict[str, Any]) -> None:
    found = shardmath.explain("llama-3.1-8b", GPU, implementation="torchtitan", **layout)
    assert written("torchtitan", found)


@pytest.mark.slow
def test_random_layouts_go_round() -> None:
    draw = Random(1)
    for _ in range(12):
        tensor, pipeline, chunks = draw.choice([1, 2, 4]), draw.choice([1, 2, 4]), draw.choice([1, 2])
        found = shardmath.explain(
            "llama-3.1-8b", GPU, tensor_parallel=tensor, pipeline_parallel=pipeline,
            virtual_pipeline=chunks if pipeline > 1 else 1, data_parallel=draw.choice([1, 2]),
            micro_batch_size=draw.choice([1, 2]), seq_length=draw.choice([2048, 8192]),
            recompute=draw.choice(["none", "full", "mlp", "core_attention"]), gradients=draw.choice(["fp32", "bf16"]),
            sequence_parallel=tensor > 1 and draw.random() < 0.5, distributed_optimizer=draw.random() < 0.5,
            vocab_multiple=draw.choice([64, 128]),
        )
        for format in ("megatron", "nemo"):
            assert written(format, found)


def test_a_script_has_its_flags_in_the_usual_order() -> None:
    text = written("megatron", shardmath.explain("llama-3.1-8b", GPU, tensor_parallel=2, num_gpus=8))
    assert text.startswith("#!/bin/bash\n# llama-3.1-8b on 8 GPUs")
    flags = [line.split()[0] for line in text.splitlines() if line.startswith("    --")]
    assert flags[2:6] == ["--num-layers", "--hidden-size", "--ffn-hidden-size", "--num-attention-heads"]
    place = flags.index("--sequence-parallel")
    assert flags[place - 2:place] == ["--tensor-model-parallel-size", "--pipeline-model-parallel-size"]
    assert 'torchrun "${DISTRIBUTED_ARGS[@]}" pretrain_gpt.py \\\n' in text


@pytest.mark.slow
@pytest.mark.parametrize(("format", "options", "rule"), [
    ("torchtitan", {}, "must be a format of the implementation, and this one is torchtitan's"),
    ("megatron", {"implementation": "torchtitan"}, "must be a format of the implementation"),
    ("bash", {}, f"must be one of {', '.join(FORMATS)}"),
    ("megatron", {"kernels": {"swiglu": "eager"}}, "must be a format that can say swiglu = eager"),
    ("megatron", {"kernels": {"loss": "gathered"}}, "must be a format that can say loss = gathered"),
])
def test_what_a_format_cannot_say_is_refused(format: str, options: dict[str, Any], rule: str) -> None:
    found = shardmath.explain("llama-3.2-1b", GPU, **options)
    with pytest.raises(InputError, match=rule):
        written(format, found)


def test_a_model_that_torchtitan_does_not_name_is_refused() -> None:
    found = shardmath.explain("llama-2-7b", GPU, implementation="torchtitan", seq_length=4096)
    with pytest.raises(InputError, match="must be of a model that torchtitan names"):
        written("torchtitan", found)


def test_a_name_cannot_break_out_of_its_comment() -> None:
    model = shardmath.Model.named("llama-3.2-1b").model_copy(update={"name": "x\nrm -rf $(pwd)"})
    text = written("megatron", shardmath.explain(model, GPU))
    assert text.splitlines()[1].startswith("# x?rm -rf")


def test_a_note_cannot_break_out_of_its_comment() -> None:
    model = shardmath.Model.named("llama-3.2-1b").model_copy(update={"note": "x\nrm -rf $(pwd)"})
    assert "\n# Not in this file: x?rm -rf $(pwd).\n" in written("megatron", shardmath.explain(model, GPU))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(LAYOUTS))
def test_megatron_bridge_has_every_key(name: str) -> None:
    """Each key is a field of the class of its section, in the release that the head of the file names."""
    with open(DATA.parent / "bridge_fields.csv", newline="") as table:
        known = {(row["section"], row["field"]) for row in csv.DictReader(table)}
    found = shardmath.explain(name, GPU, **LAYOUTS[name])
    sections = yaml.safe_load(written("nemo", found, LAYOUTS[name].get("pipeline_layout")))
    keys = {(section, key) for section, keys in sections.items() for key in keys}
    assert keys <= known
    for section, key in keys:
        value = sections[section][key]
        assert not (isinstance(value, str) and value.replace(".", "").replace("e-", "").isdecimal()), key


@pytest.mark.slow
@pytest.mark.parametrize("layout", [
    {"num_gpus": 64, "recompute": "selective", "kernels": {"loss": "dtensor_compiled"}},
    {"num_gpus": 8, "pipeline_parallel": 4, "schedule": "interleaved", "virtual_pipeline": 2, "global_batch_size": 32},
])
def test_torchtitan_has_every_key(layout: dict[str, Any]) -> None:
    """Each key is a field of the job configuration of the release that the head of the file names, with its type."""
    with open(DATA.parent / "torchtitan_keys.csv", newline="") as table:
        known = {row["key"]: row["type"] for row in csv.DictReader(table)}
    text = written("torchtitan", shardmath.explain("llama-3.1-8b", GPU, implementation="torchtitan", **layout))
    for table_name, keys in tomllib.loads(text).items():
        for key, value in keys.items():
            kind = known[f"{table_name}.{key}"]
            assert kind.split(" ")[0].partition("[")[0] == type(value).__name__ or repr(value) in kind
    placeholders = [line for line in text.splitlines() if line.startswith("# REPLACE")]
    assert len(placeholders) == 4


@pytest.mark.slow
def test_nemo_and_bridge_are_told_the_square_of_relu() -> None:
    """It is a function of Megatron-Core, which a Python file imports."""
    account = shardmath.explain("minitron-8b-base", "h100-80gb", seq_length=2048)
    assert "\n  activation_func: {_target_: megatron.core.activations.squared_relu, _call_: false}\n" in written(
        "nemo", account)
    bridge = written("bridge", account)
    assert "\nimport megatron.core.activations\nimport torch\n" in bridge
    assert "\n    cfg.model.activation_func = megatron.core.activations.squared_relu\n" in bridge


@pytest.mark.parametrize(("module", "format", "extra"), [
    ("tree_sitter", "megatron", "shell"), ("yaml", "nemo", "yaml"),
])
def test_a_reader_that_is_not_installed_is_named(
    module: str, format: str, extra: str, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A file that is written is read again; nobody knows the name that it has then."""
    run = shardmath.explain("llama-3.2-1b", GPU)
    monkeypatch.setitem(sys.modules, module, None)
    message = rf"^write = '{format}': must be .*: pip install '{re.escape(f'shardmath[{extra}]')}'$"
    with pytest.raises(InputError, match=message):
        written(format, run)
