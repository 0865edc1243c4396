"""The table of typical mistakes in docs/robustness.md: every command is run, and says what stands beside it."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
from pathlib import Path

import pytest

from shardmath.cli.main import exit_code

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "robustness.md"
BEGIN, END = "<!-- mistakes -->\n", "<!-- end of mistakes -->"
LINE = re.compile(r"\| `shardmath (?P<command>[^|]*)` \| (?P<message>.*) \|")


def said(command: str) -> tuple[int, str]:
    """Run a command in this process; return its exit code and what it says on standard error."""
    with contextlib.redirect_stderr(io.StringIO()) as errors, contextlib.redirect_stdout(io.StringIO()):
        code = exit_code(shlex.split(command))
    return code, errors.getvalue().strip()


def test_every_mistake_is_answered_as_the_page_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """With UPDATE_DOCUMENTS=1 in the environment, write the messages instead of comparing them."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "80")
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    table, after = rest.split(END)
    head, rows = table.splitlines()[:2], [LINE.fullmatch(line) for line in table.splitlines()[2:]]
    made = []
    for row in rows:
        assert row is not None
        code, message = said(row["command"])
        assert not {"|", "``"} & {*message, *message.split()}, "breaks the table"
        assert (code, len(message.splitlines())) == (2, 1), (row["command"], message)
        made.append(f"| `shardmath {row['command']}` | `` {message} `` |")
    assert len(made) >= 40
    text = "\n".join([*head, *made, ""])
    if os.environ.get("UPDATE_DOCUMENTS"):
        PAGE.write_text(f"{before}{BEGIN}{text}{END}{after}", encoding="utf-8")
    else:
        assert table == text
