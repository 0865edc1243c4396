"""The command line with a launch script or a configuration in place of a model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from formats.test_formats_read import DATA

from shardmath.cli.main import cli
from shardmath.errors import InputError
from shardmath.formats import read

GPT, MIXTRAL, LLAMA = (str(DATA / name) for name in ("megatron_gpt3_175b.sh", "megatron_mixtral_8x7b.sh",
                                                       "nemo_llama3.1_70b.yaml"))


def explain(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["explain", *arguments, "--gpu", "h100-80gb"])


def account(*arguments: str) -> dict[str, object]:
    result = explain(*arguments, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, object] = json.loads(result.stdout)
    return found


@pytest.mark.slow
def test_a_script_is_explained_as_from_python() -> None:
    found = account(GPT, "--num-gpus", "1024")
    assert found["peak_bytes"] == read(GPT).explain("h100-80gb", num_gpus=1024).peak.total


@pytest.mark.slow
def test_the_command_line_wins_and_says_so() -> None:
    result = explain(GPT, "--num-gpus", "1024", "--tp", "4", "--seq-length", "1024", "--kernel", "mask=kernel")
    assert result.exit_code == 0
    notes = [line for line in result.stderr.splitlines() if " wins over " in line]
    assert notes == [
        "note: tensor_parallel = 4 wins over 8 of megatron_gpt3_175b.sh",
        "note: seq_length = 1024 wins over 2048 of megatron_gpt3_175b.sh",
        "note: mask = kernel wins over dataloader of megatron_gpt3_175b.sh",
    ]
    assert "TP 4, CP 1, PP 16" in result.stdout


@pytest.mark.slow
def test_an_option_that_agrees_is_not_a_note() -> None:
    result = explain(GPT, "--num-gpus", "1024", "--tp", "8")
    assert " wins over " not in result.stderr
    assert "note: megatron_gpt3_175b.sh: 13 settings understood" in result.stderr


@pytest.mark.slow
def test_warnings_name_what_is_not_counted() -> None:
    warnings = [line for line in explain(LLAMA).stderr.splitlines() if line.startswith("warning: ")]
    (found,) = [line for line in warnings if "wgrad_deferral_limit" in line]
    assert found.endswith(
        "model.wgrad_deferral_limit is not counted yet: the inputs and gradients of the head that wait")


@pytest.mark.parametrize(("key", "meant"), [
    ("sequence_length", "sequence_len"), ("gradient_checkpoint", "gradient_checkpointing"), ("lora_rank", "lora_r"),
    ("brand_new_key", None),
])
def test_misspelled_keys_name_the_key_that_they_may_mean(tmp_path: Path, key: str, meant: str | None) -> None:
    """A close key of the format, unless the file has it too."""
    path = tmp_path / "lora.yml"
    path.write_text(f"base_model: meta-llama/Llama-2-7b-hf\nmicro_batch_size: 2\nadapter: lora\n{key}: 8\n")
    run = read(str(path))
    assert run.unknown == (key,)
    told = explain(str(path)).stderr
    assert f"{key} is not known here: its effect is not counted yet{(meant and f'; nearest: {meant}') or ''}\n" in told


@pytest.mark.slow
def test_unknown_flags_are_warned_about(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(Path(GPT).read_text().rstrip() + " --brand-new-flag 1\n")
    assert "warning: --brand-new-flag is not known here: its effect is not counted yet" in explain(
        str(script), "--num-gpus", "128").stderr


@pytest.mark.slow
def test_settings_of_the_file_can_be_set() -> None:
    found = account(MIXTRAL, "--num-gpus", "32", "--set", "2=tokenizer", "--set", "moe-permute-fusion=true",
                    "--set", "GPUS_PER_NODE=4")
    assert found["choices"]["permute"] == "fused"  # type: ignore[index]


@pytest.mark.slow
@pytest.mark.parametrize("format", ["megatron", "nemo"])
def test_what_is_written_is_a_file_that_can_be_explained(format: str, tmp_path: Path) -> None:
    result = explain(MIXTRAL, "--num-gpus", "32", "--write", format)
    assert result.exit_code == 0
    written = tmp_path / {"megatron": "run.sh", "nemo": "run.yaml"}[format]
    written.write_text(result.stdout)
    again, before = account(str(written), "--num-gpus", "32"), account(MIXTRAL, "--num-gpus", "32")
    assert again["ranks"] == before["ranks"]


@pytest.mark.slow
def test_a_model_by_name_can_be_written_with_a_list_of_layers() -> None:
    result = explain("llama-3.1-8b", "--pp", "2", "--pipeline-layout", "15,17", "--write", "megatron")
    assert f"--pipeline-model-parallel-layout 'E{'t' * 15}|{'t' * 17}L'" in result.stdout


@pytest.mark.parametrize(("arguments", "line"), [
    (("nowhere.sh",), "model = 'nowhere.sh': must be the path of an existing file"),
    (("llama-3.1-8b", "--set", "a=1"), "set = 'a': must not be given: the model is not a file with settings"),
    (("llama-3.1-8b", "--set", "lora_rank=16"), "set = 'lora_rank': must not be given: the model is not a file"
     " with settings; nearest legal: --lora-rank 16"),
    ((GPT, "--set", "a"), "set = 'a': must be written key=value"),
    ((GPT, "--set", "tensor_paralel=4"), "set tensor-paralel = '4': must be a flag or key that the account follows"),
    ((LLAMA, "--set", "hidden_size=4"), "set hidden_size = '4': must be a flag or key that the account follows from"),
    ((GPT, "--set", "tensor-model-parallel-size=x"), "--tensor-model-parallel-size = 'x': must be an integer"),
    (("llama-3.1-8b", "--write", "slurm"), "write = 'slurm': must be one of megatron, nemo, bridge, torchtitan"),
])
def test_bad_input_is_one_line(arguments: tuple[str, ...], line: str) -> None:
    result = explain(*arguments)
    assert isinstance(result.exception, InputError)
    assert str(result.exception).startswith(line)


@pytest.mark.slow
def test_the_layouts_of_a_script_are_swept_with_its_kernels() -> None:
    result = CliRunner().invoke(cli, ["sweep", GPT, "--gpu", "h100-80gb", "--num-gpus", "128", "--global-batch-size",
                                      "128", "--tp", "8", "--json"])
    assert result.exit_code == 0, result.output
    best = json.loads(result.stdout)["best"][0]
    layout = {name: best[name] for name in ("tensor_parallel", "pipeline_parallel", "virtual_pipeline",
                                            "micro_batch_size", "account_for_embedding", "account_for_loss")}
    found = read(GPT).explain("h100-80gb", **{
        **layout, "num_gpus": 128, "global_batch_size": 128, "recompute": best["recompute"],
        "sequence_parallel": bool(best["sequence_parallel"]),
    })
    assert found.peak.total == best["peak_bytes"]


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "reported"), [
    (("explain", "llama-3.2-1b", "--num-gpus", "16", "--tp", "2"), "TP 2, CP 1, PP 1"),
    (("recommend", "llama-3.2-1b", "--num-gpus", "8", "--global-batch-size", "8", "--seq-length", "1024"),
     "Worth trying"),
])
def test_a_script_is_redirected_alone(arguments: tuple[str, ...], reported: str, tmp_path: Path) -> None:
    """As a shell does it: the standard output is the script, which bash accepts; the report is on the other stream."""
    command = [sys.executable, "-m", "shardmath", *arguments, "--gpu", "h100-80gb", "--write", "megatron"]
    script, file = tmp_path / "run.sh", tmp_path / "other.sh"
    with open(script, "w") as stream:
        piped = subprocess.run(command, stdout=stream, stderr=subprocess.PIPE, text=True, check=True)
    assert script.read_text().startswith("#!/bin/bash\n")
    assert reported in piped.stderr
    subprocess.run(["bash", "-n", str(script)], check=True)
    written = subprocess.run([*command, "--output", str(file)], capture_output=True, text=True, check=True)
    assert file.read_text() == script.read_text()
    assert reported in written.stdout
    assert written.stderr == ""
    assert read(str(file)).arguments["num_gpus"] in (8, 16)


def test_a_file_needs_a_format(tmp_path: Path) -> None:
    result = explain("llama-3.2-1b", "--output", str(tmp_path / "run.sh"))
    assert str(result.exception).endswith("must be given with --write, which says the format")
