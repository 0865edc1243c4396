"""docs/extending.md is true: its changes are applied to a copy of the repository, and its code runs there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shardmath.cli.main import exit_code

ROOT = Path(__file__).resolve().parents[1]
TEXT = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """All blocks of the page in a language."""
    return re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with all that the page adds; it comes before the installed one."""
    folder = tmp_path_factory.mktemp("extended")
    package = folder / "shardmath"
    package.mkdir()
    shutil.copytree(ROOT / "symbolic", package / "symbolic", ignore=shutil.ignore_patterns("__pycache__"))
    others = [ROOT / name for name in ("generated", "templates", "catalogue")]
    for part in (*(ROOT / "src" / "shardmath").iterdir(), *others):
        (package / part.name).symlink_to(part)
    for block in blocks("python"):
        if title := re.match(r"# (symbolic/\S+)\n", block):
            (package / title[1]).write_text(block.removeprefix(title[0]), encoding="utf-8")
    for block in blocks("diff"):
        title, *lines = block.splitlines(keepends=True)
        path = package / title.removeprefix("--- ").strip()
        before, after = ("".join(line[1:] for line in lines if line[0] in signs) for signs in (" -", " +"))
        text = path.read_text(encoding="utf-8")
        assert text.count(before) == 1, f"{path.name} has not, once, what the page changes"
        path.write_text(text.replace(before, after), encoding="utf-8")
    return folder


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


@pytest.mark.slow
def test_the_new_component_shows_its_formula(changed: Path) -> None:
    result = run(changed, "-m", "shardmath", "formula", "layer_scale.saved")
    assert result.returncode == 0, result.stderr
    assert "layer_scale.input" in result.stdout
    assert "2*s*b*h/(c*tₛ)" in result.stdout


def test_the_cluster_file_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = blocks("toml")
    path = tmp_path / "next_gpu.toml"
    path.write_text(block, encoding="utf-8")
    assert exit_code(["explain", "llama-3.1-8b", "--gpu", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "192 GiB" in shown
    assert "tokens/s" in shown
