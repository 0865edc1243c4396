"""The pages in docs are true: their commands print what they show, and their links lead somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from consoles import Shown, shown

from shardmath.cli.main import exit_code

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
TUTORIAL = (DOCS / "tutorial.md").read_text(encoding="utf-8")
SHOWN = [example for page in PAGES for example in shown(page)]


@pytest.mark.slow
@pytest.mark.parametrize("example", SHOWN, ids=lambda example: f"{example.document.stem}: {example.command}")
def test_commands_print_what_is_shown(
    example: Shown, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:
    """Run in a folder of its own, in which the files of the repository are where they are in a checkout."""
    for name in ("docs", "tests"):
        (tmp_path / name).symlink_to(DOCS.parent / name)
    monkeypatch.chdir(tmp_path)
    example.check(capsys)


@pytest.mark.slow
def test_formulas_that_pages_name_are_there(capsys: pytest.CaptureFixture[str]) -> None:
    pages = [page for page in PAGES if page.stem != "extending"]  # whose formulas are those of its own changes
    texts = [page.read_text(encoding="utf-8") for page in pages]
    named = {line for text in texts for line in re.findall(r"(?m)^ {4}shardmath (formula .+)$", text)}
    assert named
    for line in sorted(named):
        assert exit_code(shlex.split(line)) == 0, (line, capsys.readouterr().err)


def test_numbers_that_the_tutorial_tells_are_those_that_its_commands_print() -> None:
    told = re.sub(r"```.*?```|\]\([^)]*\)|^#.*?$", "", TUTORIAL, flags=re.DOTALL | re.MULTILINE)
    printed = " ".join(re.findall(r"```console\n(.*?)```", TUTORIAL, re.DOTALL))
    numbers = [number for number in re.findall(r"(?<![\w.,-])[0-9]+(?:[.,][0-9]+)*(?![\w-])", told) if len(number) > 2]
    assert {"22,160", "80.68"} <= {*numbers}
    missing = [number for number in numbers if not re.search(rf"(?<![\d.,]){re.escape(number)}(?![\d])", printed)]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    targets = [target for target in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in target]
    assert [target for target in targets if not (page.parent / target).exists()] == []
