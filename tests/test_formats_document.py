"""docs/formats.md is true: its commands print what it shows, its Python runs, and its table names every ending.

With UPDATE_README=1 in the environment the outputs are written anew instead of compared.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from shardmath.cli.main import cli
from shardmath.formats import FORMATS
from shardmath.formats.readers import SUFFIXES

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "formats.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")
CONSOLE = re.compile(r"```console\n\$ shardmath ([^\n]+)\n(.*?)```", re.DOTALL)
LINES = re.findall(r"```sh\nshardmath ([^\n]+)\n```", TEXT)


@pytest.fixture(autouse=True)
def in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("command", LINES)
def test_commands_succeed(command: str) -> None:
    result = CliRunner().invoke(cli, shlex.split(command))
    assert result.exit_code == 0, result.output
    assert "GiB on one GPU" in result.stdout


def test_what_is_said_on_the_standard_error_is_shown() -> None:
    (shown,) = re.findall(r"```text\n(.*?)```", TEXT, re.DOTALL)
    assert CliRunner().invoke(cli, shlex.split(LINES[0])).stderr == shown


@pytest.mark.parametrize("command", [command for command, _ in CONSOLE.findall(TEXT)])
def test_commands_print_what_is_shown(command: str) -> None:
    shown = next(output for other, output in CONSOLE.findall(TEXT) if other == command)
    output = CliRunner().invoke(cli, shlex.split(command)).stdout
    if os.environ.get("UPDATE_README"):
        text, block = DOCUMENT.read_text(encoding="utf-8"), f"$ shardmath {command}\n"
        DOCUMENT.write_text(text.replace(f"{block}{shown}```", f"{block}{output}```"), encoding="utf-8")
    else:
        assert output == shown


def test_python_runs() -> None:
    (block,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    exec(compile(block, "formats.md", "exec"), {})


def test_every_ending_and_format_is_named() -> None:
    assert [suffix for suffix in SUFFIXES if f"`{suffix}`" not in TEXT] == []
    assert [format for format in FORMATS if f"| `{format}`" not in TEXT] == []
