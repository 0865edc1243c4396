"""docs/formats.md is true: its commands succeed, its Python runs, and its table names every ending."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from shardmath.cli.main import cli
from shardmath.formats import FORMATS
from shardmath.formats.readers import SUFFIXES

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "formats.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")
LINES = re.findall(r"```sh\nshardmath ([^\n]+)\n```", TEXT)


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.mark.slow
@pytest.mark.parametrize("command", LINES)
def test_commands_succeed(command: str) -> None:
    result = CliRunner().invoke(cli, shlex.split(command))
    assert result.exit_code == 0, result.output
    assert "GiB on one GPU" in result.stdout


@pytest.mark.slow
def test_what_is_said_on_the_standard_error_is_shown() -> None:
    (shown,) = re.findall(r"```text\n(.*?)```", TEXT, re.DOTALL)
    assert CliRunner().invoke(cli, shlex.split(LINES[0])).stderr == shown


@pytest.mark.slow
def test_python_runs() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    exec(compile(block, "formats.md", "exec"), {})


def test_every_ending_and_format_is_named() -> None:
    assert [suffix for suffix in SUFFIXES if f"`{suffix}`" not in TEXT] == []
    assert [format for format in FORMATS if f"| `{format}`" not in TEXT] == []
