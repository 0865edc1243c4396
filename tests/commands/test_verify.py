"""Programs of ``shardmath verify``: what they say, what is refused, and results read back into a table."""

from __future__ import annotations

import csv
import json
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import shardmath
from shardmath.cli.main import exit_code
from shardmath.commands.verify import read_result
from shardmath.schemas import schema

GPU = "--gpu h100-80gb"
RUNS = {
    "megatron": f"verify llama-3.1-8b {GPU} --gpus 16 --tp 4 --pp 2 --gbs 64",
    "torchtitan": f"verify llama-3.1-8b {GPU} --implementation torchtitan --gpus 8 --gbs 8",
    "huggingface": f"verify qwen3-0.6b {GPU} --implementation huggingface --gpus 8 --gbs 16 --kernel data_parallel=fsdp"
                   " --kernel peak=torch",
}
MEASURED = {"allocated_bytes": 30 * 2**30, "reserved_bytes": 33 * 2**30}


def text_of(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert exit_code([*command.split(), "-q"]) == 0
    return capsys.readouterr().out


@pytest.mark.slow
def test_what_the_programs_say(capsys: pytest.CaptureFixture[str]) -> None:
    megatron, torchtitan, fsdp = (text_of(command, capsys) for command in RUNS.values())
    assert "export WORLD_SIZE=16 RANK=0 LOCAL_RANK=0" in megatron
    assert "python shardmath_hook.py pretrain_gpt.py --fake-process-group --exit-interval 3 \\\n" in megatron
    assert "torchrun" not in megatron.partition("SHARDMATH\n\n")[2]
    assert "--pipeline-model-parallel-size 2" in megatron
    assert "--comm.mode=fake_backend --training.steps 3" in torchtitan
    assert "data_parallel_shard_degree = 8" in torchtitan
    peak = shardmath.explain("llama-3.1-8b", "h100-80gb", num_gpus=16, tensor_parallel=4, pipeline_parallel=2,
                             global_batch_size=64).peak.total
    for script in (megatron, torchtitan):
        python = script.partition("cat >shardmath_hook.py <<'SHARDMATH'\n")[2].partition("\nSHARDMATH\n")[0]
        compile(python, "hook", "exec")
        assert "register_optimizer_step_post_hook(report)" in python
    assert f"'allocated_bytes': {peak}" in megatron
    compile(fsdp, "program", "exec")
    assert "RANKS, BATCH, SEQUENCE, MICROBATCHES, RESULT = 8, 1, 8192, 2," in fsdp
    assert "transformers.Qwen3Config" in fsdp


@pytest.mark.slow
@pytest.mark.process
def test_scripts_are_shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("megatron", "torchtitan"):
        path = tmp_path / f"{name}.sh"
        assert exit_code([*RUNS[name].split(), "-q", "-o", str(path)]) == 0
        subprocess.run(["bash", "-n", str(path)], check=True)


@pytest.mark.slow
def test_the_last_stage_is_run_where_it_is_the_fullest(capsys: pytest.CaptureFixture[str]) -> None:
    command = f"verify llama-3.1-8b {GPU} --gpus 16 --pp 4 --tp 2 --gbs 64 --pipeline-layout 2,2,2,26 --hook"
    assert "\nRANK, STEP, RESULT, steps = 12, 2," in text_of(command, capsys)


@pytest.mark.parametrize(("command", "words"), [
    ("verify", "run = absent"), (f"verify llama-3.1-8b {GPU} --json", "--read"),
    (f"verify llama-3.1-8b {GPU} --table a.csv", "--read"), ("verify llama-3.1-8b --read x.json", "whose result"),
    ("verify --read absent.json", "absent.json"),
])
def test_what_does_not_go_together(command: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(command.split()) == 2
    assert words in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(("options", "words"), [
    ("--implementation nanotron", "no program for others is written yet"),
    ("--implementation huggingface", "data_parallel = 'ddp': must be fsdp"),
    ("--implementation huggingface --kernel data_parallel=fsdp --kernel peak=saved", "peak = 'saved': must be torch"),
])
def test_runs_without_a_program(options: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code([*f"verify llama-3.1-8b {GPU} {options}".split()]) == 2
    assert words in capsys.readouterr().err


@pytest.fixture
def result(tmp_path: Path) -> Path:
    path = tmp_path / "result.json"
    path.write_text(json.dumps({"run": {
        "model": "llama-3.1-8b", "gpu": "h100-80gb", "num_gpus": 16, "tensor_parallel": 4, "global_batch_size": 64,
    }, "measured": MEASURED, "by": "a run", "versions": "torch 2\u009b31m"}))
    return path


@pytest.mark.slow
def test_results_are_compared_and_collected(
    result: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:
    account = shardmath.explain("llama-3.1-8b", "h100-80gb", num_gpus=16, tensor_parallel=4, global_batch_size=64)
    compared = read_result(result)
    assert compared.predicted_allocated_bytes == account.peak.total
    assert compared.allocated_error == account.peak.total / MEASURED["allocated_bytes"] - 1
    low, high = account.process.low["reserved"], account.process.high["reserved"]
    assert compared.is_in_range == (low <= MEASURED["reserved_bytes"] <= high)
    assert compared.versions == "torch 2?31m"
    table = tmp_path / "evidence.csv"
    for _ in range(2):
        assert exit_code(["verify", "--read", str(result), "--table", str(table)]) == 0
    assert f"{account.peak.total:,}" in capsys.readouterr().out
    rows = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))
    assert [row["measured_reserved_bytes"] for row in rows] == [str(MEASURED["reserved_bytes"])] * 2
    assert exit_code(["verify", "--read", str(result), "--json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, schema("verify"))
    table.write_text("model,bytes\n")
    assert exit_code(["verify", "--read", str(result), "--table", str(table)]) == 2
    assert "must have the columns" in capsys.readouterr().err
    assert table.read_text() == "model,bytes\n"
