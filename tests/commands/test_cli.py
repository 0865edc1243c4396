"""The command line: answers, forms of output, and one clear line for every bad input."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from shardmath.cli.main import exit_code

SWEEP = ["sweep", "llama-3.2-1b", "--gpu", "a100-40gb", "--num-gpus", "8", "--global-batch-size", "16"]
EXPLAIN = ["explain", "llama-3.1-8b", "--gpu", "h100-80gb", "--tp", "2", "--pp", "4"]


def test_explain_names_the_term_of_every_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(EXPLAIN) == 0
    out = capsys.readouterr().out
    for term in ("stage.swiglu.activation", "stage.head.weight", "stage.loss.loss_forward", "stage.total"):
        assert term in out
    assert "80 % rule" in out
    assert "Published:" in out


def test_explain_json_adds_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code([*EXPLAIN, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert len(data["ranks"]) == 4
    for rank in data["ranks"]:
        assert sum(rank["by_role"].values()) == rank["total"]
        assert sum(line["bytes"] for line in rank["lines"]) == pytest.approx(rank["total"], rel=1e-12)
    assert data["peak_bytes"] == max(rank["total"] for rank in data["ranks"])


def test_explain_many_ranks_shows_the_ends(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["explain", "llama-3.1-70b", "--gpu", "h100-80gb", "--tp", "8", "--pp", "20"]
    assert exit_code(arguments) == 0
    assert "ranks 0, 1, 2, 17, 18, 19 of 20" in capsys.readouterr().out
    assert exit_code([*arguments, "--all-ranks"]) == 0
    lines = capsys.readouterr().out.split("GiB of every rank")[1].splitlines()
    assert sum(line.split()[:1] == [str(rank)] for line in lines for rank in range(20)) == 20


def test_explain_csv(tmp_path: Path) -> None:
    target = tmp_path / "account.csv"
    assert exit_code([*EXPLAIN, "--csv", str(target)]) == 0
    rows = list(csv.DictReader(target.read_text().splitlines()))
    assert {row["rank"] for row in rows} == {"0", "1", "2", "3"}
    assert [path.name for path in tmp_path.iterdir()] == ["account.csv"]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_a_table_on_the_standard_output_stands_alone(form: str, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    tables = pytest.importorskip(f"pyarrow.{form}")
    read = {"parquet": "read_table", "csv": "read_csv"}[form]
    assert exit_code([*SWEEP, "--json"]) == 0
    legal = json.loads(capfdbinary.readouterr().out)["legal"]
    assert exit_code([*SWEEP, f"--{form}", "-"]) == 0
    sys.stdout.flush()
    assert getattr(tables, read)(io.BytesIO(capfdbinary.readouterr().out)).num_rows == legal


def test_what_is_said_beside_a_file_on_the_standard_output_goes_to_the_standard_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert exit_code([*EXPLAIN, "--write", "nemo", "--output", "-"]) == 0
    shown = capsys.readouterr()
    assert yaml.safe_load(shown.out)["model"]["num_layers"] == 32
    assert "Verdict" in shown.err


@pytest.mark.parametrize("others", [["--json"], ["--write", "nemo"]], ids=" ".join)
def test_two_outputs_on_the_standard_output_are_refused(
    others: list[str], capsys: pytest.CaptureFixture[str],
) -> None:
    assert exit_code([*EXPLAIN, "--csv", "-", *others]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert f"csv = '-': must be a file: {others[0]} is on the standard output" in shown.err


@pytest.mark.slow
def test_sweep_counts_and_files_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    files = {"--csv": tmp_path / "layouts.csv", "--parquet": tmp_path / "layouts.parquet"}
    options = [text for option, path in files.items() for text in (option, str(path))]
    assert exit_code([*SWEEP, "--json", *options]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["tried"] == data["legal"] + sum(rule["count"] for rule in data["broken"])
    assert data["legal"] == sum(data["verdicts"].values())
    rows = list(csv.DictReader(files["--csv"].read_text().splitlines()))
    columns = parquet.read_table(files["--parquet"]).to_pydict()
    assert len(rows) == data["legal"] == len(columns["peak_bytes"])
    assert [int(row["peak_bytes"]) for row in rows] == columns["peak_bytes"]
    assert [row["recompute"] for row in rows] == columns["recompute"]
    assert columns["verdict"].count("fits") == data["verdicts"]["fits"]


@pytest.mark.slow
def test_sweep_agrees_with_explain(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code([*SWEEP, "--json"]) == 0
    best = json.loads(capsys.readouterr().out)["best"][0]
    options = {
        "--tp": "tensor_parallel", "--cp": "context_parallel", "--pp": "pipeline_parallel",
        "--dp": "data_parallel", "--micro-batch-size": "micro_batch_size", "--recompute": "recompute",
    }
    arguments = ["explain", "llama-3.2-1b", "--gpu", "a100-40gb", "--global-batch-size", "16", "--json"]
    arguments += [text for option, field in options.items() for text in (option, str(best[field]))]
    arguments.append("--sequence-parallel" if best["sequence_parallel"] else "--no-sequence-parallel")
    assert exit_code(arguments) == 0
    account = json.loads(capsys.readouterr().out)
    assert account["peak_bytes"] == best["peak_bytes"]
    assert account["ranks"][-1]["total"] == best["last_stage_bytes"]


@pytest.mark.slow
def test_sweep_says_when_nothing_fits(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["sweep", "llama-3.1-405b", "--gpu", "v100-32gb", "--num-gpus", "8", "--global-batch-size", "8"]
    assert exit_code(arguments) == 0
    assert "Nothing fits; the legal layout of least memory" in capsys.readouterr().out


@pytest.mark.slow
def test_formula_forms(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["formula", "swiglu.saved", "--implementation", "huggingface"]) == 0
    out = capsys.readouterr().out
    assert "as written" in out
    assert "2*s*b*(h + 4*f)" in out
    expected = {"--latex": r"\mu", "--python": "recompute_mlp", "--unicode": "μ"}
    for form, part in expected.items():
        assert exit_code(["formula", "swiglu.saved", form]) == 0
        assert part in capsys.readouterr().out
    assert exit_code(["formula", "--list"]) == 0
    assert "fujii2024.total" in capsys.readouterr().out


@pytest.mark.slow
def test_other_kernels_are_derived_on_demand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert exit_code([*EXPLAIN, "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert exit_code([*EXPLAIN, "--kernel", "swiglu=eager", "--json"]) == 0
    eager = json.loads(capsys.readouterr().out)
    # The SiLU output: 2 s b f bytes of each of 8 layers and 4 micro-batches, over 2 tensor-parallel ranks.
    assert eager["peak_bytes"] - plain["peak_bytes"] == 2 * 8192 * 14336 * 8 * 4 // 2


BAD = {
    "sweep llama-3.1-80b --gpu h100-80gb --num-gpus 8 --global-batch-size 8": ("llama-3.1-80b", "llama-3.1-8b"),
    "explain llama-3.1-70b --gpu h100-80gb --tp 3": ("tensor_parallel = 3", "nearest legal: 2 or 4"),
    "explain llama-3.1-70b --gpu h100-80gb --tp 0": ("tensor_parallel = 0", "nearest legal: 1"),
    "explain llama-3.1-70b --gpu h100-80gb --tp -4": ("tensor_parallel = -4", "nearest legal: 1"),
    "explain llama-3.1-70b --gpu h100-80gb --seq-length 1e30": ("seq_length = 1e+30", "nearest legal"),
    "explain llama-3.1-70b --gpu h100-80gb --seq-length nan": ("seq_length = nan", "integer from 1 to"),
    "explain llama-3.1-70b --gpu h100-80gb --seq-length ''": ("seq_length = ''", "integer from 1 to"),
    "explain llama-3.1-70b --gpu h100-80gb --pp 7": ("pipeline_parallel = 7", "nearest legal: 5 or 8"),
    "explain llama-3.1-70b --gpu h100-80gb --tp 16": ("node_size = 8", "nearest legal: 8"),
    "explain llama-3.1-70b --gpu h100-80gb --num-gpus 12 --tp 8": ("num_gpus = 12", "8 or 16"),
    "explain llama-3.1-70b --gpu h100-80gb --sequence-parallel": ("sequence_parallel = 1", "nearest legal: 0"),
    "explain llama-3.1-70b --gpu h100-80gb --recompute most": ("recompute = 'most'", "core_attention"),
    "explain llama-3.1-70b --gpu h100-80gb --gradients fp8": ("gradients = 'fp8'", "fp32 or bf16"),
    "explain llama-3.1-70b --gpu h100-80gb --kernel norm": ("kernel = 'norm'", "axis=option"),
    "explain llama-3.1-70b --gpu h100-80gb --kernel norm=quick": ("kernel norm = 'quick'", "fused"),
    "explain llama-3.1-70b --gpu h100-80gb --kernel x=y": ("kernel = 'x'", "known choice"),
    "explain llama-3.1-70b --gpu h100": ("gpu = 'h100'", "h100-80gb"),
    "explain llama-3.1-70b": ("gpu = absent", "--gpu-memory"),
    "explain llama-3.1-70b --gpu-memory nan": ("nan", "above 0"),
    "explain llama-3.1-70b --gpu h100-80gb --gpu-memory 80": ("gpu_memory = 80.0", "--gpu"),
    "explain llama-3.1-8b --gpu h100-80gb --implementation huggingface --tp 2": ("must be 1", "nearest legal: 1"),
    "explain llama-3.1-8b --gpu h100-80gb --implementation huggingface --gradients fp32": ("must be bf16 with", "bf"),
    "explain llama-3.1-8b --gpu h100-80gb --implementation megatorn": ("megatorn", "megatron"),
    "sweep llama-3.1-70b --gpu h100-80gb --num-gpus 512": ("missing: --gbs (sequences per step)", ""),
    "plan": ("missing: MODEL, --tokens (tokens", "--gpus (numbers of GPUs) or --deadline (time until"),
    "plan llama-3.1-70b --tokens 1T --gpu h100-80gb": ("missing: --gpus (numbers of GPUs) or --deadline", ""),
    "scale llama-3.1-70b --gpus 8": ("missing: --gpu (a name of", "--gbs (sequences per step, for every"),
    "sweep llama-3.1-70b --gpu h100-80gb --num-gpus 8 --global-batch-size 8 --tp 2,x": ("tensor_parallel = 'x'", ""),
    "sweep llama-3.1-70b --gpu h100-80gb --num-gpus 8 --global-batch-size 8 --recompute all": ("recompute", "full"),
    "sweep llama-3.1-70b --gpu h100-80gb --num-gpus 8 --global-batch-size 8 --top 0": ("top = 0", "1"),
    "sweep llama-3.1-70b --gpu h100-80gb --num-gpus 8 --global-batch-size 8 --csv no/such/file": ("csv", "written"),
    "sweep llama-3.1-70b --gpu h100-80gb --num-gpus 8 --global-batch-size 8 --csv .": ("csv = '.'", "directory"),
    "sweep llama-3.1-8b --gpu h100-80gb --num-gpus 735134400 --global-batch-size 8": ("num_gpus", "some axes"),
    "formula swiglu.save": ("term = 'swiglu.save'", "swiglu.saved"),
    "formula": ("term = absent", "--list"),
    "sweap": ("command = 'sweap'", "nearest legal: sweep"),
}


@pytest.mark.slow
@pytest.mark.parametrize("command", BAD)
def test_bad_input_gets_one_line_and_exit_code_2(
    command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert exit_code([part.strip("'") for part in command.split(" ")]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    for part in BAD[command]:
        assert part in captured.err
    assert list(tmp_path.iterdir()) == []


FILES = {
    "truncated": ('{"model_type": "llama", "hidden_size": 40', "complete JSON"),
    "missing": ('{"model_type": "llama", "hidden_size": 4096}', "intermediate_size"),
    "unknown family": ('{"model_type": "bert", "hidden_size": 4096}', "mixtral"),
    "not a number": (
        '{"model_type": "llama", "hidden_size": NaN, "intermediate_size": 1, "num_hidden_layers": 1,'
        ' "num_attention_heads": 1, "vocab_size": 1}', "hidden_size",
    ),
}


@pytest.mark.parametrize("case", FILES)
def test_bad_model_files(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, part = FILES[case]
    (tmp_path / "config.json").write_text(text)
    assert exit_code(["explain", str(tmp_path / "config.json"), "--gpu", "h100-80gb"]) == 2
    assert part in capsys.readouterr().err


def test_a_folder_is_no_model_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["explain", str(tmp_path), "--gpu", "h100-80gb"]) == 2
    assert "folder" in capsys.readouterr().err


@pytest.mark.slow
def test_a_closed_pipe_prints_nothing() -> None:
    command = [sys.executable, "-m", "shardmath", "formula", "--list"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()  # before the child has anything to say
        assert process.stderr.read() == b""
    assert process.returncode == 1  # as click says it


@pytest.mark.slow
def test_a_failed_sweep_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from shardmath.search import legal

    def fails(*arguments: object, **named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(legal, "run", fails)
    assert exit_code([*SWEEP, "--csv", str(tmp_path / "layouts.csv")]) == 130
    assert list(tmp_path.iterdir()) == []
