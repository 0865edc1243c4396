"""docs/extending.md is true: its changes are applied to a copy of the repository, and its code runs there."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shardmath.cli.main import exit_code

DERIVED = """
from shardmath.symbolic.documents.definitions import definitions
from shardmath.files.rendering import rendered
print(rendered("definitions.py", definitions()), end="")
"""
ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")


#: Files that each extension touches beside generated/: what the page promises.
TOUCHED = {
    "A GPU": set(),
    "A component": {"symbolic/components/layer_scale.py"},
    "A precision": {"symbolic/choices.py", "symbolic/components/swiglu.py"},
    "An MLP": {"symbolic/choices.py", "symbolic/components/reglu.py"},
    "An optimizer": {"symbolic/parallel/optimizers.py"},
    "A parallel dimension": {"symbolic/parallel/dimensions/keys.py", "symbolic/parameters.py"},
    "A system": {"symbolic/systems/moving_average.py"},
    "An implementation": {"symbolic/implementations.py"},
    "Sources": set(),
}


#: A choice that is not packaged, so that its formulas are derived in the copy.
UNFUSED = ("--gpu", "h100-80gb", "--kernel", "swiglu=unfused")
CONFIG = {
    "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 4, "vocab_size": 32000,
    "num_attention_heads": 16, "num_key_value_heads": 4, "max_position_embeddings": 8192,
}


def blocks(language: str, text: str = TEXT) -> list[str]:
    """All blocks of the page in a language."""
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def extended(package: Path, text: str) -> set[str]:
    """Apply what a part of the page adds and changes; return the files."""
    touched = set()
    for block in blocks("python", text):
        if title := re.match(r"# (symbolic/\S+)\n", block):
            assert not (package / title[1]).exists()
            (package / title[1]).write_text(block.removeprefix(title[0]), encoding="utf-8")
            touched.add(title[1])
    for block in blocks("diff", text):
        title, *lines = block.splitlines(keepends=True)
        name = title.removeprefix("--- ").strip()
        before, after = ("".join(line[1:] for line in lines if line[0] in signs) for signs in (" -", " +"))
        old = (package / name).read_text(encoding="utf-8")
        assert old.count(before) == 1, f"{name} has not, once, what the page changes"
        (package / name).write_text(old.replace(before, after), encoding="utf-8")
        touched.add(name)
    return touched


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with all that the page adds; it comes before the installed one.

    Of generated/ the definitions are derived; what the commands of the page need besides is derived on first use.
    """
    folder = tmp_path_factory.mktemp("extended")
    package = copied(folder)
    sections = dict(section.split("\n", 1) for section in TEXT.split("\n## ")[1:])
    assert {title: extended(package, text) for title, text in sections.items()} == TOUCHED
    define(folder)
    return folder


def copied(folder: Path) -> Path:
    """Return a copy of the package in a folder, with links to what no part of the page changes."""
    package = folder / "shardmath"
    package.mkdir()
    for name in ("symbolic", "generated"):
        shutil.copytree(ROOT / name, package / name, ignore=shutil.ignore_patterns("__pycache__"))
    for part in (*(ROOT / "src" / "shardmath").iterdir(), ROOT / "templates", ROOT / "catalogue"):
        (package / part.name).symlink_to(part)
    return package


def define(folder: Path) -> None:
    """Derive the definitions of a copy."""
    result = run(folder, "-c", DERIVED)
    assert result.returncode == 0, result.stderr
    (folder / "shardmath" / "generated" / "definitions.py").write_text(result.stdout, encoding="utf-8")


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python on the copy."""
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True, text=True, check=False,
    )


@pytest.mark.slow
def test_what_the_page_says_holds(changed: Path) -> None:
    code = [block for block in blocks("python") if not block.startswith("# symbolic/")]
    assert len(code) == 1
    result = run(changed, "-c", code[0])
    assert result.returncode == 0, result.stderr


def command(folder: Path, beginning: str) -> str:
    """Run the command of the page that begins so on the copy."""
    (line,) = re.findall(rf"^    shardmath ({re.escape(beginning)}.*)$", TEXT, re.MULTILINE)
    result = run(folder, "-m", "shardmath", *line.split())
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.slow
def test_the_new_component_shows_its_formula(changed: Path) -> None:
    result = run(changed, "-m", "shardmath", "formula", "layer_scale.saved")
    assert result.returncode == 0, result.stderr
    assert "layer_scale.input" in result.stdout
    assert "2*s*b*h/(c*tₛ)" in result.stdout


@pytest.mark.slow
def test_the_new_mlp_keeps_what_swiglu_keeps(changed: Path, tmp_path: Path) -> None:
    ours = command(changed, "formula reglu.saved")
    theirs = run(changed, "-m", "shardmath", "formula", "swiglu.saved", "--kernel", "swiglu=unfused").stdout
    assert "2*s*b*(1 - μ)*(h/tₛ + 5*f/t)/c" in ours
    assert "2*s*b*(1 - μ)*(h/tₛ + 5*f/t)/c" in theirs
    path = tmp_path / "config.json"
    sums = []
    for activation in ("silu", "relu"):
        path.write_text(json.dumps({**CONFIG, "hidden_act": activation}), encoding="utf-8")
        result = run(changed, "-m", "shardmath", "explain", str(path), *UNFUSED, "--json")
        assert result.returncode == 0, result.stderr
        account = json.loads(result.stdout)
        sums.append((account["peak_bytes"], account["time"]["seconds"]))
    assert sums[0] == sums[1]
    written = run(changed, "-m", "shardmath", "explain", str(path), *UNFUSED, "--write", "megatron")
    assert (written.returncode, written.stdout) == (2, "")
    assert "must be a format that can say mlp = reglu" in written.stderr


@pytest.mark.slow
def test_the_new_system_keeps_an_average_where_it_is_chosen(changed: Path) -> None:
    plain = ["explain", "llama-3.2-1b", *UNFUSED, "--json"]
    accounts = []
    for choice in ((), ("--kernel", "moving_average=fp32")):
        result = run(changed, "-m", "shardmath", *plain, *choice)
        assert result.returncode == 0, result.stderr
        accounts.append(json.loads(result.stdout))
    without, averaged = (account["ranks"][0]["by_role"]["optimizer"] for account in accounts)
    assert averaged * 12 == without * 16
    assert accounts[0]["time"]["seconds"] < accounts[1]["time"]["seconds"]
    assert command(changed, "explain llama-3.2-1b --gpu h100-80gb --kernel moving_average=fp32")
    refused = run(changed, "-m", "shardmath", *plain[:2], *UNFUSED[:2], "--implementation", "nanotron",
                  "--kernel", "moving_average=fp32")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "must be one of none with nanotron" in refused.stderr


@pytest.mark.slow
def test_the_new_optimizer_keeps_one_moment_and_is_written_and_read(changed: Path, tmp_path: Path) -> None:
    shown = command(changed, "explain llama-3.2-1b --gpu h100-80gb --kernel optimizer=lion")
    assert "megatron with optimizer=lion" in shown
    script = tmp_path / "lion.sh"
    plain = ("-m", "shardmath", "explain", "llama-3.2-1b", "--gpu", "h100-80gb")
    lion, momentum = ((*plain, "--kernel", f"optimizer={name}") for name in ("lion", "sgd_momentum"))
    result = run(changed, *lion, "--write", "megatron", "--output", str(script))
    assert result.returncode == 0, result.stderr
    assert "--optimizer lion" in script.read_text(encoding="utf-8")
    accounts = [json.loads(run(changed, *words, "--json").stdout) for words in (
        lion, momentum, ("-m", "shardmath", "explain", str(script), "--gpu", "h100-80gb"))]
    ours, theirs, read = (account["ranks"][0]["by_role"] for account in accounts)
    assert ours == theirs == read
    assert ours["optimizer"] == 2 * ours["gradient"]  # master weight and moment, all of fp32, on one rank


@pytest.mark.slow
def test_the_new_dimension_shares_out_its_keys(changed: Path) -> None:
    words = "explain llama-3.2-1b --gpu h100-80gb --tp 2 --num-gpus 8"
    assert "TP 2, CP 1, PP 1, DP 4, KP 2, micro-batch 1" in command(changed, words)
    scores = []
    for kp in ("1", "2", "3"):
        result = run(changed, "-m", "shardmath", *words.split(), "--kernel", "attention=unfused", "--kp", kp, "--json")
        if kp == "3":
            assert result.returncode == 2
            assert "key_parallel = 3: must divide data_parallel * context_parallel" in result.stderr
            assert "nearest legal: 2 or 4" in result.stderr
        else:
            lines = json.loads(result.stdout)["ranks"][0]["lines"]
            scores.append(sum(line["bytes"] for line in lines if line["term"] == "stage.attention.activation"))
    # 16 layers, 16 of 32 heads on a rank, and the other half of 8192 keys for each token, in bf16 and in fp32
    assert scores[0] - scores[1] == 16 * 16 * 8192 * (8192 // 2) * (2 + 4)


@pytest.mark.slow
def test_a_system_with_degrees_leaves_nothing_behind(tmp_path: Path) -> None:
    """Three axes of tensor parallelism are taken away: all that the page counts as their own, and two of the list."""
    package = copied(tmp_path)
    for name in ("systems/tensor_axes", "parallel/dimensions/tensor_y", "parallel/dimensions/tensor_z",
                 "published/singh2023"):
        (package / "symbolic" / f"{name}.py").unlink()
    parameters = package / "symbolic" / "parameters.py"
    text, count = re.subn(r'    Parameter\("t[yz]",.*?(?=    Parameter\()', "", parameters.read_text(encoding="utf-8"),
                          flags=re.DOTALL)
    assert count == 2
    parameters.write_text(text, encoding="utf-8")
    define(tmp_path)
    job = ("llama-3.2-1b", *UNFUSED, "--num-gpus", "8", "--global-batch-size", "32")
    for words in (("explain", "--tp", "2"), ("sweep", "--top", "3", "--cp", "1")):
        left = run(tmp_path, "-m", "shardmath", words[0], *job, *words[1:], "--json")
        assert left.returncode == 0, left.stderr
        whole = run(ROOT, "-m", "shardmath", words[0], *job, *words[1:], "--json")
        answers = [json.loads(result.stdout) for result in (left, whole)]
        for best in answers[1].get("best", ()):
            assert (best.pop("tensor_parallel_y"), best.pop("tensor_parallel_z")) == (1, 1)
        parts = ("best", "legal") if words[0] == "sweep" else ("peak_bytes", "ranks", "time")
        assert [answers[0][part] for part in parts] == [answers[1][part] for part in parts]
    refused = run(tmp_path, "-m", "shardmath", "explain", *job, "--tpz", "2")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "No such option" in refused.stderr


def test_the_cluster_file_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = blocks("toml")
    path = tmp_path / "next_gpu.toml"
    path.write_text(block, encoding="utf-8")
    assert exit_code(["explain", "llama-3.1-8b", "--gpu", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "192 GiB" in shown
    assert "tokens/s" in shown
