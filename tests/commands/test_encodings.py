"""Every command prints in every encoding: signs that a stream lacks are spelled, and nothing ends in a traceback."""

from __future__ import annotations

import io
import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from oracles.extent import FULL

from shardmath.cli.encoding import spelled
from shardmath.cli.main import cli, run

ENCODINGS = ("ascii", "latin-1", "cp1252")
GPU = "--gpu h100-80gb --num-gpus 8"
JOB = f"llama-3.2-1b {GPU}"
#: At least one line for every command: tables, formulas, JSON, CSV, errors.
LINES = (
    "--help", "sweep --help", "explain --help",
    f"sweep {JOB} --global-batch-size 8 --tp 1,2 --pp 1 --cp 1", f"sweep {JOB} --global-batch-size 8 --pp 1 --json",
    f"sweep {JOB} --global-batch-size 8 --tp 1 --pp 1 --cp 1 --csv -",
    f"recommend {JOB} --global-batch-size 8 --tp 1,2 --cp 1 --pp 1",
    "scale llama-3.2-1b --gpu h100-80gb --num-gpus 8 --global-batch-size 8 --pp 1 --cp 1",
    "plan llama-3.2-1b --tokens 1T --gpu h100-80gb --num-gpus 8 --pp 1 --cp 1 --price h100-80gb=2",
    "explore docs/spaces/shapes.yaml --json",
    f"explain {JOB} --tp 2 --all-ranks", f"explain {JOB} --csv -", f"explain {JOB} --json",
    f"explain {JOB} --write megatron",
    f"moves {JOB} --tp 2", f"moves {JOB} --tp 2 --of tensor_parallel",
    f"fit {JOB}", f"fit {JOB} --solve seq_length", f"fit {JOB} --solve seq_length --unicode",
    f"fit {JOB} --solve seq_length --latex", f"fit {JOB} --solve hidden_size --json",
    f"compare {JOB} --against --tp=2", f"check {JOB}", f"compare {JOB} --against published",
    "calibrate {folder}/runs.csv --gpu h100-80gb --network ndr-400",
    "evaluate {folder}/rows.csv --model llama-3.2-1b --gpu h100-80gb -o {folder}/out.parquet",
    "snapshot {folder}/memory.pickle", "verify --read {folder}/result.json", "phases {folder}/plan.toml",
    "formula swiglu.saved", "formula swiglu.saved --unicode", "formula swiglu.saved --latex",
    "formula swiglu.saved --json", "formula fujii2024.total", "formula --list", "formula spent.idle --unicode",
    "prove --list", "prove zero1-never-more-than-ddp",
    "appendix -o {folder}/appendix.tex", "page llama-3.2-1b --only --kernel größe=日本 -o {folder}/page.html",
    "models", "gpus", "networks", "kernels", "schema", "schema --markdown", "schema explain", "mcp --help",
    "completion bash",
    # what is refused, with names that no such stream has
    "explain {folder}/μοντέλο.json --gpu h100-80gb", "explain modèle-日本 --gpu h100-80gb",
    f"sweep {JOB} --global-batch-size 8 --csv {{folder}}/нет/строки.csv", "explain llama-3.2-1b --gpu größer",
    "explain {folder}/日本/config.json --gpu h100-80gb --json", "explain {folder}/日本/config.json --gpu h100-80gb",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("größe")
    (path / "rows.csv").write_text("tensor_parallel,μ\n1,é\n2,日\n", encoding="utf-8")
    (path / "runs.csv").write_text(
        "model,num_gpus,tensor_parallel,step_seconds\nllama-3.2-1b,8,1,1.0\nllama-3.2-1b,8,2,1.5\n", encoding="utf-8")
    (path / "memory.pickle").write_bytes(pickle.dumps({"segments": [], "device_traces": [[{
        "action": "alloc", "addr": 1, "size": 512, "frames": [{"filename": "日.py", "line": 1, "name": "μ"}]}]]}))
    (path / "result.json").write_text(
        '{"run": {"model": "llama-3.2-1b", "gpu": "h100-80gb"}, "measured": {"allocated_bytes": 1000000}, "by": "μ日"}',
        encoding="utf-8")
    (path / "plan.toml").write_text(
        'model = "llama-3.2-1b"\ngpu = "h100-80gb"\nnum_gpus = 2\n[[phases]]\nname = "μ日"\ntokens = 1\n'
        'seq_length = 1024\nglobal_batch_size = 2\nlayout = {}\n', encoding="utf-8")
    (path / "日本").mkdir()
    config = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
              "num_attention_heads": 4, "vocab_size": 128, "max_position_embeddings": 64, "μ": 1}
    (path / "日本" / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return path


def printed(line: str, encoding: str, monkeypatch: pytest.MonkeyPatch) -> tuple[int, bytes, bytes]:
    """Exit code and bytes of both streams of a command in an encoding."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2)]
    for name, stream in zip(("stdout", "stderr"), streams, strict=True):
        monkeypatch.setattr(sys, name, stream)
    with pytest.raises(SystemExit) as ended:
        run(line.split())
    contents = []
    for stream in streams:
        stream.flush()
        contents.append(stream.buffer.getvalue())  # type: ignore[attr-defined]
    return int(ended.value.code or 0), contents[0], contents[1]


def test_every_command_is_there() -> None:
    assert {line.split()[0] for line in LINES} >= set(cli.commands)


def tried(place: int) -> tuple[str, ...]:
    """ASCII, which lacks most signs, and one of the others in turn; `make oracle` tries every encoding."""
    return ENCODINGS if FULL else (ENCODINGS[0], ENCODINGS[1 + place % 2])


@pytest.mark.slow
@pytest.mark.parametrize(("line", "encodings"), [(line, tried(place)) for place, line in enumerate(LINES)],
                         ids=lambda item: item[:60].encode("ascii", "replace").decode() if type(item) is str else "")
@pytest.mark.filterwarnings("default")
def test_every_command_prints_in_every_encoding(
    line: str, encodings: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).resolve().parents[2])
    command = line.replace("{folder}", str(folder))
    code, out, err = printed(command, "utf-8", monkeypatch)
    for encoding in encodings:
        found, told, said = printed(command, encoding, monkeypatch)
        assert found == code
        assert b"Traceback" not in said
        assert bool(told) == bool(out)
        assert bool(said) == bool(err)
        told.decode(encoding)
        if encoding == "ascii":
            assert max(told + said, default=0) < 128
        if "--json" in line and code == 0:
            assert json.loads(told.decode(encoding)) == json.loads(out.decode("utf-8"))


@pytest.mark.parametrize(("text", "ascii_text"), [
    ("2*s*b*h/(c*tₛ) + 6*f*(1 - μ)", "2*s*b*h/(c*t_s) + 6*f*(1 - mu)"), ("Lₚ₋₁ ≥ ω₂ × Lᵣₑ", "L_p-1 >= omega_2 x L_re"),
    ("⌈a/b⌉ → ⌊c⌋", "ceil(a/b) -> floor(c)"), ("┏━┓│─└", "+-+|-+"), ("µ² é 日 🎉", r"\xb5^2 \xe9 \u65e5 \U0001f389"),
    ("\u0430", r"\u0430"), ("ℓ ∣ λ", "l | lambda"),
])
def test_signs_are_spelled(text: str, ascii_text: str) -> None:
    assert spelled(text) == ascii_text


def test_a_formula_of_two_dimensions_is_one_line_where_its_signs_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    _, out, _ = printed("formula swiglu.saved --unicode", "ascii", monkeypatch)
    assert out == b"2*s*b*(1 - mu)*(h/t_s + 3*f/t)/c\n"
    code, out, _ = printed(f"fit {JOB} --solve seq_length --unicode", "ascii", monkeypatch)
    assert (code, out.split(b"\n")[0][:4]) == (0, b"s = ")


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_process_of_its_own(encoding: str) -> None:
    """The streams as Python makes them from the environment, a table and a refusal with it."""
    lines = ("formula swiglu.saved", "explain größer --gpu h100-80gb", f"fit {JOB} --solve seq_length --unicode")
    for line in lines if FULL or encoding == ENCODINGS[0] else lines[:2]:
        result = subprocess.run(
            [sys.executable, "-m", "shardmath", *line.split()], capture_output=True, check=False,
            env={"PYTHONIOENCODING": encoding, "PATH": "", "HOME": str(Path.home())},
        )
        assert result.returncode == (2 if "größer" in line else 0), result.stderr
        (result.stdout + result.stderr).decode(encoding)
        assert b"Traceback" not in result.stderr
