"""The README and the pages that it hands over to: their commands run, their Python runs, their links lead somewhere."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from consoles import Shown, printed, shown

from shardmath.cli.main import cli
from shardmath.reports.captured import WIDTH

README = Path(__file__).resolve().parents[2] / "README.md"
DOCS = README.parent / "docs"
TEXT = README.read_text(encoding="utf-8")
#: The README and the pages that hold its details.
PAGES = {
    str(path.relative_to(README.parent)): path.read_text(encoding="utf-8")
    for path in (README, *(DOCS / name for name in ("sweep.md", "explain.md", "python.md", "spaces/README.md")))
}
SHOWN = shown(README)


@pytest.mark.slow
@pytest.mark.parametrize("example", SHOWN, ids=lambda example: example.command)
def test_commands_print_what_is_shown(example: Shown, capsys: pytest.CaptureFixture[str]) -> None:
    example.check(capsys)


LINES = [
    line
    for text in PAGES.values()
    for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    for line in block.splitlines()
]


def test_the_readme_is_short_and_names_every_page() -> None:
    assert len(TEXT.splitlines()) <= 150
    assert [line for line in TEXT.splitlines() if len(line) > WIDTH] == []  # what it shows is printed so wide
    assert [page.name for page in DOCS.glob("*.md") if f"docs/{page.name}" not in TEXT] == []


def test_the_readme_names_every_command() -> None:
    assert [name for name in cli.commands if f"`{name}`" not in TEXT.replace(", ", "`, `")] == []


@pytest.mark.slow
@pytest.mark.parametrize("command", LINES)
def test_commands_without_output_succeed(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "GiB" in printed(command, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("command", [line for line in LINES if " explain " in line])
def test_lines_of_every_account_add_up(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    for rank in json.loads(printed(f"{command} --json", capsys))["ranks"]:
        assert sum(line["bytes"] for line in rank["lines"]) == sum(rank["by_role"].values()) == rank["total"]


@pytest.mark.slow
def test_python_runs(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGES["docs/python.md"], re.DOTALL)
    exec(compile("\n".join(blocks), "python.md", "exec"), {})
    assert "Layout(" in capsys.readouterr().out


def test_links_lead_somewhere() -> None:
    targets = [target for target in re.findall(r"\]\(([^)#]+)", TEXT) if "://" not in target]
    assert targets
    assert [target for target in targets if not (README.parent / target).exists()] == []


def test_make_sweep_is_the_sweep_that_is_shown() -> None:
    shown_twice = [example.command for example in (SHOWN[0], shown(DOCS / "sweep.md")[0])]
    assert shown_twice[0] == shown_twice[1]
    makefile = (README.parent / "Makefile").read_text(encoding="utf-8")
    assert SHOWN[0].command.removeprefix("shardmath sweep ") in makefile


def test_folders_are_those_that_are_listed() -> None:
    listed = re.findall(r"^    ([a-z]+)(?:/shardmath)?/ ", TEXT, re.MULTILINE)
    present = {path.name for path in README.parent.iterdir() if path.is_dir() and "." not in path.name}
    assert set(listed) == present - {"docs", "build", "dist"}
