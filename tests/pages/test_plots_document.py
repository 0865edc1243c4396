"""Pages with pictures and docs/compare.md: pictures are drawn by the commands that are shown, Python runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from shardmath.cli.main import exit_code
from validation.pictures import PAGES, ROOT, commands

FOLDER = ROOT / "docs" / "plots"
COMPARE = (ROOT / "docs" / "compare.md").read_text(encoding="utf-8")


def written(path: Path) -> list[str]:
    """What is written in an SVG, in any version of matplotlib."""
    return re.findall(r"<!--(.*?)-->", path.read_text(encoding="utf-8"))


def test_every_picture_is_shown_and_has_its_command() -> None:
    names = {path.name for path in FOLDER.iterdir()}
    shown = set(re.findall(r"\]\(plots/(\S+)\)", "".join(map(Path.read_text, PAGES)) + COMPARE))
    assert names == shown == {*commands(FOLDER)}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*commands(FOLDER)])
def test_pictures_are_what_their_commands_draw(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert exit_code(commands(tmp_path)[name]) == 0
    assert (tmp_path / name).stat().st_size < 300_000
    if name.endswith(".svg"):
        assert written(tmp_path / name) == written(FOLDER / name)


@pytest.mark.slow
@pytest.mark.parametrize("command", re.findall(r"^shardmath (compare .*)$", COMPARE, re.MULTILINE))
def test_comparisons_succeed(command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    assert exit_code(shlex.split(command)) == 0
    assert "by tensor, GiB" in capsys.readouterr().out


@pytest.mark.slow
def test_python_runs() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", COMPARE, re.DOTALL)
    exec(compile(block, "compare.md", "exec"), {})
