"""Files for those who report and contribute: the changelog names this version's work, templates are valid forms."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import shardmath
from shardmath.cli.main import cli

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_changelog_has_versions_in_order_and_known_kinds_of_changes() -> None:
    versions = re.findall(r"^## (.+)$", CHANGELOG, re.MULTILINE)
    assert versions[0] == "Unreleased"
    numbers = [tuple(map(int, re.match(r"(\d+)\.(\d+)\.(\d+) ", f"{item} ").groups())) for item in versions[1:]]  # type: ignore[union-attr]
    assert numbers == sorted(numbers, reverse=True)
    kinds = set(re.findall(r"^### (.+)$", CHANGELOG, re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_lines_of_the_changelog_fit_120_columns() -> None:
    assert [line for line in CHANGELOG.splitlines() if len(line) > 120] == []


def test_the_changelog_names_commands_and_functions_that_exist() -> None:
    assert set(re.findall(r"`shardmath (\w+)", CHANGELOG)) <= set(cli.commands)
    answer = shardmath.SweepResult
    assert all(hasattr(answer, name) for name in re.findall(r"`(to_\w+)`", CHANGELOG))


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_templates_are_forms(path: Path) -> None:
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert {"name", "description", "body"} <= form.keys()
    assert len({item["id"] for item in form["body"]}) == len(form["body"])
    assert all(item["type"] in ("input", "textarea", "dropdown", "markdown") for item in form["body"])


def test_links_of_the_pages_lead_somewhere() -> None:
    for name in ("CHANGELOG.md", "SECURITY.md"):
        text = (ROOT / name).read_text(encoding="utf-8")
        targets = [target for target in re.findall(r"\]\(([^)#]+)", text) if "://" not in target]
        assert targets
        assert [target for target in targets if not (ROOT / target).exists()] == []
